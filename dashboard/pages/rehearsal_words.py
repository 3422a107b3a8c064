"""A rehearsal in words: how often a rule would have fired, for whom, and what its actions would
have done, from data alone."""

from collections.abc import Iterable
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from ..access.policy import Role
from .alert_words import Item, hours_words, place_words, targets_words
from .forms import form_button, order
from .words import age, amount, moment, plural, sentence, when

MOST_LINES = 12
MOST_USERS = 5
USERS_OF_ALERT = 3
MOST_REHEARSALS = 5
EXACTNESS = {
    0: "", 1: " Based on seconds where they are kept; live evaluation may differ by one sample."}
BY_MINUTES = (" Based on minutes; live evaluation looks at every second, and may differ by a "
              "minute.")


def rehearsal_words(rehearsal: Item, fired: int | None) -> str:
    """Return the summary. `fired`: how often the rule did fire in that time; None: it is not one of
    the hub's."""
    if rehearsal["state"] != "done":
        return sentence(rehearsal["why"] or f"The rehearsal is {rehearsal['state']}")
    count, targets = rehearsal["alerts_count"], rehearsal["targets"]
    times = "not have fired" if count == 0 else f"have fired {_times(count)}"
    words = f"It would {times} ({targets_words(rehearsal['of'], targets)} evaluated)."
    return (words + _actions(rehearsal) + EXACTNESS.get(rehearsal["off_by_s"], BY_MINUTES)
            + _fired(fired))


def _times(count: int) -> str:
    return "once" if count == 1 else plural(count, "time")


def _actions(rehearsal: Item) -> str:
    count, hours, refusals = (rehearsal[name] for name in (
        "victims_count", "gpu_hours", "refused_count"))
    words = ""
    if count:
        users = dict.fromkeys(user for victim in rehearsal["victims"] for user in victim["users"])
        owners = f", on {', '.join([*users][:MOST_USERS])}" if users else ""
        cost = "" if hours is None else f": {hours_words(hours)}"
        words = f" Its actions would have run {plural(count, 'time')}{owners}{cost}."
    if refusals:
        words += f" {plural(refusals, 'action')} would be refused, as the nodes are now."
    return words


def _fired(fired: int | None) -> str:
    if fired is None:
        return ""
    return f" In that time it did fire {plural(fired, 'time')}." if fired else (
        " It did not fire in that time.")


def rehearsal_lines(rehearsal: Item, zone: str) -> list[Component]:
    """Return a line for each of the first alerts, and for each action that would be refused."""
    of, alerts, refusals = rehearsal["of"], rehearsal["alerts"], rehearsal["refused"]
    lines = [_alert_line(of, alert, zone) for alert in alerts[:MOST_LINES]]
    rest = rehearsal["alerts_count"] - len(lines)
    if rest > 0:
        lines.append(make("li", f"and {amount(rest)} more"))
    return [*lines, *_refusals(of, refusals[:MOST_LINES], zone)]


def _alert_line(of: str, alert: Item, zone: str) -> Component:
    users = alert["users"][:USERS_OF_ALERT] if of != "owner" else []
    return make("li", ", ".join([
        place_words({"of": of, **alert}), moment(alert["fired_at"], zone), *users]))


def _refusals(of: str, refusals: Iterable[Any], zone: str) -> Iterable[Component]:
    for refusal in refusals:
        place = place_words({"of": of, "place": "", **refusal})
        yield make("li", f"{place}, {moment(refusal['at'], zone)}: '{refusal['do']}' would be "
                   f"refused: {refusal['why']}", data_refused="")


def rehearsals(items: Iterable[Item], version: str, person: Item, now: float) -> Component:
    """Return the newest rehearsals of a rule, each with a button for a person who may approve it,
    for those who may change the rule's mode. `version`: of the rule now."""
    newest = [item for item in items if item["state"] == "done"][:MOST_REHEARSALS]
    if not newest:
        return make("p", "Not rehearsed yet. Open “Edit”, then “Rehearsal”.")
    return make("ul.rehearsal-list", [make("li", [
        make("span", short_words(item, version, now)),
        *approval(item, version, person)],
        data_key=item["id"]) for item in newest])


def short_words(item: Item, version: str, now: float) -> str:
    earlier = "" if item["rule_version"] == version else "Earlier version: "
    refusals, approver = item["refused_count"], item["approved_by"]
    return (f"{earlier}{age(item['end'] - item['start'])}, "
            f"{plural(item['alerts_count'], 'alert')}, {plural(item['victims_count'], 'action')}"
            f"{f', {amount(refusals)} refused' if refusals else ''}; by {item['by']}, "
            f"{when(item['asked_at'], now)}"
            f"{'' if approver is None else f'; approved by {approver}'}")


def approval_refusal(item: Item, version: str, person: Item) -> str:
    """Return why this person is not offered to approve a rehearsal; "": they are. The hub
    decides. `version`: of the rule now."""
    if item["rule_version"] != version:
        return "It is of another version than the saved rule, so it cannot be approved."
    if not Role(person["role"]).covers(Role.ADMIN):
        return "An admin can approve it."
    is_own = item["by"] == person["name"] and person["second_person"]
    return "Another admin can approve it." if is_own else ""


def approval(item: Item, version: str, person: Item) -> list[Component]:
    """Return the button that approves a rehearsal, for a person who may. `version`: of the rule
    now."""
    if item["approved_by"] is not None or approval_refusal(item, version, person):
        return []
    return [form_button(".button.small", "Approve", order(
        "POST", "rules", "backtests", item["id"], "approve"))]
