"""Messages to the hub. A reply to a command is sent again until the hub has noted it."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from gpudeck.contract.actions import Command, CommandState, Refusal, Reply
from gpudeck.contract.wire import FromAgent, Noted
from gpudeck.rate import RateLimiter

from ..journal.store import ActionJournal, JournalError

log = logging.getLogger("gpudeck.agent.actions")

RESEND_EVERY_S = 5.0
UNKNOWN_AT_ONCE, UNKNOWN_EVERY_S = 256, 15.0


class ReplyOutbox:
    """Messages for the hub, until they are sent. What asks the disk is for a thread that may
    wait."""

    def __init__(self, journal: ActionJournal, wake: Callable[[], None]) -> None:
        self._journal = journal
        self._wake = wake
        self._messages: deque[FromAgent] = deque(maxlen=4_096)
        self._not_noted: dict[str, int] = {}
        self._resend_at = 0.0
        # Each answer for a command that never came is kept for good; a hub asks for a handful after
        # a crash.
        self._unknown = RateLimiter(UNKNOWN_AT_ONCE, UNKNOWN_EVERY_S)

    def load_unsettled(self) -> None:
        """Load what the hub had not noted when the agent last ended. Raises JournalError."""
        unsettled = {reply.command_id: reply.number for reply in self._journal.unsettled()}
        self._not_noted = {**unsettled, **self._not_noted}

    def connected(self, now: float) -> None:
        self._messages.clear()
        self._resend_at = now

    def reply(self, reply: Reply) -> None:
        if not self._not_noted:
            self._resend_at = time.monotonic() + RESEND_EVERY_S
        self._not_noted[reply.command_id] = reply.number
        self.send(reply)

    def send(self, message: FromAgent) -> None:
        self._messages.append(message)
        self._wake()

    def pop_all(self) -> list[FromAgent]:
        messages = []
        while self._messages:
            messages.append(self._messages.popleft())
        return messages

    def acknowledge(self, message: Noted) -> None:
        if self._not_noted.get(message.command_id, 0) <= message.number:
            self._not_noted.pop(message.command_id, None)

    def resend_at(self) -> float:
        return self._resend_at if self._not_noted else float("inf")

    def is_due(self, now: float) -> bool:
        """Return whether to `resend` now; if so, it is due again RESEND_EVERY_S later."""
        if now < self.resend_at():
            return False
        self._resend_at = now + RESEND_EVERY_S
        return True

    # with the disk

    def resend(self) -> None:
        try:
            for reply in self._journal.unsettled():
                self.send(reply)
        except JournalError as why:
            log.error("replies_not_read why=%r", str(why))

    def store_noted(self, message: Noted) -> None:
        try:
            self._journal.note(message.command_id, message.number)
        except JournalError as why:
            log.error("noted_not_kept why=%r", str(why))

    def answer(self, command_ids: Iterable[str]) -> None:
        """Send what became of these commands. One that never came is not obeyed if it still
        comes."""
        for command_id in command_ids:
            try:
                recorded = self._journal.find_command(command_id)
                if recorded is not None:
                    self.reply(recorded.reply)
                elif self._unknown.may("unknown", time.monotonic()):
                    self.reply(self._never_came(command_id))
            except JournalError as why:
                log.error("no_answer command=%s why=%r", command_id, str(why))

    def _never_came(self, command_id: str) -> Reply:
        sentence = "the command never reached this node, and is refused if it still arrives"
        return self._journal.record_never_came(Reply(
            command_id, 1, "expired", time.time(), sentence, Refusal("expired", sentence)))


def first_reply(command: Command, state: CommandState, refusal: Refusal | None = None) -> Reply:
    return Reply(command.command_id, 1, state, time.time(),
                 refusal.sentence if refusal else "", refusal)


def later_reply(last: Reply, state: CommandState, refusal: Refusal) -> Reply:
    return msgspec.structs.replace(last, number=last.number + 1, state=state, at=time.time(),
                                   refusal=refusal, step=refusal.sentence)


def refused_state(refusal: Refusal) -> CommandState:
    return "expired" if refusal.code == "expired" else "refused"
