"""Present load of a node's host, as the API shows it. Pure."""

import msgspec
import numpy as np

from gpudeck.contract.collectives import CollectiveRank
from gpudeck.contract.hosts import HOST_KEYS, HostSample
from gpudeck.measures.metrics import Absence

from .fleet import Fleet, Node


class HostLoadView(msgspec.Struct):
    """`numbers`: by key, as docs/metrics.md has them; `missing`: why one is not there."""

    age_s: float
    numbers: dict[str, float]
    missing: dict[str, str]


class HostUseView(msgspec.Struct):
    """Host resources used by a task and its child processes."""

    cpu_pct: float | None  # of one processor
    mem_bytes: float | None
    read_bytes_per_s: float | None
    write_bytes_per_s: float | None
    blocked: float | None  # threads that wait for a disk and cannot be interrupted


class CheckpointsView(msgspec.Struct):
    """Rhythm of a task that writes checkpoints at regular intervals, while its GPUs rest. Times
    are the node's."""

    last_at: float  # the end of the last one
    every_s: float
    next_at: float  # about
    seen: int  # how many of the last ones that rests on


def checkpoints_of(_fleet: Fleet, node: Node, mono: float) -> dict[str, CheckpointsView]:
    """Return checkpoint rhythms by task."""
    sample = node.host_now(mono)
    if sample is None or sample.checkpoints is msgspec.UNSET:
        return {}
    return {rhythm.task_id: CheckpointsView(
        rhythm.last_at, rhythm.every_s, rhythm.last_at + rhythm.every_s, rhythm.seen)
        for rhythm in sample.checkpoints}


class CollectiveRankView(msgspec.Struct):
    """A rank as NCCL names it: `pid` as its own container has it, `gpu` by NVML's number there."""

    rank: int
    host: str
    pid: int | None
    gpu: int | None


class CollectivesView(msgspec.Struct):
    """A communicator of a job whose ranks launch no collectives any more. `trouble`: why NCCL could
    not be asked; "": it could. `behind` have launched the fewest, `least`; `ahead` ranks have
    launched up to `most`. `missing` do not answer. `is_mixed`: as many each, but not the same."""

    trouble: str
    communicator: str
    size: int
    still_s: float
    ahead: int
    least: int
    most: int
    behind: list[CollectiveRankView]
    behind_count: int
    missing: list[CollectiveRankView]
    missing_count: int
    is_mixed: bool


def collectives_of(_fleet: Fleet, node: Node, mono: float) -> dict[str, CollectivesView]:
    """Return what NCCL says of jobs that look stuck, by the task that stands for the job."""
    sample = node.host_now(mono)
    if sample is None or sample.collectives is msgspec.UNSET:
        return {}
    return {one.task_id: CollectivesView(
        one.trouble, one.communicator, one.size, one.still_s, one.ahead, one.least, one.most,
        _rank_views(one.behind), one.behind_count, _rank_views(one.missing), one.missing_count,
        one.is_mixed) for one in sample.collectives}


def _rank_views(ranks: tuple[CollectiveRank, ...]) -> list[CollectiveRankView]:
    return [CollectiveRankView(rank.rank, rank.host, rank.pid, rank.gpu) for rank in ranks]


def host_load(node: Node, mono: float) -> HostLoadView | None:
    """Return the host's load; None: it does not say, or said it too long ago."""
    sample = node.host_now(mono)
    if sample is None:
        return None
    numbers = {key: value for key in HOST_KEYS if (value := sample.number(key)) is not None}
    return HostLoadView(max(0.0, mono - node.host_mono), numbers,
                        {key: sample.missing.get(key, "unknown") for key in HOST_KEYS
                         if key not in numbers})


def host_uses(node: Node, mono: float) -> dict[str, HostUseView]:
    """Return host resources by task."""
    sample: HostSample | None = node.host_now(mono)
    return {} if sample is None else {
        task.task_id: HostUseView(task.cpu_pct, task.mem_bytes, task.read_bytes_per_s,
                                  task.write_bytes_per_s, task.blocked) for task in sample.tasks}


class ServingView(msgspec.Struct):
    """Numbers of a task that serves models; null: not reported by its engine."""

    engine: str
    trouble: str  # why nothing could be read; "": it could
    prompt_tokens_per_s: float | None
    generated_tokens_per_s: float | None
    running: float | None  # requests
    waiting: float | None
    cache_pct: float | None
    first_token_s: float | None
    token_s: float | None
    request_s: float | None
    # Of the GPUs of its job now, over the tokens that it generates now; null: unknown, no tokens,
    # or another job is on one of them.
    joules_per_million_tokens: float | None


def serving_of(fleet: Fleet, node: Node, mono: float) -> dict[str, ServingView]:
    """Return the numbers by the task that stands for the server's job."""
    sample = node.host_now(mono)
    if sample is None or not sample.serving:
        return {}
    power = fleet.column("power_w", mono)
    views = {}
    for server in sample.serving:
        watts = _watts(fleet, node, server.task_id, power.values, power.absent)
        rate = server.generated_tokens_per_s
        views[server.task_id] = ServingView(
            server.engine, server.trouble, server.prompt_tokens_per_s, rate, server.running,
            server.waiting, server.cache_pct, server.first_token_s, server.token_s,
            server.request_s,
            None if watts is None or rate is None or rate <= 0 else 1e6 * watts / rate)
    return views


def _watts(fleet: Fleet, node: Node, task_id: str, values: "np.ndarray", absent: "np.ndarray"
           ) -> float | None:
    """Return the watts of the GPUs of its job; None if they are shared, or one is not known."""
    if task_id not in node.tasks or node.listing is None:
        return None
    job = node.tasks[task_id].job_id or task_id
    order = node.listing.order
    on: dict[int, set[str]] = {}
    for use in node.uses:
        if use.task_id in node.tasks and use.gpu < len(order):
            on.setdefault(order[use.gpu], set()).add(
                node.tasks[use.task_id].job_id or use.task_id)
    mine = [slot for slot, jobs in on.items() if job in jobs]
    if not mine or any(len(on[slot]) > 1 or absent[slot] != Absence.PRESENT for slot in mine):
        return None
    return float(sum(values[slot] for slot in mine))
