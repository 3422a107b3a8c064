"""GPUs that Slurm has allocated beside those that its jobs use, as the API and the page show them.
Pure.

An agent's report on Slurm is believed only of a node that the hub's settings name: it speaks of
other nodes than itself.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct

from gpudeck.contract.slurm import HOLDING, SlurmJob, SlurmNode, SlurmNow, SlurmRights, SlurmShare

from ..fleet.fleet import Fleet, Node
from ..fleet.visibility import VisibleFleet

STALE_AFTER_S = 90.0
S = TypeVar("S")
_NAMED = re.compile(r"[0-9]{1,10}(_([0-9]{1,10}|\[[0-9,:-]{1,100}\]))?")
_FITTING = {"RUNNING": ("suspend", "requeue"), "SUSPENDED": ("continue", "requeue")}
NOT_WATCHED = "no live agent on {}"
NOT_READ = ("the agent on {} does not see which Slurm job a task belongs to: grant it owners")


class SlurmJobView(Struct):
    """A job. `gpus`: allocated, or requested while it waits. `without_process`: allocated GPUs that
    no process of the job uses. None: not known; `unknown` says why. `may`: actions that fit its
    state."""

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
    """A node. `host`: its name in gpudeck; None: it has no agent. GPUs None: Slurm does not say."""

    name: str
    host: str | None
    states: list[str]
    gpus: int | None
    allocated: int | None
    partitions: str
    reason: str
    may: list[str]


class SlurmClusterView(Struct):
    """A cluster. `node`: the agent that speaks for it, and the target of actions on it. `rights`:
    what its account may do. `hidden`: what that account may not see. `actions`: what its node
    permits."""

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
    """The clusters. `ignored`: hosts whose agents speak for Slurm and that the setting slurm_nodes
    does not name."""

    items: list[SlurmClusterView]
    ignored: list[str]


def slurm_list(fleet: Fleet, visible: VisibleFleet, trusted_hosts: Collection[str], mono: float
               ) -> SlurmList:
    believed, ignored = speakers(visible.nodes(fleet), trusted_hosts, lambda node: node.slurm)
    hosts = by_host(visible.ours(fleet).nodes(fleet))
    return SlurmList([_cluster(visible, node, report, hosts, mono)
                      for node, report in believed], ignored)


def speakers(nodes: Iterable[Node], trusted_hosts: Collection[str],
             report_of: Callable[[Node], S | None]) -> tuple[list[tuple[Node, S]], list[str]]:
    """Return the nodes that may speak for a scheduler, with their reports, and the hosts of the
    others."""
    speaking = [(node, report) for node in nodes
                if (report := report_of(node)) is not None and not node.is_dismissed]
    return ([(node, report) for node, report in speaking if node.hello.host in trusted_hosts],
            sorted(node.hello.host for node, _ in speaking if node.hello.host not in trusted_hosts))


def by_host(nodes: Collection[Node]) -> dict[str, Node | None]:
    """Index nodes by the first part of their name; None: two have the same."""
    nodes_by_host: dict[str, Node | None] = {}
    for node in nodes:
        if not node.is_dismissed and not node.is_imported:
            short = node.hello.host.partition(".")[0]
            nodes_by_host[short] = None if short in nodes_by_host else node
    return nodes_by_host


def by_slurm_name(report: SlurmNow, hosts: Mapping[str, Node | None]) -> dict[str, Node | None]:
    return {node.name: hosts.get(node.host.partition(".")[0]) for node in report.nodes}


def _cluster(visible: VisibleFleet, speaker: Node, report: SlurmNow,
             hosts: Mapping[str, Node | None], mono: float) -> SlurmClusterView:
    at = by_slurm_name(report, hosts)
    jobs = [_job(visible, job, at) for job in report.jobs if _is_seen(visible, job, at)]
    jobs.sort(key=lambda job: (job.state not in HOLDING, -(job.without_process or 0),
                               job.submitted_at, job.number))
    return SlurmClusterView(
        speaker.hello.node_id, speaker.hello.host, report.cluster, report.version, report.account,
        report.rights, report.hidden, report.trouble, report.taken_at,
        not speaker.connected or mono - speaker.slurm_mono > STALE_AFTER_S,
        [action for action in speaker.permits if action.startswith("slurm_")],
        report.left_out, jobs,
        [_node(listed, at[listed.name]) for listed in report.nodes
         if visible.is_whole or at[listed.name] is not None])


def _is_seen(visible: VisibleFleet, job: SlurmJob, at: Mapping[str, Node | None]) -> bool:
    return (visible.is_whole or visible.reads.of_user(job.user)
            or (bool(job.nodes) and all(at.get(share.node) is not None for share in job.nodes)))


def _job(visible: VisibleFleet, job: SlurmJob, at: Mapping[str, Node | None]) -> SlurmJobView:
    in_use, unknown = _gpus_in_use(job, at) if job.holds_gpus else (None, "")
    unused = None if in_use is None or job.gpus is None else max(job.gpus - in_use, 0)
    return SlurmJobView(
        job.id, job.number, job.submitted_at, job.state, job.user,
        job.name if visible.reads.of_user(job.user) else "", job.reason, job.partition,
        job.started_at, job.limit_s, job.gpus, in_use, unused, unknown,
        [share.node for share in job.nodes], _fitting(job))


def _gpus_in_use(job: SlurmJob, at: Mapping[str, Node | None]) -> tuple[int | None, str]:
    """Return how many GPUs its processes use, on all of its nodes; a part of them would be a wrong
    number."""
    total = 0
    for share in job.nodes:
        in_use, unknown = used_of_share(job, share, at.get(share.node))
        if in_use is None:
            return None, unknown
        total += in_use
    return (total, "") if job.nodes else (None, "Slurm does not say on which nodes")


def used_of_share(job: SlurmJob, share: SlurmShare, node: Node | None) -> tuple[int | None, str]:
    """Return how many GPUs the job uses on one of its nodes, or why that is not known."""
    if node is None or node.state != "live" or not node.are_tasks_known:
        return None, NOT_WATCHED.format(share.node)
    own = {task_id for task_id, task in node.tasks.items() if task.slurm_job == str(job.number)}
    in_use = len({use.gpu for use in node.uses if use.task_id in own})
    # A task without a job may be one of this job's that the agent cannot read.
    unread = any(task.slurm_job is None and task.user in (None, job.user)
                 for task in node.tasks.values())
    if unread and (share.gpus is None or in_use < share.gpus):
        return None, NOT_READ.format(share.node)
    return in_use, ""


def _fitting(job: SlurmJob) -> list[str]:
    if job.is_het or _NAMED.fullmatch(job.id) is None:
        return []
    if job.holds_gpus:
        return [*_FITTING.get(job.state, ()), "cancel"]
    return ["cancel", "release" if job.is_held else "hold"] if job.state == "PENDING" else []


def _node(node: SlurmNode, agent: Node | None) -> SlurmNodeView:
    is_out = node.is_draining or bool({"DOWN", "FAIL", "FAILING"} & {*node.states})
    return SlurmNodeView(node.name, None if agent is None else agent.hello.host,
                         list(node.states), node.gpus, node.allocated, node.partitions,
                         node.reason, ["resume"] if is_out else ["drain"])
