"""Accepted orders, carried out one at a time; the others wait until they expire."""

import logging
from pathlib import Path

from gpudeck.actions import Command, Refusal, Reply

from ..journal.store import JournalError, about
from ..runtime.action_lock import ActionLock
from ..runtime.worker import Worker
from .checks import OrderContext
from .execute import ActionExecutor
from .replies import ReplyOutbox, later_reply, refused_state

log = logging.getLogger("gpudeck.agent.act")

WAITING_MAX = 32


class CommandQueue:
    def __init__(self, node: OrderContext, executor: ActionExecutor, replies: ReplyOutbox,
                 data: Path) -> None:
        self._node = node
        self._executor = executor
        self._replies = replies
        self._lock = ActionLock(data)
        self._worker = Worker("hand", WAITING_MAX)

    def put(self, command: Command, accepted: Reply) -> bool:
        """False: too many wait already."""
        return self._worker.put(lambda: self._act(command, accepted))

    @property
    def is_idle(self) -> bool:
        return self._worker.is_idle

    def close(self) -> None:
        """An act in flight is not waited for long: its INTENT is on disk."""
        self._worker.close()

    def refuse(self, command: Command, last: Reply, refusal: Refusal) -> None:
        self._settle(command, later_reply(last, refused_state(refusal), refusal))

    def _settle(self, command: Command, reply: Reply) -> None:
        try:
            reply = self._node.journal.result(reply, about(command))
        except JournalError as why:
            log.error("result_not_recorded command=%s why=%r", reply.command_id, str(why))
        self._replies.reply(reply)

    def _act(self, command: Command, accepted: Reply) -> None:
        if not self._is_alone(command, accepted):
            return
        try:
            if (late := self._node.too_late(command)) is not None:
                self.refuse(command, accepted, late)
                return
            self._executor.act(command, accepted)
        finally:
            self._lock.free()

    def _is_alone(self, command: Command, accepted: Reply) -> bool:
        """`gpudeck end` on this very node may be at work."""
        try:
            while not self._lock.take(0.5):
                if (late := self._node.too_late(command)) is not None:
                    self._settle(command, later_reply(accepted, refused_state(late), Refusal(
                        "busy", "another act was in flight on this node until this command "
                                "expired; nothing was touched")))
                    return False
        except OSError as error:
            self.refuse(command, accepted, Refusal(
                "journal", f"the agent's data folder cannot be used ({error.strerror}); nothing "
                           "was touched"))
            return False
        return True
