"""Rows of the table of settings, of GPUs and of MPS, and what all of them share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gpudeck.contract.actions import Bystander, Refusal
from gpudeck.contract.limits import MpsDaemon, Setting, SettingChange
from gpudeck.contract.repairs import GpuRepair
from gpudeck.contract.wire import GpuFacts

from ...readings import GpuLimits
from ..context import NodeContext, TaskSnapshot
from .execution import ActionExecution

MOST_NAMED = 6
NOT_VERIFIED = ("Not verified on hardware yet: this is built from NVIDIA's manuals, and no card "
                "was at hand to try it on.")

# Taken without a word, read back as wanted (None: cannot be read), and the words for both.
Applied = tuple[bool, bool | None, str]
Changes = Callable[[Any, Any], tuple[SettingChange, ...]]


@dataclass(frozen=True, slots=True)
class GpuPreview:
    """Facts that a setting of a GPU is judged by."""

    context: NodeContext
    limits: GpuLimits
    snapshot: TaskSnapshot | None
    bystanders: tuple[Bystander, ...]


@dataclass(frozen=True, slots=True)
class MpsPreview:
    """Facts that a setting of MPS is judged by."""

    context: NodeContext
    daemon: MpsDaemon
    snapshot: TaskSnapshot | None
    grace_s: float


@dataclass(frozen=True, slots=True)
class ServicePreview:
    """Facts that taking a GPU out of service, or returning it, is judged by. `repair`: its own
    record, None: in service; `of_node`: that of the whole node. `trouble`: why neither can be
    read."""

    context: NodeContext
    repair: GpuRepair | None
    of_node: GpuRepair | None
    is_board: bool
    bystanders: tuple[Bystander, ...]
    trouble: str
    snapshot: TaskSnapshot | None
    facts: GpuFacts | None
    tasks: tuple[str, ...]  # ids of all that are on it, whether /proc shows them or not
    others_at_work: str  # another board of this node that is being reset or diagnosed
    resets: int  # of it, within the last day
    is_understood: bool  # what this node's disk says of it


@dataclass(frozen=True, slots=True)
class SettingKind:
    """`Any` in the callables: each takes its own type of setting, and a preview of a GPU, of
    MPS, of service or of a scheduler."""

    setting: type[Setting]
    flaws: Callable[[Any, Any], Iterable[Refusal]]
    changes: Changes
    warnings: Callable[[Any, Any], Iterable[str]]
    do: Callable[[ActionExecution, Any], Applied]


def not_taken(trouble: str) -> Refusal:
    return Refusal("permission" if "CAP_SYS_ADMIN" in trouble else "setting",
                   f"{trouble}; nothing was changed")


def many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def listed(words: list[str]) -> str:
    more = f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    return (", ".join(words[:MOST_NAMED]) or "none") + more


def span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
