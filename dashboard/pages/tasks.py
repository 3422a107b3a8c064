"""The Tasks page: its controls and the frame of its table; the rows come by the API."""

from dash.development.base_component import Component

from .parts import Page, choice, drawer, filter_box, filter_help, make, problem, region

GROUPS = (("none", "nothing"), ("owner", "owner"), ("job", "job"))
FILTER_EXAMPLES = (
    ("user:alice", "alice's tasks, and nobody else's"),
    ("util<5 & mem>50%", "on a GPU that hardly works and is full"),
    ("task:train.py", "with these words in the command"),
    ("node:a100 & !user:root", "on nodes with a100 in their name"),
)


def frame() -> Component:
    return make("div#tasks.tasks-page", [
        make("h1.unseen", "Tasks"),
        make("div.tools", [
            choice("tasks-group", "Group by", GROUPS),
            filter_box("tasks-", filter_help(
                "tasks-popover", FILTER_EXAMPLES,
                "Here `user:` and `task:` mean the task itself. Numbers, "
                "`node: model: gpu: state:` are those of its GPUs, as on the Fleet page.",
                "Join with `&` `|` `!` and ( )."))]),
        make("div.floor", [
            make("section#tasks-stage.tasks-stage", [
                problem("tasks"),
                make("div#tasks-hint.held-order", hidden=True, role="status"),
                make("div#tasks-place.tasks-place")], aria_label="Tasks"),
            drawer("task", "task", region("div#task-body.drawer-body", "Details of the task"),
                   ident="task-drawer")]),
        make("div#tasks-bulk.bulk", hidden=True, role="region", aria_label="Selected tasks"),
    ], hidden=True)


PAGE = Page(
    "tasks", "Tasks", "tasks/tasks.mjs", frame,
    "Every process that uses a GPU. The order holds while the pointer or the focus is in the "
    "table, so that no row moves under it.", (
        ("/", "go to the filter"),
        ("↑  ↓", "from task to task"),
        ("Home  End", "the first and the last"),
        ("Enter", "open the task, or a group"),
        ("Space  x", "add it to the selection, or take it out"),
        ("n  p  r  e", "notify, pause, resume or end it, after a look at what it would hit"),
        ("Shift + click", "select from the last one to this one"),
        ("Ctrl + click", "add to the selection, or take out"),
        ("Esc", "close, then clear the selection")), "/tasks", ("t", "the tasks"))
