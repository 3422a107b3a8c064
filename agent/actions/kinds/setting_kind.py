"""Rows of the table of settings, of GPUs and of MPS, and what all of them share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gpudeck.actions import Bystander, Command, Preview, Refusal, Reply
from gpudeck.limits import GpuSetting, MpsDaemon, MpsSetting, SettingChange

from ...limits.mps import MpsDaemonHandle
from ...readings import GpuLimits
from ..context import NodeContext, TaskSnapshot

MOST_NAMED = 6

# Taken without a word, read back as wanted (None: cannot be read), and the words for both.
Applied = tuple[bool, bool | None, str]


@dataclass(slots=True)
class SettingAct:
    """One setting that is being made."""

    context: NodeContext
    command: Command
    shown: Preview
    reply: Reply
    tell: Callable[[Reply, str], Reply]

    def say(self, step: str) -> None:
        self.reply = self.tell(self.reply, step)


@dataclass(frozen=True, slots=True)
class GpuPreview:
    """What a setting of a GPU is judged by."""

    context: NodeContext
    limits: GpuLimits
    found: TaskSnapshot | None
    bystanders: tuple[Bystander, ...]


@dataclass(frozen=True, slots=True)
class GpuSettingKind:
    """`Any` in the callables: each takes a setting of its own type."""

    setting: type[GpuSetting]
    flaws: Callable[[Any, GpuPreview], Iterable[Refusal]]
    changes: Callable[[Any, GpuPreview], tuple[SettingChange, ...]]
    warnings: Callable[[Any, GpuPreview], Iterable[str]]
    do: Callable[[SettingAct, Any], Applied]


@dataclass(frozen=True, slots=True)
class MpsPreview:
    """What a setting of MPS is judged by."""

    context: NodeContext
    daemon: MpsDaemon
    found: TaskSnapshot | None
    grace_s: float


@dataclass(frozen=True, slots=True)
class MpsSettingKind:
    setting: type[MpsSetting]
    flaws: Callable[[Any, MpsPreview], Iterable[Refusal]]
    changes: Callable[[Any, MpsPreview], tuple[SettingChange, ...]]
    warnings: Callable[[Any, MpsPreview], Iterable[str]]
    do: Callable[[SettingAct, MpsDaemonHandle, Any], Applied]


def not_taken(trouble: str) -> Refusal:
    return Refusal("permission" if "CAP_SYS_ADMIN" in trouble else "setting",
                   f"{trouble}; nothing was changed")


def many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def listed(words: list[str]) -> str:
    more = f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    return (", ".join(words[:MOST_NAMED]) or "none") + more
