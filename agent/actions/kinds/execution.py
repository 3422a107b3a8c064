"""Parts that all actions share while one is carried out."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from gpudeck.contract.actions import (
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
    """A refusal before anything was touched."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class ActionTimeouts:
    unkillable_after_s: float = UNKILLABLE_AFTER_S
    memory_within_s: float = MEMORY_BACK_WITHIN_S


@dataclass(slots=True, eq=False)
class ActionExecution(ABC):
    """A command from the first comparison to what was observed afterwards. `send_step` returns the
    next Reply, which holds the step."""

    context: NodeContext
    command: Command
    reply: Reply
    send_step: Callable[[Reply, str], Reply]
    timeouts: ActionTimeouts

    @property
    def preview(self) -> Preview:
        assert self.command.preview is not None
        return self.command.preview

    @property
    def params(self) -> ActionParams:
        return self.preview.params

    def report(self, step: str) -> None:
        self.reply = self.send_step(self.reply, step)

    @abstractmethod
    def do(self) -> Outcome:
        """Carry out the command. Raises ActionRefusedError."""
