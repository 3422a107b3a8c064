"""The Tasks page: its controls and the frame of its table; the rows come by the API."""

from dash.development.base_component import Component

from gpudeck.markup import choice, make, region

from .components import TaskTable
from .parts import Page, drawer, filter_box, filter_help, problem

GROUPS = (("job", "job"), ("owner", "owner"), ("none", "nothing"))
FILTER_EXAMPLES = (
    ("user:alice", "tasks of alice only"),
    ("util<5 & mem>50%", "on nearly idle GPUs with memory held"),
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
                "`user:` and `task:` refer to the task itself. Numbers and "
                "`node: model: gpu: state:` refer to its GPUs, as on the Fleet page.",
                "Join with `&` `|` `!` and ( ).")),
            make("div.schedulers", [
                make("a#tasks-slurm.as-link", "Slurm", href="/slurm", hidden=True),
                make("a#tasks-kubernetes.as-link", "Kubernetes", href="/kubernetes",
                     hidden=True)])]),
        make("div.floor", [
            make("section#tasks-stage.tasks-stage", [
                problem("tasks"),
                make("div#tasks-hint.held-order", hidden=True, role="status"),
                TaskTable("tasks-place", group="job")], aria_label="Tasks"),
            drawer("task", "task", region("div#task-body.drawer-body", "Details of the task"),
                   ident="task-drawer")]),
        make("div#tasks-bulk.bulk", hidden=True, role="region", aria_label="Selected tasks"),
    ], hidden=True)


PAGE = Page(
    "tasks", "Tasks", "tasks/tasks.mjs", frame,
    "Every process that uses a GPU. The order is frozen while the pointer or the focus is in the "
    "table, so that rows do not move under it.", (
        ("/", "go to the filter"),
        ("↑  ↓", "next or previous task"),
        ("Home  End", "the first and the last"),
        ("Enter", "open a task or a group"),
        ("Space  x", "add to or remove from the selection"),
        ("n  p  r  e", "notify, pause, resume or end, after a preview"),
        ("Shift + click", "select from the last one to this one"),
        ("Ctrl + click", "add to or remove from the selection"),
        ("Esc", "close, then clear the selection")), "/tasks", ("t", "the tasks"))
