"""What Slurm has allocated beside what its jobs use, as the API and the page show it. Pure.

What an agent says of Slurm is believed only of a node that the hub's settings name: it speaks of
other nodes than itself.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct

from gpudeck.slurm import HOLDING, SlurmJob, SlurmNode, SlurmNow, SlurmRights, SlurmShare

from ..fleet.fleet import Fleet, Node
from ..fleet.visibility import VisibleFleet

STALE_AFTER_S = 90.0
S = TypeVar("S")
_NAMED = re.compile(r"[0-9]{1,10}(_([0-9]{1,10}|\[[0-9,:-]{1,100}\]))?")
_FITTING = {"RUNNING": ("suspend", "requeue"), "SUSPENDED": ("continue", "requeue")}
NOT_WATCHED = "no live agent on {}"
NOT_READ = ("the agent on {} does not see which Slurm job a task belongs to: grant it owners")


class SlurmJobView(Struct):
    """`gpus`: allocated, or asked for while it waits. `without_process`: allocated GPUs that no
    process of the job uses. None: not known; `unknown` says why. `may`: what fits its state."""

    id: str
    number: int
    submitted_at: float
    state: str
    user: str | None
    name: str
    reason: str
    partition: str | None
    started_at: float | None
    limit_s: float | None
    gpus: int | None
    used: int | None
    without_process: int | None
    unknown: str
    nodes: list[str]
    may: list[str]


class SlurmNodeView(Struct):
    """`host`: as gpudeck calls it; None: it has no agent. GPUs None: Slurm does not say."""

    name: str
    host: str | None
    states: list[str]
    gpus: int | None
    allocated: int | None
    partitions: str
    reason: str
    may: list[str]


class SlurmClusterView(Struct):
    """`node`: the agent that speaks for it, and the target of actions on it. `rights`: what its
    account may do. `hidden`: what that account may not see. `actions`: what its node permits."""

    node: str
    host: str
    cluster: str
    version: str
    account: str
    rights: SlurmRights
    hidden: str
    trouble: str
    taken_at: float
    is_stale: bool
    actions: list[str]
    left_out: int
    jobs: list[SlurmJobView]
    nodes: list[SlurmNodeView]


class SlurmList(Struct):
    """`ignored`: hosts whose agents speak for Slurm and that the setting slurm_nodes does not
    name."""

    items: list[SlurmClusterView]
    ignored: list[str]


def slurm_list(fleet: Fleet, visible: VisibleFleet, named: Collection[str], mono: float
               ) -> SlurmList:
    believed, ignored = speakers(visible.nodes(fleet), named, lambda node: node.slurm)
    hosts = by_host(visible.ours(fleet).nodes(fleet))
    return SlurmList([_cluster(visible, node, said, hosts, mono)
                      for node, said in believed], ignored)


def speakers(nodes: Iterable[Node], named: Collection[str], said: Callable[[Node], S | None]
             ) -> tuple[list[tuple[Node, S]], list[str]]:
    """Who speaks for a scheduler: those that may, with what they say, and hosts of the others."""
    found = [(node, told) for node in nodes
             if (told := said(node)) is not None and not node.is_dismissed]
    return ([(node, told) for node, told in found if node.hello.host in named],
            sorted(node.hello.host for node, _ in found if node.hello.host not in named))


def by_host(nodes: Collection[Node]) -> dict[str, Node | None]:
    """By the first part of the name; None: two have the same."""
    found: dict[str, Node | None] = {}
    for node in nodes:
        if not node.is_dismissed and not node.is_imported:
            short = node.hello.host.partition(".")[0]
            found[short] = None if short in found else node
    return found


def by_slurm_name(said: SlurmNow, hosts: Mapping[str, Node | None]) -> dict[str, Node | None]:
    return {each.name: hosts.get(each.host.partition(".")[0]) for each in said.nodes}


def _cluster(visible: VisibleFleet, speaker: Node, said: SlurmNow,
             hosts: Mapping[str, Node | None], mono: float) -> SlurmClusterView:
    at = by_slurm_name(said, hosts)
    jobs = [_job(visible, each, at) for each in said.jobs if _is_seen(visible, each, at)]
    jobs.sort(key=lambda job: (job.state not in HOLDING, -(job.without_process or 0),
                               job.submitted_at, job.number))
    return SlurmClusterView(
        speaker.hello.node_id, speaker.hello.host, said.cluster, said.version, said.account,
        said.rights, said.hidden, said.trouble, said.taken_at,
        not speaker.connected or mono - speaker.slurm_mono > STALE_AFTER_S,
        [action for action in speaker.hello.actions if action.startswith("slurm_")],
        said.left_out, jobs,
        [_node(each, at[each.name]) for each in said.nodes
         if visible.is_whole or at[each.name] is not None])


def _is_seen(visible: VisibleFleet, job: SlurmJob, at: Mapping[str, Node | None]) -> bool:
    return (visible.is_whole or visible.reads.of_user(job.user)
            or (bool(job.nodes) and all(at.get(each.node) is not None for each in job.nodes)))


def _job(visible: VisibleFleet, job: SlurmJob, at: Mapping[str, Node | None]) -> SlurmJobView:
    used, unknown = _used(job, at) if job.holds_gpus else (None, "")
    left = None if used is None or job.gpus is None else max(job.gpus - used, 0)
    return SlurmJobView(
        job.id, job.number, job.submitted_at, job.state, job.user,
        job.name if visible.reads.of_user(job.user) else "", job.reason, job.partition,
        job.started_at, job.limit_s, job.gpus, used, left, unknown,
        [each.node for each in job.nodes], _fitting(job))


def _used(job: SlurmJob, at: Mapping[str, Node | None]) -> tuple[int | None, str]:
    """GPUs that its processes use, on all of its nodes; a part of them would be a wrong number."""
    found = 0
    for share in job.nodes:
        used, unknown = used_of_share(job, share, at.get(share.node))
        if used is None:
            return None, unknown
        found += used
    return (found, "") if job.nodes else (None, "Slurm does not say on which nodes")


def used_of_share(job: SlurmJob, share: SlurmShare, node: Node | None) -> tuple[int | None, str]:
    """On one of its nodes."""
    if node is None or node.state != "live" or not node.are_tasks_known:
        return None, NOT_WATCHED.format(share.node)
    own = {task_id for task_id, task in node.tasks.items() if task.slurm_job == str(job.number)}
    used = len({use.gpu for use in node.uses if use.task_id in own})
    # A task without a job may be one of this job's that the agent cannot read.
    unread = any(task.slurm_job is None and task.user in (None, job.user)
                 for task in node.tasks.values())
    if unread and (share.gpus is None or used < share.gpus):
        return None, NOT_READ.format(share.node)
    return used, ""


def _fitting(job: SlurmJob) -> list[str]:
    if job.is_het or _NAMED.fullmatch(job.id) is None:
        return []
    if job.holds_gpus:
        return [*_FITTING.get(job.state, ()), "cancel"]
    return ["cancel", "release" if job.is_held else "hold"] if job.state == "PENDING" else []


def _node(node: SlurmNode, known: Node | None) -> SlurmNodeView:
    is_out = node.is_draining or bool({"DOWN", "FAIL", "FAILING"} & {*node.states})
    return SlurmNodeView(node.name, None if known is None else known.hello.host,
                         list(node.states), node.gpus, node.allocated, node.partitions,
                         node.reason, ["resume"] if is_out else ["drain"])
