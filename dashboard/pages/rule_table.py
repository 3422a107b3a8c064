"""The rules on the Alerts page, with the dialogs of their mode and their removal. From data
alone."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dash.development.base_component import Component

from gpudeck.markup import make

from ..access.policy import Role
from .alert_cells import severity_pill
from .alert_words import NOUNS, measure_of, targets_words
from .field_elements import dialog_foot, field_elements
from .forms import choice, order, row_button, sure, text
from .item_lists import Item, ItemList, stacked
from .reading import Viewer
from .words import age, amount

MODES = (("observe", "observe: no actions"),
         ("dry_run", "dry run: actions are only logged"),
         ("confirm", "confirm: a person approves each action"),
         ("auto", "auto: runs on its own, within the brakes"))
STILL = (("held", "blocked"), ("silenced", "silenced"))
Counts = Mapping[str, Counter[str]]
EMPTY = "There are no rules. Admins add one with “New rule”."
REMOVED = "The rule is no longer evaluated and its alerts are resolved. Earlier versions are kept."


def rule_table(rules: Sequence[Item], lists: Mapping[str, Sequence[Item]], person: Viewer
               ) -> Component:
    """Return the table. `lists`: the alerts by the lists that they are in, so that a rule's line
    says of them what these say."""
    explained = [alert for alert in lists["held"] if alert["inhibited_by"]]
    counts = {name: Counter(str(alert["rule"]) for alert in alerts)
              for name, alerts in {**lists, "explained": explained}.items()}
    return ItemList(
        "Rules", (("Rule", _title), ("Condition", _condition),
                  ("Now", lambda item: _now(item, counts)),
                  ("Mode", lambda item: item["mode"].replace("_", " "))),
        lambda item: str(item["rule"]["id"]), EMPTY,
        lambda item: _actions(item, person)).draw(sorted(rules, key=_by_need))


def _by_need(item: Item) -> tuple[int, int, str]:
    return (-item["firing"] - item["resolving"], -item["pending"], item["rule"]["title"].lower())


def _title(item: Item) -> Component:
    rule = item["rule"]
    return stacked(severity_pill(rule["severity"]), make("strong.name", rule["title"]),
                   make("small", rule["id"]))


def _condition(item: Item) -> Component:
    rule = item["rule"]
    hold = "immediately" if rule["for"] == "0s" else f"for {rule['for']}"
    return stacked(make("code", f"{rule['signal']} {measure_of(item).limit_words()}"),
                   make("small", " · ".join((*rule["where"], hold, _scope_words(rule)))))


def _scope_words(rule: Item) -> str:
    of, scope = rule["of"], rule["scope"]
    if scope != "*":
        return f"{'' if of == 'gpu' else f'{NOUNS[of]}s: '}{scope}"
    return "the whole fleet" if of in ("gpu", "fleet") else f"all {NOUNS[of]}s"


def _now(item: Item, counts: Counts) -> Component:
    """Return how many of its targets are firing. Green only where somebody could be told of: where
    nothing is known of any target, all may be well or not."""
    if not item["is_watched"] or item["why_not"]:
        return stacked(make("span.pill.stale", "not evaluated"), make("small", item["why_not"]))
    of, targets = item["rule"]["of"], item["targets"]
    missing, unknown = item["no_data"], item["cannot"]
    pills = [make(f"span.pill.{tone}", f"{amount(count)} {word}") for count, word, tone in (
        (_firing(item, counts), "firing", "lost"), (item["pending"], "pending", "stale"),
        *((counts[name][item["rule"]["id"]], word, "stale") for name, word in STILL)) if count]
    rest = make("span.pill.ok", "OK") if targets > missing + unknown else (
        make("span.pill", "no data" if targets else "nothing to check"))
    quiet = (f"of {targets_words(of, targets)}", f"{amount(missing)} missing data"
             if missing else "", f"{amount(unknown)} not reported" if unknown else "")
    return stacked(*(pills or [rest]), make("small", ", ".join(filter(None, quiet))))


def _firing(item: Item, counts: Counts) -> int:
    """Return how many are in the list of firing alerts, and those of which no list says anything
    yet. One that another alert explains is in the list of blocked ones alone, and a silenced one in
    that of silenced ones."""
    rule, count = str(item["rule"]["id"]), int(item["firing"] + item["resolving"])
    elsewhere = counts["silenced"][rule] + counts["explained"][rule]
    return max(counts["firing"][rule], count - elsewhere)


def _actions(item: Item, person: Viewer) -> list[Component]:
    rule, is_admin = item["rule"], person.may(Role.ADMIN)
    title, word = rule["title"], "Edit" if is_admin else "Show"
    return [
        make("button.button.small", word, aria_label=f"{word} {title}", data_key="edit",
             data_set={"edited": rule["id"]}, data_step="false"),
        *([make("button.button.small", "Mode …", aria_label=f"Mode of {title}", data_key="mode",
                data_set={"mode_of": rule["id"]}, data_step="false")]
          if person.may(Role.OPERATOR) and rule["ladder"] else []),
        *([row_button("Remove", sure(f"Remove “{title}”?", "Remove", REMOVED,
                                     order("DELETE", "rules", rule["id"])), f"Remove {title}")]
          if is_admin else [])]


def mode_form(item: Item, proof_h: float, rehearsals: Component) -> list[Component]:
    """Return the inside of the dialog that sets a rule's mode."""
    rule = item["rule"]
    fields = [choice("mode", "Mode", MODES, rule["mode"]),
              text("expires", "Until", rule["expires"], "The last day of auto, within 180 days.",
                   empty="", maxlength="10", placeholder="2027-01-31")]
    form = order("POST", "rules", rule["id"], "mode",
                 body={"mode": "$mode", "expires": "$expires"}, fields=fields)
    return [make("form.form.dialog-body", [
        make("p", "Lowering the mode takes effect immediately. Only admins can raise it; auto "
             f"also requires {age(proof_h * 3_600)} of dry run, or an approved rehearsal over as "
             "long a time, and an end date."),
        *field_elements("mode", fields),
        make("div.field", [make("span.label", "Rehearsals"),
                           make("div#rule-rehearsals", rehearsals)]),
        *dialog_foot("Save")], data_form=form, data_key=rule["id"])]
