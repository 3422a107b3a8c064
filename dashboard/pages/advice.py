"""The Advice page: what would free GPU-hours, the most first."""

from typing import Any
from urllib.parse import quote

from dash.development.base_component import Component

from gpudeck.client.hub import Client
from gpudeck.markup import make

from ..access.policy import Role
from .parts import READ_PAGE, Page, copyable, problem
from .reading import Parts, Reading, View, viewer
from .words import age, amount, plural, sentence

Item = dict[str, Any]

WEEK_H = 168
MOST_IDLE = 5
WASTED = "state:wasted"
NOT_FOR_ALL = "Advice names owners and what they hold, so it is visible to operators only."


def frame() -> Component:
    return make("div#advice.advice-page", [
        make("header.advice-head", [make("div", [
            make("h1", "Advice"), make("p#advice-words", "", role="status")])]),
        problem("advice"),
        make("p#advice-now.advice-now", "", hidden=True),
        make("p#advice-none.none", "Loading …", role="status"),
        make("ul#advice-place.advice-place"),
        make("details#advice-dismissed.advice-dismissed", [
            make("summary", "Dismissed"), make("ul#advice-aside.advice-place")], hidden=True)],
        hidden=True, data_unsettled="")


def answer(client: Client, view: View, now: float) -> Parts:
    if not viewer(client).may(Role.OPERATOR):
        return {"advice-none": NOT_FOR_ALL}
    advice = client.hub.get("advice")
    tasks = client.hub.all("tasks", filter=WASTED, sort="idle_s", order="desc")
    gpus = client.hub.all("gpus", filter=WASTED)
    return advice_parts(advice, tasks, {gpu["uuid"]: gpu["index"] for gpu in gpus})


def advice_parts(advice: Item, idle: list[Item], indices: dict[str, int]) -> Parts:
    """Return the parts of the page. Pure."""
    hours, least, items = advice["hours"], advice["least_hours"], advice["items"]
    valid = [item for item in items if item["dismissed"] is None]
    dismissed = [item for item in items if item["dismissed"] is not None]
    extrapolated = ", extrapolated" if hours < WEEK_H else ""
    return {
        "advice-words": "" if hours < least else
            f"Based on {last_hours(hours)}. GPU-hours are per week{extrapolated}.",
        "advice-none": waiting_words(hours, least) if hours < least else
            None if valid else nothing_words(hours),
        "advice-now": idle_words(idle, indices),
        "advice-place": [_line(item) for item in valid],
        "advice-dismissed": bool(dismissed),
        "advice-aside": [_line(item) for item in dismissed]}


def last_hours(hours: int) -> str:
    return f"the last {'hour' if hours == 1 else plural(hours, 'hour')}"


def waiting_words(hours: int, least: int) -> str:
    week = "" if least < WEEK_H else " A working week must be among them."
    return (f"No advice yet: {amount(hours)} of {plural(least, 'hour')} "
            f"{'is' if least == 1 else 'are'} measured.{week}")


def nothing_words(hours: int) -> str:
    """Return what no advice means: for the time that was read, since a GPU may be idle for
    longer."""
    return (f"No advice would free 4 GPU-hours a week or more. In {last_hours(hours)}, as far as "
            "measured, no owner left a fifth of their GPU-hours idle, no two GPUs of one owner fit "
            "on one, no board was far too large for its task, no lease was unused for two hours, "
            "and no node was full while another one was half empty.")


def idle_words(tasks: list[Item], indices: dict[str, int]) -> list[Any] | None:
    """Return what is idle at this moment: it is no advice yet, and nobody should think that it was
    not seen."""
    if not tasks:
        return None
    words = [_idle_task(task, indices) for task in tasks[:MOST_IDLE]]
    if len(tasks) > MOST_IDLE:
        words.append(f"{amount(len(tasks) - MOST_IDLE)} more")
    return ["Idle right now, with memory held: ", "; ".join(words), ". ",
            make("a", "Show on the map", href=f"/?filter={quote(WASTED, safe='')}")]


def _idle_task(task: Item, indices: dict[str, int]) -> str:
    gpus = ", ".join(str(indices[gpu["uuid"]]) for gpu in task["gpus"] if gpu["uuid"] in indices)
    time = "" if task["idle_s"] is None else f", for {age(task['idle_s'])}"
    return f"{task['host']} GPU {gpus} ({task['user'] or 'owner unknown'}{time})"


def _line(item: Item) -> Component:
    facts = (("Why", item["reason"]), ("On recorded data", item["past"]), ("Risk", item["risk"]))
    dismissal = item["dismissed"]
    return make("li.advice-one", [
        make("div.advice-hours", [make("strong", amount(item["gpu_hours"])),
                                  make("span", f"{item['unit']} a week")]),
        make("div", [
            make("h2", [item["title"], " ", make("span.pill", item["label"])]),
            make("dl", [make("div", [make("dt", name), make("dd", sentence(text))])
                        for name, text in facts]),
            copyable(item["command"], "the command"),
            make("p.advice-undo", ["Undo: ", make("code", item["undo"])]),
            None if dismissal is None else make(
                "p.advice-why", f"Dismissed by {dismissal['by']}: {dismissal['reason']}"),
            make("p.advice-acts", [_owner(item["owner"]), _button(item)])])],
        data_key=item["id"])


def _owner(owner: str | None) -> Component | None:
    if owner is None:
        return None
    return make("a", f"Tasks of {owner}", href=f"/tasks?filter={quote(f'user:{owner}', safe='')}")


def _button(item: Item) -> Component:
    path = f"advice/{quote(item['id'], safe='')}"
    if item["dismissed"] is not None:
        return make("button.button.small", "Recall", data_form={
            "method": "POST", "path": f"{path}/recall"})
    return make("button.button.small", "Dismiss …", data_form={
        "title": "Dismiss this advice", "lead": [item["title"]], "verb": "Dismiss",
        "fields": [{"name": "reason", "label": "Why", "traits": {
            "required": "", "minlength": "3", "maxlength": "200"}}],
        "method": "POST", "path": f"{path}/dismiss", "body": {"reason": "$reason"}})


PAGE = Page(
    "advice", "Advice", READ_PAGE, frame,
    "What would free GPU-hours, by the measurements of the last days. Nothing is done "
    "automatically: each item has the command, and the one that undoes it.", (), "/advice",
    ("v", "the advice"), reading=Reading(View, answer, what="advice"))
