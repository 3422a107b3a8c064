"""The Tasks page: its controls, the table whose rows are live, and the task that is chosen."""

from typing import Annotated, ClassVar, Literal

from dash.development.base_component import Component
from msgspec import Meta

from gpudeck.client.hub import Client
from gpudeck.contract.action_table import ROWS
from gpudeck.markup import choice, make

from .components import TaskColumn, TaskTable
from .parts import Page, filter_box, filter_help, problem
from .reading import Parts, Reading, View
from .task_details import task_answer, task_drawer

EVERY_S = 2.0
GROUPS = (("job", "job"), ("owner", "owner"), ("none", "nothing"))
FILTER_EXAMPLES = (
    ("user:alice", "tasks of alice only"),
    ("util<5 & mem>50%", "on nearly idle GPUs with memory held"),
    ("task:train.py", "with these words in the command"),
    ("node:a100 & !user:root", "on nodes with a100 in their name"),
)
COLUMNS = (
    TaskColumn("command", "Task", "command", "asc",
               "Process id and command line; secrets are removed on the node."),
    TaskColumn("user", "Owner", "user", "asc", "The Unix user that the process runs as."),
    TaskColumn("host", "Node", "host", "asc", "The machine it runs on."),
    TaskColumn("gpus", "GPUs", "gpus", "desc", "Number of GPUs it uses."),
    TaskColumn("memory", "Memory", "mem_used_bytes", "desc",
               "GPU memory held, total over its GPUs."),
    TaskColumn("sm", "SM", "sm_pct", "desc", "Share of time in which its kernels ran, average over "
               "its GPUs; of a job, all its tasks together."),
    TaskColumn("idle", "Idle for", "idle_s", "desc", "For how long all of its GPUs have been under "
               "5 % busy, though it holds memory there."),
    TaskColumn("age", "Age", "started_at", "asc", "Time since the process started."),
    TaskColumn("state", "State", "state", "asc",
               "Running, paused, or ended since the list was sorted."),
    TaskColumn("manager", "Manager", "manager", "asc", "What started it and may restart it: Slurm, "
               "Kubernetes, systemd, a notebook."),
    TaskColumn("job", "Job", "job", "asc",
               "Tasks that are paused and ended together. A dash: a single task."),
)

Text = Annotated[str, Meta(max_length=512)]
GroupKey = Annotated[str, Meta(max_length=1_280)]  # USER/LAUNCH, each as long as a node may send it


class TasksView(View):
    """Choice of rows, their order, the groups that are open, and the task at the side. At first
    jobs, those that hold GPUs and do nothing before others. `shown`: the task whose details are on
    the page."""

    filter: Text = ""
    sort: Literal["idle_s", "command", "user", "host", "gpus", "mem_used_bytes", "sm_pct",
                  "started_at", "state", "manager", "job"] = "idle_s"
    order: Literal["asc", "desc"] = "desc"
    group: Literal["job", "owner", "none"] = "job"
    open: Annotated[tuple[GroupKey, ...], Meta(max_length=100)] = ()
    task: Text = ""
    shown: Text = ""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset(("shown",))


def frame() -> Component:
    return make("div#tasks.tasks-page", [
        make("h1.unseen", "Tasks"),
        make("div.tools", [
            choice("tasks-group", "Group by", GROUPS, data_view="group"),
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
                problem("tasks-list"),
                make("div#tasks-hint.held-order", [
                    make("span#tasks-hint-words", ""), make("button#tasks-apply.as-link", "Apply")],
                    hidden=True, role="status"),
                TaskTable("tasks-place", COLUMNS)], aria_label="Tasks"),
            task_drawer()]),
        make("div#tasks-bulk.bulk", [
            make("strong#tasks-chosen", ""),
            *(make(f"button.button{'.danger' if row.is_kill else ''}", row.label, data_act=row.id)
              for row in ROWS.values() if row.key and not row.is_off),
            make("button#tasks-clear.as-link", "Clear")],
            hidden=True, role="region", aria_label="Selected tasks"),
    ], hidden=True)


def answer(client: Client, view: TasksView, now: float) -> Parts:
    """Return what stands at the side; without a task the page does not ask."""
    if not view.task:
        return {}
    is_new, view.shown = view.shown != view.task, view.task
    return task_answer(client, view.task, is_new, view.zone, now)


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
        ("Esc", "close, then clear the selection")), "/tasks", ("t", "the tasks"),
    reading=Reading(TasksView, answer, EVERY_S, "task"))
