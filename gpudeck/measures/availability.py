"""Availability of a GPU, or the one reason why it is not available. Pure.

All code that gives out, counts or shows free GPUs asks here: the pools of node and hub, filters,
pages, commands and metrics. The checks are written so that they take one GPU or columns of many.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpudeck.measures.metrics import HELD_AT_LEAST_BYTES, IDLE_AT_MOST_PCT

Reason = Literal["split", "lost", "error", "stale", "no_reading", "maintenance", "out_of_service",
                 "row_remap", "managed", "paused", "task", "leased", "memory", "busy", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConditions:
    """Conditions of one GPU, or columns of many. `is_used`: by tasks that count (`is_use`) and run
    without a lease; `is_paused`: all of them. `peak_pct`: of its utilization. NaN: not known.
    `is_unread`: tasks, memory or utilization are not known, though this GPU could report them.
    `is_unheard`: its hub has had no reading of it, and its node reports nothing against it."""

    is_split: Any = False
    is_lost: Any = False
    is_error: Any = False
    is_stale: Any = False
    is_unheard: Any = False
    in_maintenance: Any = False
    is_out_of_service: Any = False
    waits_for_remap: Any = False
    is_managed: Any = False
    is_used: Any = False
    is_paused: Any = False
    is_leased: Any = False
    mem_used_bytes: Any = float("nan")
    peak_pct: Any = float("nan")
    is_unread: Any = False


# The first that applies is the reason.
CHECKS: Mapping[Reason, Callable[[GpuConditions], Any]] = {
    "split": lambda gpu: gpu.is_split,
    "lost": lambda gpu: gpu.is_lost,
    "error": lambda gpu: gpu.is_error,
    "stale": lambda gpu: gpu.is_stale,
    "no_reading": lambda gpu: gpu.is_unheard,
    "maintenance": lambda gpu: gpu.in_maintenance,
    "out_of_service": lambda gpu: gpu.is_out_of_service,
    "row_remap": lambda gpu: gpu.waits_for_remap,
    "managed": lambda gpu: gpu.is_managed,
    "paused": lambda gpu: gpu.is_used & gpu.is_paused,
    "task": lambda gpu: gpu.is_used,
    "leased": lambda gpu: gpu.is_leased,
    "memory": lambda gpu: gpu.mem_used_bytes >= HELD_AT_LEAST_BYTES,
    "busy": lambda gpu: gpu.peak_pct > IDLE_AT_MOST_PCT,
    "unknown": lambda gpu: gpu.is_unread,
}
REASONS: tuple[Reason, ...] = tuple(CHECKS)
# These say nothing against the GPU: the next reading may tell that it is available.
UNREAD: frozenset[Reason] = frozenset(("stale", "no_reading", "unknown"))
SENTENCES: Mapping[Reason, str] = {
    "split": "MIG has split it; its instances are counted",
    "lost": "the driver has lost it",
    "error": "every driver call for it fails",
    "stale": "its readings are old",
    "no_reading": "no reading of it has come yet",
    "maintenance": "its node is in maintenance",
    "out_of_service": "it is out of service",
    "row_remap": "a row remap is pending: it needs a reset",
    "managed": "a scheduler manages it",
    "paused": "the tasks on it are paused",
    "task": "a task uses it",
    "leased": "it is leased",
    "memory": "{} of its memory is in use, and no listed task holds it",
    "busy": "kernels run on it, and no listed task does",
    "unknown": "whether anything uses it is not known",
}


def why_not(gpu: GpuConditions) -> Reason | None:
    """Return the reason why it is not available; None: it is."""
    return next((reason for reason, applies in CHECKS.items() if applies(gpu)), None)


def sentence(reason: Reason, mem_used_bytes: float | None = None) -> str:
    """Describe a reason; memory in whole GiB, so that the text does not change with every
    reading."""
    amount = "some" if mem_used_bytes is None else f"{mem_used_bytes / 2**30:.0f} GiB"
    return SENTENCES[reason].format(amount)


def is_use(mem_used_bytes: float | None, sm_pct: float | None, kind: str | None) -> bool:
    """Return whether a task on a GPU keeps others away. A forgotten process that holds little and
    does nothing must not keep a board from everybody (gflow PR#207: 642 MiB, two days)."""
    is_idle = mem_used_bytes is not None and not sm_pct and mem_used_bytes < HELD_AT_LEAST_BYTES
    return not is_idle and kind != "mps_server"
