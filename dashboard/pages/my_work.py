"""The My work page: one's own jobs, what was done to them, one's leases and place in the queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec
from dash.development.base_component import Component

from gpudeck.client.hub import Client, typed
from gpudeck.contract.action_table import ROWS
from gpudeck.contract.action_views import CommandView
from gpudeck.errors import CommandError
from gpudeck.markup import make

from ..access.policy import Role
from ..fleet.task_list import TaskGroup, TaskList
from ..history.views import UsageItem
from ..jobs.views import FindingList, FindingView
from ..pool.views import ClaimView, LeaseView, PoolNodeView, PoolView
from .item_lists import Item
from .my_work_jobs import IDLE_FROM_S, job_table, way_on
from .parts import READ_PAGE, Page, copyable, problem
from .pool_orders import offers_request, request
from .pool_tables import PoolTables
from .pool_words import free_of, gpus_of
from .quota_cards import OVER, use_bar, use_words
from .reading import Parts, Reading, View, Viewer, viewer
from .reports_table import natural
from .words import age, amount, capital, plural, when

EVERY_S = 5.0
MINUTE_S = 60.0
DAY_S = 86_400.0
MOST_DONE = 5


class Minute(msgspec.Struct):
    """What changes by the minute, or is dear to ask: the usage of seven days, findings, what others
    did, and balances of quotas."""

    at: float
    held_s: float
    idle_s: float
    findings: list[FindingView]
    unchecked: int
    commands: list[CommandView]
    quotas: list[Item]


class MyWorkView(View):
    """View of My work. `minute`: what was asked within the last minute, as JSON, so that it is not
    asked each time; the browser gives it back."""

    minute: str = ""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset(("minute",))


@dataclass(frozen=True, slots=True)
class WorkNow:
    """The work of one person as the hub answered it. `commands`: what others did to it, the newest
    first; `quotas`: balances."""

    person: Viewer
    jobs: Sequence[TaskGroup]
    pool: PoolView
    nodes: Sequence[PoolNodeView]
    leases: Sequence[LeaseView]
    claims: Sequence[ClaimView]
    commands: Sequence[CommandView]
    quotas: Sequence[Item]


def frame() -> Component:
    return make("div#my-work.my-work", [
        make("header.my-work-head", [
            make("div", [make("h1", "My work"), make("p#my-work-words", "", role="status")]),
            make("button#my-work-ask.button.first", "Request GPUs …", hidden=True)]),
        problem("my-work"),
        make("div#my-work-none.my-work-none", hidden=True),
        make("div#my-work-there", [
            make("ul#my-work-done.my-work-done", hidden=True, aria_label="Actions on your work"),
            make("ul#my-work-figures.my-work-figures"),
            _section("jobs", "Jobs"),
            _section("quotas", "Quotas"),
            # Leases come and go while one reads: nothing is placed below them, as it would move.
            make("div.my-work-columns", [
                _section("leases", "Leases"), _section("claims", "In the queue")])], hidden=True)],
        hidden=True, data_unsettled="")


def _section(key: str, title: str) -> Component:
    return make(f"section#my-work-{key}-section.my-work-section", [
        make(f"h2#my-work-{key}-title", title), make(f"div#my-work-{key}")],
        aria_labelledby=f"my-work-{key}-title")


def answer(client: Client, view: MyWorkView, now: float) -> Parts:
    person = viewer(client)
    if not person.unix_names:  # everybody's jobs would come as their own
        return {"my-work-none": _unbound(person.name), "my-work-there": False,
                "my-work-ask": False, "my-work-words": ""}
    minute = minute_of(view.minute, now) or _minute(client, person, now)
    view.minute = msgspec.json.encode(minute).decode()
    return parts_of(_work(client, person, minute), minute, view.zone, now)


def minute_of(text: str, now: float) -> Minute | None:
    """Return what the browser has from before, unless it is older than a minute. Pure."""
    try:
        minute = msgspec.json.decode(text, type=Minute)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return minute if 0 <= now - minute.at < MINUTE_S else None


def _minute(client: Client, person: Viewer, now: float) -> Minute:
    names = person.unix_names
    start = str(int(now - 7 * DAY_S))
    usage = [item for name in names for item in typed(list[UsageItem], client.usage(
        by="user", of=name, bucket="3600", start=start))]
    lists = [typed(FindingList, client.hub.get("findings", user=name)) for name in names]
    return Minute(now, sum(item.gpu_s for item in usage), sum(item.idle_s for item in usage),
                  [finding for one in lists for finding in one.items],
                  sum(one.unchecked for one in lists), _commands(client, person, now),
                  [balance for name in names for balance in client.hub.get(
                      f"owners/{quote(name, safe='')}/quotas")["items"]])


def _work(client: Client, person: Viewer, minute: Minute) -> WorkNow:
    hub, names = client.hub, person.unix_names
    mine = " | ".join(f'user:"{name}"' for name in names)
    tasks = typed(TaskList, hub.get("tasks", limit="1", group="job", sort="idle_s", order="desc",
                                    filter=mine))
    pool = typed(PoolView, hub.get("pool"))
    leases = [lease for lease in typed(list[LeaseView], client.leases()) if lease.owner in names]
    claims = [claim for claim in typed(list[ClaimView], client.claims()) if claim.owner in names]
    nodes = typed(list[PoolNodeView], hub.all("pool/nodes")) if leases or pool.nodes else []
    return WorkNow(person, tasks.groups or [], pool, nodes, leases, claims, minute.commands,
                   minute.quotas)


def _commands(client: Client, person: Viewer, now: float) -> list[CommandView]:
    since = str(int(now - 3 * DAY_S))
    try:
        commands = [command for name in person.unix_names
                    for command in client.commands(limit="50", owner=name, since=since)]
    except CommandError:  # a list that is missing hides nothing else
        return []
    by_others = [command for command in commands if command.by.name != person.name]
    return sorted(by_others, key=lambda command: command.requested_at, reverse=True)[:MOST_DONE]


def parts_of(work: WorkNow, minute: Minute, zone: str, now: float) -> Parts:
    """Return the parts of the page. Pure."""
    person, is_there = work.person, work.pool.is_on and work.pool.nodes > 0
    tables = PoolTables(person, gpus_of(work.nodes), now, zone)
    hosts = sorted((node.host for node in work.nodes), key=natural)
    ask = make("button#my-work-ask.button.first", "Request GPUs …", data_shortcut="n",
               data_form=request(work.pool.models, hosts, person, zone, now))
    return {
        "my-work-none": None, "my-work-there": True,
        "my-work-ask": ask if offers_request(person, is_there) else False,
        "my-work-words": summary(work.jobs, minute, now),
        "my-work-done": _done(work, now) or None,
        "my-work-figures": _figures(work, minute, is_there),
        "my-work-jobs": job_table(work.jobs, minute.findings, person.may(Role.USER), now),
        "my-work-quotas-section": bool(work.quotas), "my-work-quotas": _quotas(work.quotas),
        "my-work-leases-section": is_there or bool(work.leases),
        "my-work-leases": tables.leases(work.leases, "Your leases", "You hold no lease."),
        "my-work-claims-section": is_there or bool(work.claims),
        "my-work-claims": tables.waiting(work.claims, "Your claims in the queue",
                                         "You are not waiting for GPUs.")}


def _unbound(name: str) -> list[Component]:
    return [
        make("h2", "Your account has no Unix name"),
        make("p", "A task belongs to the Unix user that it runs as. gpudeck shows yours here as "
             "soon as an admin has given your account that name, in Settings under Users, or on "
             "the hub's machine:"),
        copyable(f"gpudeck user set {name} --unix-name NAME", "the line"),
        make("p", "Who signs in by the site's provider has the name that the provider gives, and "
             "needs none of this.")]


def summary(jobs: Sequence[TaskGroup], minute: Minute, now: float) -> str:
    """Return how many jobs there are, and what is wrong with them."""
    idle = sum((job.idle_s or 0.0) >= IDLE_FROM_S and not job.suspended for job in jobs)
    oldest = min((job.started_at for job in jobs if job.started_at is not None), default=None)
    gpus = plural(sum(job.gpus for job in jobs), "GPU")
    return " · ".join(filter(None, (
        f"{plural(len(jobs), 'job')} on {gpus}" if jobs else "No job of yours runs",
        "" if oldest is None else f"the oldest for {age(now - oldest)}",
        f"{amount(idle)} idle" if idle else "",
        plural(len(minute.findings), "finding") if minute.findings else "",
        f"{plural(minute.unchecked, 'job')} not checked for findings" if minute.unchecked else "")))


def _figures(work: WorkNow, minute: Minute, is_there: bool) -> list[Component]:
    idle = [(f"{amount(100 * minute.idle_s / minute.held_s)} %", "of them idle",
             "Minutes in which the GPU's utilization stayed at 5 % or less.")
            ] if minute.held_s else []
    figures = [
        (*_gpus(sum(job.gpus for job in work.jobs), "in use by you"), None),
        (amount(minute.held_s / 3_600, 1), "GPU-hours in 7 days",
         "Time in which a task of yours was on a GPU, as reports count it."),
        *idle,
        *([(*_gpus(free_of(work.pool.models), "free in the pool"), None)] if is_there else [])]
    return [make("li", [make("strong", value), f" {words}"], title=title)
            for value, words, title in figures]


def _gpus(count: int, words: str) -> tuple[str, str]:
    return amount(count), f"{'GPU' if count == 1 else 'GPUs'} {words}"


def _done(work: WorkNow, now: float) -> list[Component]:
    """Return what others did to this person's work; for what is still paused or suspended, the way
    on."""
    lines = []
    for command in work.commands:
        result = "done" if command.state == "done" else command.sentence or command.state
        reason = f": “{command.reason}”" if command.reason else ""
        lines.append(make("li", [
            make("strong", f"{verb_of(command.action)}: {result}"),
            f" by {command.by.name or 'somebody'} on {command.host}, "
            f"{when(command.requested_at, now)}{reason}",
            *_resume(work, command)], data_key=command.id))
    return lines


def _resume(work: WorkNow, command: CommandView) -> list[Component]:
    tasks = {*command.task_ids, command.task_id}
    job = next((job for job in work.jobs if not tasks.isdisjoint(job.act_on)), None)
    if job is None or command.state != "done" or not work.person.may(Role.USER):
        return []
    way = way_on(job.paused, job.suspended)
    if way != {"pause": "resume", "suspend": "restore"}.get(command.action):
        return []
    return [make("button.button.small", f"{capital(way)} …", data_act=way,
                 data_targets=[*job.act_on])]


def verb_of(action: str) -> str:
    rows: dict[Any, Any] = {**ROWS}
    return str(rows[action].label) if action in rows else action


def _quotas(balances: Sequence[Item]) -> Component:
    """Return a line for each; where a person has several Unix names, it says which."""
    names = {balance["holder"] for balance in balances}

    def name(balance: Item) -> str:
        quota, holder = balance["quota"], balance["holder"]
        return f"{quota} ({holder})" if len(names) > 1 else str(quota)

    return make("ul.my-work-quotas", [make("li", [
        make("a", name(balance), href=f"/quotas#{quote(balance['quota'], safe='')}"),
        make("span.numbers", [use_words(balance), OVER] if balance["is_over"]
             else use_words(balance)), use_bar(balance)],
        data_key=f"{balance['quota']} {balance['limit']} {balance['holder']}")
        for balance in balances])


PAGE = Page(
    "my-work", "My work", READ_PAGE, frame,
    "Your jobs with what they use now and what is wrong with them, the idle ones first; what was "
    "done to them by others; your leases, your place in the queue, your quotas, and the GPU-hours "
    "of your last seven days.", (("n", "request GPUs"),), "/work", ("m", "my work"),
    reading=Reading(MyWorkView, answer, EVERY_S, events=("lease", "claim")))
