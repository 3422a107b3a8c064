"""What all actions share while one is carried out."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from gpudeck.actions import (
    MEMORY_BACK_WITHIN_S,
    UNKILLABLE_AFTER_S,
    ActionParams,
    ActionVerification,
    Command,
    CommandState,
    Preview,
    Refusal,
    Reply,
)

from ..context import NodeContext

Outcome = tuple[CommandState, Refusal | None, ActionVerification, str]


class ActionRefusedError(Exception):
    """Before anything was touched."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class ActionTimeouts:
    unkillable_after_s: float = UNKILLABLE_AFTER_S
    memory_within_s: float = MEMORY_BACK_WITHIN_S


@dataclass(slots=True, eq=False)
class ActionExecution(ABC):
    """One command from the first comparison to what was observed afterwards. `tell` gives the next
    Reply, in which its step is."""

    context: NodeContext
    command: Command
    reply: Reply
    tell: Callable[[Reply, str], Reply]
    timeouts: ActionTimeouts

    @property
    def shown(self) -> Preview:
        assert self.command.preview is not None
        return self.command.preview

    @property
    def params(self) -> ActionParams:
        return self.shown.params

    def say(self, step: str) -> None:
        self.reply = self.tell(self.reply, step)

    @abstractmethod
    def do(self) -> Outcome:
        """Raises ActionRefusedError."""
