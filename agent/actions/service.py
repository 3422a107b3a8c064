"""The node's desk for acts: what the hub asks comes in, is judged in order, and answered.

Called from the node's own thread, which never waits for it: looks, judgements and acts each have
a thread that is there while there is something to do. Of acts one is in flight; others wait until
they expire.
"""

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from gpudeck.actions import (
    COMMAND_LASTS_S,
    HELD_BY_HUB,
    PREVIEW_LASTS_S,
    Command,
    CommandState,
    Recall,
    Refusal,
    Reply,
)
from gpudeck.keys import SigningKey, is_signed
from gpudeck.wire import (
    Anchor,
    Clock,
    FromAgent,
    FromHub,
    Inquire,
    Look,
    Noted,
    SignedCommand,
    Time,
    WireError,
    command_statement,
    decode_command,
    decode_from_agent,
    encode,
    preview_statement,
)

from ..journal.store import ActionJournal, JournalError, about
from ..link.hub_clock import HubClock, late
from ..link.identity import is_shown_by
from ..runtime.action_lock import ActionLock
from ..runtime.worker import Worker
from . import guard, preview_setting
from . import preview as actions_preview
from .ceiling import read_ceiling
from .execute import ActionExecutor, ActionTimeouts
from .hold_files import holds
from .preview import NodeContext, PreviewRequest
from .recalls import CommandRecalls

log = logging.getLogger("gpudeck.agent.act")

RESEND_EVERY_S = 5.0
LOOKS_MAX = 64
WAITING_MAX = 32
HELD = "hub hold"
UNREAD = "what was held before is not known: "
BEGIN_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class CommandServiceConfig:
    key: SigningKey
    node_id: str
    hub: str  # fingerprint of its key
    data: Path
    hold_files: tuple[Path, ...]
    keeps_anchors: bool = True
    patience: ActionTimeouts = field(default_factory=ActionTimeouts)


class CommandService:
    def __init__(
        self, config: CommandServiceConfig, place: NodeContext, journal: ActionJournal,
        wake: Callable[[], None]
    ) -> None:
        self._config = config
        self._journal = journal
        self._wake = wake
        self._place = replace(place, holds=self._holds, kills_since=journal.kills_at_most)
        self._recalls, self.sightings = CommandRecalls(), place.sightings
        self._hand = ActionExecutor(self._place, journal, self._reply, config.patience,
                                    self._recalls.why)
        self._lock = ActionLock(config.data)
        self._clock = HubClock()
        self._looks = Worker("looks", LOOKS_MAX)
        self._judge = Worker("judge")
        self._clerk = Worker("clerk")  # whose disk nobody who holds or commands waits for
        self._acts = Worker("hand", WAITING_MAX)
        self._out: deque[FromAgent] = deque(maxlen=4_096)
        self._not_noted: dict[str, int] = {}
        self._resend_at = 0.0
        self._hub_key: bytes | None = None
        self._hub_hold: str | None = None
        self.epoch = 0
        self.anchor = Anchor(0, "")
        self.trouble = ""
        self._beginning = threading.Lock()
        self._has_begun = False
        self._begins_at = 0.0
        self._begin()

    def _begin(self) -> None:
        """What the journal knows comes before any act: a hold, the epoch, what is spent. Tried
        again until it can be read."""
        with self._beginning:
            if self._has_begun:
                return
            try:
                self._recall()
                self._has_begun, self.trouble = True, ""
            except JournalError as why:
                if not self.trouble:
                    log.error("no_acts why=%r", str(why))
                self.trouble = str(why)

    def _recall(self) -> None:
        self._journal.open()
        held = self._journal.fact(HELD)
        self._hub_hold = held if self._hub_hold is None else self._hub_hold
        self.epoch = int(self._journal.fact(self._epoch_name) or 0)
        self.anchor = self._kept_anchor()
        for reply in self._journal.recover():
            log.warning("act_left_open command=%s state=%s", reply.command_id, reply.state)
        unsettled = {each.command_id: each.number for each in self._journal.unsettled()}
        self._not_noted = {**unsettled, **self._not_noted}

    # from the node's own thread

    def greeted(self, hub_key: bytes) -> None:
        """The hub has proved this key, and its fingerprint is the one that is pinned."""
        self._hub_key = hub_key

    def connected(self, epoch: int, now: float) -> None:
        self._clock.connected(now)
        self._out.clear()
        self._resend_at = now
        if epoch < self.epoch:
            log.warning("older_hub epoch=%d seen=%d; its commands are refused", epoch, self.epoch)
        self._judge.put(lambda: self._see_epoch(epoch))

    def hear(self, message: FromHub, now: float) -> None:
        match message:
            case Time():
                self._clock.told(message.clock_id, message.hub_at, now)
            case Look():
                ask = PreviewRequest(message.ask_id, message.nonce, message.action, message.params,
                                     message.task_id, message.asker)
                if not self._looks.put(lambda: self._look(ask)):
                    log.warning("look_dropped ask=%s; too many at once", message.ask_id)
            case SignedCommand():
                self._judge.put(lambda: self._command(message))
            case Recall():
                self._recalls.take(message)
            case Inquire():
                self._clerk.put(lambda: self._inquired(message.command_ids))
            case Noted():
                if self._not_noted.get(message.command_id, 0) <= message.number:
                    self._not_noted.pop(message.command_id, None)
                self._clerk.put(lambda: self._journal_note(message))
            case Anchor() if self._config.keeps_anchors:
                self._clerk.put(lambda: self._anchored(message))
            case _:
                pass

    def say(self, now: float) -> list[FromAgent]:
        """What is to be sent over a live connection."""
        if not self._has_begun and now >= self._begins_at:
            self._begins_at = now + BEGIN_EVERY_S
            self._clerk.put(self._begin)
        if (clock_id := self._clock.ask(now)) is not None:
            self._out.append(Clock(clock_id))
        if self._not_noted and now >= self._resend_at:
            self._resend_at = now + RESEND_EVERY_S
            self._clerk.put(self._resend)
        said = []
        while self._out:
            said.append(self._out.popleft())
        return said

    def next_at(self) -> float:
        return min(self._clock.due_at(), self._resend_at if self._not_noted else float("inf"))

    def hub_time(self, now: float) -> float | None:
        return self._clock.at(now)

    def actions(self) -> tuple[str, ...]:
        """That the ceiling permits, as of now."""
        return (*read_ceiling(self._place.ceiling_file).allowed, "hold", "release")

    def ends_since(self, at: float) -> int:
        """How many tasks we ended; what the journal does not say is none."""
        try:
            return self._journal.kills_since(at)
        except JournalError:
            return 0

    def holds_now(self) -> tuple[str, ...]:
        return tuple(hold[:1_024] for hold in self._holds()[:8])

    @property
    def audit_head(self) -> tuple[int, str]:
        return self._journal.head

    def close(self) -> None:
        """An act in flight is not waited for long: its INTENT is on disk."""
        for worker in (self._looks, self._judge, self._clerk, self._acts):
            worker.close()

    # looking

    def _look(self, ask: PreviewRequest) -> None:
        try:
            shown = preview_setting.look(self._place, ask)
            decode_from_agent(encode(shown))  # what the hub would refuse must not break the line
        except (OSError, UnicodeError, WireError) as error:
            log.warning("look_failed task=%s why=%r", ask.task_id, str(error))
            shown = actions_preview.nothing(self._place, ask, guard.unreadable(str(error)[:200]))
        shown = msgspec.structs.replace(shown, key=self._config.key.public)
        signature = self._config.key.sign(preview_statement(shown))
        self._send(msgspec.structs.replace(shown, signature=signature))

    # judging

    def _command(self, message: SignedCommand) -> None:
        self._begin()
        digest = hashlib.sha256(message.body).hexdigest()
        key = self._hub_key
        try:
            command = decode_command(message.body)
        except WireError as error:
            self._audit_stray("schema", str(error))
            return
        if key is None or not is_signed(key, command_statement(message.body), message.signature):
            self._stray(command, "signature", "the command is not signed by the hub to which this "
                                              "node belongs; nothing was touched")
            return
        if command.node_id != self._config.node_id:
            self._stray(command, "node", "the command is for another node; nothing was touched")
            return
        if self._answered_before(command, digest):
            return
        refusal = self._judged(command)
        if command.action in ("hold", "release"):
            self._hold_or_release(command, digest, refusal)
        elif refusal is not None:
            self._refuse(command, digest, refusal)
        else:
            self._accept(command, digest)

    def _answered_before(self, command: Command, digest: str) -> bool:
        """At most once: the first result again, whatever has happened since."""
        try:
            known = self._journal.known(command.command_id)
        except JournalError as why:
            self._send(self._first(command, "refused", Refusal("journal", str(why))))
            return True
        if known is None:
            return False
        if known.digest not in (digest, ""):
            self._stray(command, "duplicate", "another command had this id before; nothing was "
                                              "touched")
        else:
            self._reply(known.reply)
        return True

    def _judged(self, command: Command) -> Refusal | None:
        if command.epoch < self.epoch:
            return Refusal("epoch", f"this hub's epoch is {command.epoch}, and this node has heard "
                                    f"one of {self.epoch}: another hub with its key has taken "
                                    "over, or this one was restored. Restart it to take over.")
        if command.action == "hold":  # to stop is safe at any hour
            return None
        return self._late(command) or (
            None if command.action == "release" else self._preview_refusal(command))

    def _late(self, command: Command) -> Refusal | None:
        now = time.monotonic()
        at = self._clock.at(now)
        if doubt := self._clock.doubt(now, self._place.wall()):
            return Refusal("skew", doubt)
        return late(command, at)

    def _preview_refusal(self, command: Command) -> Refusal | None:
        """It must carry back what we showed ourselves, whole, lately, and for the first time."""
        shown = command.preview
        if shown is None:
            return Refusal("schema", "the command carries no preview; nothing was touched")
        if not is_shown_by(shown, self._config.node_id, self._config.key.public):
            return Refusal("signature", "the preview in the command was not made by this node; "
                                        "nothing was touched")
        if shown.action != command.action or shown.nonce != command.nonce:
            return Refusal("schema", "command and preview do not agree; nothing was touched")
        if shown.boot_id != self._place.boot_id:
            return Refusal("identity", "this machine was started anew since the preview")
        if shown.refusals:
            return shown.refusals[0]
        age_s = self._place.wall() - shown.taken_at
        if not -1.0 <= age_s <= PREVIEW_LASTS_S + COMMAND_LASTS_S:
            return Refusal("stale_preview", "the preview is too old; look again")
        try:
            if self._journal.is_spent(command.nonce.hex()):
                return Refusal("stale_preview", "this preview was used before; look again")
        except JournalError as why:
            return Refusal("journal", str(why))
        return None

    def _accept(self, command: Command, digest: str) -> None:
        first = self._first(command, "accepted", None)
        try:
            self._new_epoch(command.epoch)
            reply = self._journal.seen(command, digest, first)
        except JournalError as why:
            self._send(self._first(command, "refused", Refusal("journal", str(why))))
            return
        self._reply(reply)
        if not self._acts.put(lambda: self._act(command, reply)):
            self._settle(command, reply, "refused", Refusal(
                "busy", f"{WAITING_MAX} commands wait on this node already; nothing was touched"))

    def _refuse(self, command: Command, digest: str, refusal: Refusal) -> None:
        first = self._first(command, _state_of(refusal), refusal)
        try:
            self._reply(self._journal.seen(command, digest, first))
        except JournalError as why:
            log.error("refusal_not_recorded command=%s why=%r", command.command_id, str(why))
            self._send(first)

    def _first(self, command: Command, state: CommandState, refusal: Refusal | None) -> Reply:
        return Reply(command.command_id, 1, state, self._place.wall(),
                     refusal.sentence if refusal else "", refusal)

    def _stray(self, command: Command, code: str, sentence: str) -> None:
        """Not to be taken for the command of that id: nothing is kept under it."""
        self._audit_stray(code, sentence, command.command_id)
        refusal = Refusal(code, sentence)  # type: ignore[arg-type]
        self._send(self._first(command, "refused", refusal))

    def _audit_stray(self, code: str, sentence: str, command_id: str = "") -> None:
        log.warning("stray_command code=%s command=%s", code, command_id)
        try:
            self._journal.record({"kind": "stray", "code": code, "sentence": sentence[:500],
                                  "command_id": command_id})
        except JournalError as why:
            log.error("stray_not_recorded why=%r", str(why))

    # acting

    def _act(self, command: Command, reply: Reply) -> None:
        if not self._is_alone(command, reply):
            return
        try:
            if (late := self._late(command)) is not None:
                self._settle(command, reply, _state_of(late), late)
                return
            self._hand.act(command, reply)
        finally:
            self._lock.free()

    def _is_alone(self, command: Command, reply: Reply) -> bool:
        """`gpudeck end` on this very node may be at work."""
        try:
            while not self._lock.take(0.5):
                if (late := self._late(command)) is not None:
                    self._settle(command, reply, _state_of(late), Refusal(
                        "busy", "another act was in flight on this node until this command "
                                "expired; nothing was touched"))
                    return False
        except OSError as error:
            self._settle(command, reply, "refused", Refusal(
                "journal", f"the agent's data folder cannot be used ({error.strerror}); nothing "
                           "was touched"))
            return False
        return True

    def _settle(self, command: Command, last: Reply, state: str, refusal: Refusal) -> None:
        reply = msgspec.structs.replace(
            last, number=last.number + 1, state=state, at=self._place.wall(), refusal=refusal,
            step=refusal.sentence)
        try:
            reply = self._journal.result(reply, about(command))
        except JournalError as why:
            log.error("result_not_recorded command=%s why=%r", reply.command_id, str(why))
        self._reply(reply)

    # hold, epoch, anchor

    def _holds(self) -> tuple[str, ...]:
        hub = self._hub_hold
        unread = () if self._has_begun else (f"{UNREAD}{self.trouble}",)
        return (*unread, *(() if hub is None else (hub,)), *holds(self._config.hold_files))

    def _hold_or_release(self, command: Command, digest: str, refusal: Refusal | None) -> None:
        if refusal is not None:
            self._refuse(command, digest, refusal)
            return
        by = command.asker
        hold = f"{HELD_BY_HUB}{by.name}: {command.reason}"[:1_024]
        if command.action == "hold":
            self._hub_hold = hold  # before the disk is asked
        try:
            self._new_epoch(command.epoch)
            self._journal.keep(HELD, hold if command.action == "hold" else None)
            reply = self._journal.seen(command, digest, self._first(command, "done", None))
        except JournalError as why:
            self._send(self._first(command, "refused", Refusal("journal", str(why))))
            return
        if command.action == "release":
            self._hub_hold = None
        self._reply(reply)
        log.info("%s by=%s reason=%r", command.action, by.name, command.reason)

    def _see_epoch(self, epoch: int) -> None:
        try:
            self._new_epoch(epoch)
        except JournalError as why:
            log.error("epoch_not_kept why=%r", str(why))

    def _new_epoch(self, epoch: int) -> None:
        """Kept before anything of it is obeyed: an older hub must stay fenced after our restart."""
        self._begin()
        if not self._has_begun:  # the one that is kept may be higher
            raise JournalError(self.trouble)
        if epoch > self.epoch:
            self._journal.keep(self._epoch_name, str(epoch))
            self.epoch = epoch

    @property
    def _epoch_name(self) -> str:
        return f"epoch {self._config.hub}"

    @property
    def _anchor_name(self) -> str:
        """Of this hub: another one knows nothing of it and would be accused."""
        return f"anchor {self._config.hub}"

    def _kept_anchor(self) -> Anchor:
        """The hub is told at each Hello what it had recorded when we last heard of it."""
        seq, _, head = (self._journal.fact(self._anchor_name) or "0 ").partition(" ")
        return Anchor(int(seq), head)

    def _anchored(self, anchor: Anchor) -> None:
        if anchor == self.anchor:
            return
        try:
            self._journal.keep(self._anchor_name, f"{anchor.audit_seq} {anchor.audit_head}", {
                "kind": "anchor", "hub": self._config.hub, "seq": anchor.audit_seq,
                "head": anchor.audit_head})
            self.anchor = anchor
        except JournalError as why:
            log.error("anchor_not_kept why=%r", str(why))

    # answering

    def _inquired(self, command_ids: tuple[str, ...]) -> None:
        for command_id in command_ids:
            try:
                known = self._journal.known(command_id)
                self._reply(self._never_came(command_id) if known is None else known.reply)
            except JournalError as why:
                log.error("no_answer command=%s why=%r", command_id, str(why))

    def _never_came(self, command_id: str) -> Reply:
        sentence = "the command never reached this node, and is not obeyed if it still comes"
        return self._journal.bury(Reply(command_id, 1, "expired", self._place.wall(), sentence,
                                        Refusal("expired", sentence)))

    def _journal_note(self, noted: Noted) -> None:
        try:
            self._journal.note(noted.command_id, noted.number)
        except JournalError as why:
            log.error("noted_not_kept why=%r", str(why))

    def _resend(self) -> None:
        try:
            for reply in self._journal.unsettled():
                self._send(reply)
        except JournalError as why:
            log.error("replies_not_read why=%r", str(why))

    def _reply(self, reply: Reply) -> None:
        if not self._not_noted:
            self._resend_at = time.monotonic() + RESEND_EVERY_S
        self._not_noted[reply.command_id] = reply.number
        self._send(reply)

    def _send(self, message: FromAgent) -> None:
        self._out.append(message)
        self._wake()


def _state_of(refusal: Refusal) -> CommandState:
    return "expired" if refusal.code == "expired" else "refused"
