"""Messages to the hub. A reply to a command is sent again until the hub has noted it."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from gpudeck.actions import Command, CommandState, Refusal, Reply
from gpudeck.wire import FromAgent, Noted

from ..journal.store import ActionJournal, JournalError
from ..telemetry.rate_limit import RateLimiter

log = logging.getLogger("gpudeck.agent.act")

RESEND_EVERY_S = 5.0
UNKNOWN_AT_ONCE, UNKNOWN_EVERY_S = 256, 15.0


class ReplyOutbox:
    """What asks the disk is for a thread that may wait."""

    def __init__(self, journal: ActionJournal, wake: Callable[[], None]) -> None:
        self._journal = journal
        self._wake = wake
        self._messages: deque[FromAgent] = deque(maxlen=4_096)
        self._not_noted: dict[str, int] = {}
        self._resend_at = 0.0
        # Each that never came is kept for good; a hub asks for a handful after a crash.
        self._unknown = RateLimiter(UNKNOWN_AT_ONCE, UNKNOWN_EVERY_S)

    def recall(self) -> None:
        """What the hub had not noted when the agent last ended. Raises JournalError."""
        unsettled = {each.command_id: each.number for each in self._journal.unsettled()}
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

    def take(self) -> list[FromAgent]:
        taken = []
        while self._messages:
            taken.append(self._messages.popleft())
        return taken

    def noted(self, noted: Noted) -> None:
        if self._not_noted.get(noted.command_id, 0) <= noted.number:
            self._not_noted.pop(noted.command_id, None)

    def resend_at(self) -> float:
        return self._resend_at if self._not_noted else float("inf")

    def is_due(self, now: float) -> bool:
        """Whether to `resend` now; asked again, not before its time."""
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

    def store_noted(self, noted: Noted) -> None:
        try:
            self._journal.note(noted.command_id, noted.number)
        except JournalError as why:
            log.error("noted_not_kept why=%r", str(why))

    def answer(self, command_ids: Iterable[str]) -> None:
        """What became of these commands. One that never came is not obeyed if it still comes."""
        for command_id in command_ids:
            try:
                known = self._journal.known(command_id)
                if known is not None:
                    self.reply(known.reply)
                elif self._unknown.may("unknown", time.monotonic()):
                    self.reply(self._never_came(command_id))
            except JournalError as why:
                log.error("no_answer command=%s why=%r", command_id, str(why))

    def _never_came(self, command_id: str) -> Reply:
        sentence = "the command never reached this node, and is refused if it still arrives"
        return self._journal.bury(Reply(command_id, 1, "expired", time.time(), sentence,
                                        Refusal("expired", sentence)))


def first_reply(command: Command, state: CommandState, refusal: Refusal | None = None) -> Reply:
    return Reply(command.command_id, 1, state, time.time(),
                 refusal.sentence if refusal else "", refusal)


def later_reply(last: Reply, state: CommandState, refusal: Refusal) -> Reply:
    return msgspec.structs.replace(last, number=last.number + 1, state=state, at=time.time(),
                                   refusal=refusal, step=refusal.sentence)


def refused_state(refusal: Refusal) -> CommandState:
    return "expired" if refusal.code == "expired" else "refused"
