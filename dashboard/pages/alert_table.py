"""Lists of firing, pending, blocked and silenced alerts on the Alerts page: those of one rule are
one line that opens. From data alone."""

from collections.abc import Sequence, Set
from urllib.parse import quote

from dash.development.base_component import Component

from gpudeck.contract.action_table import ON_RUNG
from gpudeck.markup import make

from ..access.policy import Role
from .alert_cells import AlertContext, alert_cell, group_cell, hosts_cell, place_cell, value_cell
from .alert_words import place_words
from .item_lists import Item, ItemList, stacked
from .setting_forms import act_button, drain_form
from .silence_table import silence_button
from .words import age, moment, when

EMPTY = {
    "firing": "No alert is firing. An alert fires when a rule's condition has been met for the "
              "required time.",
    "pending": "No alert is pending.",
    "held": "No alert is blocked.",
    "silenced": "No firing alert is silenced.",
}
NAMES = {"held": "blocked"}
RANKS = {"crit": 0, "warn": 1, "info": 2}
STEPS_SHOWN = 3
NOTHING = make("span.no-value", "\N{EN DASH}")


def alert_lists(alerts: Sequence[Item], pending: Sequence[Item]) -> dict[str, list[Item]]:
    """Return the alerts of each list. Alerts that wait for approval come first, then the worst,
    then the newest."""
    audible = [alert for alert in alerts if not alert["silenced_by"]]
    return {
        "firing": sorted((alert for alert in audible if not alert["inhibited_by"]),
                         key=lambda alert: (not waits(alert), RANKS[alert["severity"]])),
        "pending": [*pending],
        "held": [alert for alert in audible if alert["holds"] or alert["inhibited_by"]],
        "silenced": [alert for alert in alerts if alert["silenced_by"]]}


def waits(alert: Item) -> bool:
    """Return whether its rule waits for a person to approve the next step."""
    return alert["ladder"] is not None and bool(alert["ladder"]["confirm"])


def lines_of(alerts: Sequence[Item], opened: Set[str]) -> list[Item]:
    """Return the lines of a list, each rule where its first alert is. Several alerts of a rule are
    one line with `members`; one that waits for approval has its own."""
    groups: dict[str, list[Item]] = {}
    for alert in alerts:
        groups.setdefault(alert["id"] if waits(alert) else alert["rule"], []).append(alert)
    lines: list[Item] = []
    for key, members in groups.items():
        if len(members) > 1:
            lines.append(_group(members))
        if len(members) == 1 or key in opened:
            lines += members
    return lines


def _group(members: Sequence[Item]) -> Item:
    """Return alerts of one rule as one: since the first began, with all that blocks them."""
    first = members[0]
    return {**first, "id": f"rule {first['rule']}", "members": members, "value": None,
            "ladder": None, "state": "firing",
            "holds": [*dict.fromkeys(hold for alert in members for hold in alert["holds"])],
            "since": min(alert["since"] for alert in members),
            "fired_at": min(alert["fired_at"] for alert in members)}


def alert_table(name: str, alerts: Sequence[Item], context: AlertContext) -> Component:
    since = ("Since", lambda alert: context.ago(alert["since"]))
    columns = (since, ("Fires", lambda alert: _due(alert, context))) if name == "pending" else (
        since, ("Next", lambda alert: _ladder(alert, context.now)), ("Blocked by", _holds))
    return ItemList(
        f"Alerts: {NAMES.get(name, name)}", (
            ("Alert", lambda alert: group_cell(alert["members"], context.opened)
             if "members" in alert else alert_cell(alert)),
            ("Where", lambda alert: hosts_cell(alert["members"])
             if "members" in alert else place_cell(alert)),
            ("Value", lambda alert: "" if "members" in alert else value_cell(alert, context)),
            *columns),
        lambda alert: str(alert["id"]), EMPTY[name],
        lambda alert: _actions(alert, context, name != "silenced"), is_steady=True,
        ).draw(lines_of(alerts, context.opened))


def _due(alert: Item, context: AlertContext) -> Component:
    left = alert["fired_at"] - context.now
    words = f"in {age(max(1.0, left))}" if left > 0 else "at the next evaluation"
    return make("span", words, title=moment(alert["fired_at"], context.zone))


def _ladder(alert: Item, now: float) -> Component:
    """Return the next step of the alert's rule, and the last ones done."""
    ladder = alert["ladder"]
    if ladder is None:
        return NOTHING
    why, dry_run = ladder["why"], ladder["mode"] == "dry_run"
    return stacked(
        make("span", _next_words(ladder, alert["holds"], now)),
        make("small", "dry run: only logged") if dry_run else None,
        make("small", why) if why and why not in alert["holds"] else None,
        *(make("small", f"{step['do']} {when(step['at'], now)}: "
               f"{step['sentence'] or step['outcome'] or 'in progress'}")
          for step in ladder["done"][-STEPS_SHOWN:]))


def _next_words(ladder: Item, holds: Sequence[str], now: float) -> str:
    step, due_at = ladder["next"], ladder["due_at"]
    if step is None:
        return "no further step"
    if ladder["confirm"]:
        return f"{step}, waiting for approval"
    if due_at is None:
        return str(step)
    if due_at > now:
        return f"{step} {when(due_at, now)}"
    # A moment in the past would read as if it had been done.
    return f"{step}, once nothing blocks it" if holds else f"{step}, at the next evaluation"


def _holds(alert: Item) -> Component:
    over = ("condition no longer met",) if alert["state"] == "resolving" else ()
    lines = [make("small.hold-line", words) for words in (*over, *alert["holds"]) if words]
    return stacked(*lines) if lines else NOTHING


def _actions(alert: Item, context: AlertContext, may_silence: bool) -> list[Component]:
    is_operator = context.person.may(Role.OPERATOR)
    silence = [silence_button(alert, context)] if may_silence and is_operator else []
    if "members" in alert:
        return silence
    return [*([_approval(alert, context)] if waits(alert) and context.person.may(Role.USER)
              else []), *([_drain(alert)] if is_operator and _is_of_board(alert) else []),
            *silence]


def _is_of_board(alert: Item) -> bool:
    """Return whether it is critical for the GPU itself: repair starts with a drain."""
    return bool(alert["of"] == "gpu" and alert["severity"] == "crit"
                and alert["state"] == "firing")


def _approval(alert: Item, context: AlertContext) -> Component:
    """Return the button that previews the next step and orders it from that preview."""
    ladder, signal = alert["ladder"], context.signals.get(alert["rule"], "it")
    step = ladder["next"]
    return make(
        "button.button.small", f"Approve: {step}", data_act=ON_RUNG[step],
        data_targets=[*ladder["task_ids"]], data_key="approve",
        aria_label=f"Approve: {step} at {place_words(alert)}",
        data_confirm={
            "path": f"alerts/{quote(alert['id'], safe='')}/confirm",
            "lead": f"Requested by the rule “{alert['title']}”: {signal} is "
                    f"{context.value(alert)}, condition met for "
                    f"{age(context.now - alert['since'])}."})


def _drain(alert: Item) -> Component:
    uuid = alert["target"]
    return act_button("Drain GPU", "drain", "drain", uuid, drain_form(uuid),
                      f"Drain {place_words(alert)}", (("GPU", place_words(alert)),))
