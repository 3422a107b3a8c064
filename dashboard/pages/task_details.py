"""The task that is chosen on the Tasks page: what it is and holds, what stands or falls with it,
and what was done to it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from dash.development.base_component import Component

from gpudeck.client.hub import Client, typed
from gpudeck.contract.action_table import ROWS
from gpudeck.contract.action_views import CommandView
from gpudeck.contract.message_limits import PID_MAX
from gpudeck.errors import CommandError
from gpudeck.markup import make, region
from gpudeck.words.command_lines import short_command

from ..fleet.owner_views import OwnerView
from ..fleet.task_table import group_key, job_key
from ..fleet.views import TaskGpuUseView, TaskView
from ..quotas.views import TaskQuotaList, TaskQuotaView
from .forms import form_button, moment_field, order, text
from .hold_buttons import Hold, hold_line
from .my_work import verb_of
from .my_work_jobs import whole_command
from .parts import drawer, problem
from .pool_tables import Facts, fact_lines
from .reading import Parts, Viewer, viewer
from .words import age, amount, bytes_words, capital, moment, plural, sentence, when, zone_words

MOST_COMMANDS, MOST_MEMBERS = 20, 50
KEEP_S = 4 * 3_600.0  # offered at first
UNKNOWN_MEMORY = "memory unknown"
GONE = "No node reports this task any more."
SIMULATED = "Simulated: it has no process, so it cannot be paused or ended."
STATES = {"sent": "sent to the node", "accepted": "accepted by the node", "acting": "in progress"}
OPEN = frozenset(("requested", "queued", *STATES))
TONES = {"done": ".ok", "refused": ".stale", "expired": ".stale", "unknown": ".stale",
         "not_effective": ".lost", "unkillable": ".lost"}
PLACES = ("state", "acts", "command", "keep", "gpus", "quotas", "members", "facts", "past", "hold")
LOOKS = {"acts": ".task-acts", "keep": ".task-keep"}


@dataclass(frozen=True, slots=True)
class TaskNow:
    """A task as the hub answers it. `others`: of its job and its launch; `hold`: where actions are
    stopped."""

    task: TaskView
    others: Sequence[TaskView]
    quotas: Sequence[TaskQuotaView]
    commands: Sequence[CommandView]
    hold: Hold


def task_drawer() -> Component:
    return drawer("task", "task", problem("tasks"), region(
        "div#task-body.drawer-body", "Details of the task",
        [make(f"div#task-{place}{LOOKS.get(place, '')}") for place in PLACES]), ident="task-drawer")


def task_answer(client: Client, ident: str, is_new: bool, zone: str, now: float) -> Parts:
    """Return what is known of a task. `is_new`: the page shows nothing of it yet."""
    commands = client.commands(state="all", limit=str(MOST_COMMANDS), task=ident)
    tasks = typed(list[TaskView], client.hub.items("tasks", id=ident))
    if not tasks:
        return gone_parts(ident, is_new, commands, zone, now)
    task = tasks[0]
    return task_parts(TaskNow(task, _others(client, task), _quotas(client, task), commands,
                              client.hub.get("hold")), viewer(client), zone, now)


def _quotas(client: Client, task: TaskView) -> list[TaskQuotaView]:
    """Return the quotas that count for it; of a task of another site's hub none are known here."""
    try:
        return typed(TaskQuotaList, client.hub.get(
            f"tasks/{quote(task.id, safe='')}/quotas")).items
    except CommandError:
        return []


def _others(client: Client, task: TaskView) -> list[TaskView]:
    if not task.job_id:
        return []
    opened = [("open", key) for key in {_own_job(task), group_key(
        task.node, task.id, task.job_id, task.user, task.owner.launch)}]
    # One more than are listed, besides itself: it tells that there are more.
    query = urlencode([("group", "job"), ("sort", "pid"), ("limit", MOST_MEMBERS + 2), *opened])
    tasks = typed(list[TaskView], client.hub.items(f"tasks?{query}"))
    return [other for other in tasks if other.id != task.id]


def _own_job(task: TaskView) -> str:
    return job_key(task.node, task.id, task.job_id)


def gone_parts(ident: str, is_new: bool, commands: Sequence[CommandView], zone: str, now: float
               ) -> Parts:
    """Return what is left of a task that has ended: what the page says of it stays, but for what
    will or may still happen to it. Pure."""
    unknown: Parts = {"task-title": "Unknown task", "task-subtitle": ident} if is_new else {}
    return unknown | {"task-state": _state("lost", GONE), "task-acts": None, "task-keep": None,
                      "task-quotas": None, "task-past": _past(commands, zone, now)}


def task_parts(facts: TaskNow, person: Viewer, zone: str, now: float) -> Parts:
    """Return what stands in the drawer. Pure."""
    task = facts.task
    may_act = person.may_change(task.user)
    old = "age unknown" if task.started_at is None else f"{age(now - task.started_at)} old"
    return {
        "task-title": f"Task {task.pid} · {task.user or 'owner unknown'}",
        "task-subtitle": task.host,
        "task-state": _state("ok" if task.state == "running" else "stale", "State unknown"
                             if task.state is None else f"{capital(task.state)}, {old}"),
        "task-acts": _actions(task, may_act),
        "task-command": make(
            "code.task-command", task.command or "command unknown", tabIndex="0",
            title=None if task.command_is == "whole" else
            "For other users' tasks only the program name is shown."),
        "task-keep": _keep(task, may_act, now, zone) or None,
        "task-gpus": _headed("GPUs", "ul.tasks.task-gpus", [_gpu(use) for use in task.gpus]),
        "task-quotas": _headed("Quotas", "ul.task-quota-list", map(_quota_line, facts.quotas)),
        "task-members": members(task, facts.others),
        "task-facts": [make("h3", "Facts"), make("dl.facts", fact_lines(facts_of(task, zone)))],
        "task-past": _past(facts.commands, zone, now),
        "task-hold": [make("h3", "Node"), hold_line(
            task.node, task.host, facts.hold, person, now)]}


def _headed(title: str, tag: str, lines: Iterable[Component]) -> list[Component] | None:
    items = [*lines]
    return [make("h3", title), make(tag, items)] if items else None


def _state(tone: str, words: str) -> Component:
    return make(f"p.drawer-state.{tone}", words, role="status")


def _actions(task: TaskView, may_act: bool) -> list[Component] | str | None:
    if task.pid > PID_MAX:
        return SIMULATED
    return [make(f"button.button{'.danger' if row.is_kill else ''}", row.label, data_key=row.id,
                 data_act=row.id, data_targets=[task.id], disabled=row.id in task.refuses,
                 title=sentence(task.refuses[row.id]) if row.id in task.refuses else None)
            for row in ROWS.values()
            if may_act and row.key and row.suits(task.state, task.permits)] or None


def _keep(task: TaskView, may_act: bool, now: float, zone: str) -> list[Component]:
    keep, path = task.keep, ("tasks", task.id, "keep")
    words = [] if keep is None else [make("p", [
        make("strong", f"Keep until {moment(keep.until, zone)}"),
        f" ({keep.by})" if keep.by else "", f": {keep.because}"])]
    if not may_act:
        return words
    until = datetime.fromtimestamp(now + KEEP_S if keep is None else keep.until, ZoneInfo(zone))
    ask = {"title": "Keep this task", "verb": "Keep", "lead": "Rules leave the task alone as far "
           "as policy allows, and people see the reason before they end it.",
           "fields": [moment_field("until", "Until", until, zone_words(now, zone)),
                      text("because", "Reason", "" if keep is None else keep.because,
                           required="", maxlength="300")],
           } | order("PUT", *path, body={"until": "$until", "because": "$because"})
    stop = [form_button(".button.small", "Stop keeping", order("DELETE", *path))]
    return [*words, form_button(".button.small", "Keep until …" if keep is None else "Change", ask),
            *(stop if keep is not None else [])]


def _gpu(use: TaskGpuUseView) -> Component:
    load = "SM unknown" if use.sm_pct is None else f"SM {amount(use.sm_pct)} %"
    return make("li", [
        make("a", use.uuid if use.place is None else f"GPU {use.place}", title=use.uuid,
             href=f"/?gpu={quote(use.uuid, safe='')}"),
        make("span.figures", f"{bytes_words(use.mem_used_bytes, UNKNOWN_MEMORY)}  ·  {load}")])


def _quota_line(quota: TaskQuotaView) -> Component:
    """Return a line about a quota that counts for the task. `goes`: it would be ended first."""
    ended = f"over: this task {'will' if quota.mode == 'act' else 'would'} be ended"
    pill = [make("span.pill.lost", ended if quota.goes else "over")] if quota.is_over else []
    why = [make("small", quota.why)] if "more specific" in quota.why else []
    return make("li", [
        make("a", quota.quota, href=f"/quotas#{quote(quota.quota, safe='')}"), *pill,
        make("p", [f"{quota.sentence or quota.meaning}.", *why])], title=quota.why)


def members(task: TaskView, others: Sequence[TaskView]) -> list[Component] | None:
    """Return lists of the job's other processes, and of the launch's ranks on other nodes. Pure."""
    first = "first " if len(others) > MOST_MEMBERS else ""
    listed = others[:MOST_MEMBERS]
    own = [other for other in listed if _own_job(other) == _own_job(task)]
    ranks = [other for other in listed if _own_job(other) != _own_job(task)]
    parts = [_headed(f"{title} ({first}{plural(len(group), 'task')}){more}", "ul.member-list", [
        _member(other, task) for other in group]) or [] for title, group, more in (
            ("Processes of the same job", own, ""), ("Other ranks of its launch", ranks,
             ": actions on this task do not affect them"))]
    return [*parts[0], *parts[1]] or None


def _member(other: TaskView, task: TaskView) -> Component:
    place = "" if other.node == task.node else f" on {other.host}"
    return make("li", [
        make("button.as-link", f"{other.pid}{place}", data_set={"task": other.id}),
        make("code", short_command(other.command), title=whole_command(other.command))],
        data_key=other.id)


def facts_of(task: TaskView, zone: str) -> Facts:
    """Return the facts about a task; details of its owner that are not known are left out. Pure."""
    past = "" if task.user is None else urlencode({"owner": f"user:{task.user}", "last": "24h"})
    return [
        ("Id", task.id), ("Pid", str(task.pid)),
        ("Started", "not known" if task.started_at is None else moment(task.started_at, zone)),
        ("Memory", bytes_words(task.mem_used_bytes, UNKNOWN_MEMORY)),
        ("Manager", task.manager or "none"), *_owner_facts(task.owner),
        ("Kind", "not known" if task.kind is None else task.kind.replace("_", " ")),
        ("Job", task.job_id or "not known"),
        *([("Owner", make("a", f"{task.user}: history", href=f"/history?{past}",
                          title="Usage over time"))] if past else [])]


def _owner_facts(owner: OwnerView) -> Facts:
    container = owner.container and owner.container[:12]
    if container and owner.container_name:
        container = f"{owner.container_name} ({container})"
    pod = f"{owner.namespace}/{owner.pod}" if owner.namespace and owner.pod else owner.pod
    return [(label, str(value)) for label, value in (
        ("Notebook", owner.notebook), ("Slurm job", owner.slurm_job), ("Pod", pod),
        ("Container", container or owner.container_name), ("Unit", owner.unit),
        ("Launch", owner.launch), ("Rank", owner.rank)) if value is not None]


def _past(commands: Sequence[CommandView], zone: str, now: float) -> list[Component] | None:
    return _headed("Actions on this task", "ul.past", [make("li", [
        make("div.act-head", [
            make("strong", verb_of(command.action)),
            make(f"span.pill{TONES.get(command.state, '')}",
                 STATES.get(command.state, command.state.replace("_", " ")))]),
        make("p", command.sentence or command.step),
        make("small", _asker(command, now), title=moment(command.requested_at, zone))],
        data_command=command.id, data_key=command.id) for command in commands])


def _asker(command: CommandView, now: float) -> str:
    at = "now" if command.state in OPEN else when(command.requested_at, now)
    reason = f": “{command.reason}”" if command.reason else ""
    return f"{command.by.name or 'somebody'}, {at}{reason}"
