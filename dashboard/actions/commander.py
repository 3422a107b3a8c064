"""Issue commands and follow their outcomes: lifecycle.py with the signer, the disk, the audit
log and the wire around it."""

import logging
import secrets
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from gpudeck.action_table import Action
from gpudeck.actions import (
    COMMAND_LASTS_S,
    Command,
    CommandActor,
    Preview,
    Refusal,
    Reply,
    RuleCondition,
)
from gpudeck.command_sentences import sentence
from gpudeck.wire import FromHub, SignedCommand

from ..audit.recorder import AuditRecorder
from ..errors import AuditWriteError, SignerUnavailableError
from ..fleet.epoch_fence import EpochFence
from ..runtime.dispatcher import Dispatcher
from ..runtime.paced_log import LogPacer
from .events import CommandChanged
from .lifecycle import (
    CommandLifecycle,
    CommandRecord,
    Effect,
    SaveCommandRecord,
    SendCommandMessage,
)
from .signer_client import GONE, SignerClient
from .store import CANNOT_STORE, CommandsStore

log = logging.getLogger("gpudeck.commander")

BEFORE_IT_ACTS = ("requested", "queued", "sent")


class NodeConnections(Protocol):
    """The nodes that are connected."""

    def connected(self) -> Collection[str]: ...

    def tell(self, node_id: str, message: FromHub) -> bool: ...


@dataclass(eq=False, slots=True)
class Commander:
    store: CommandsStore
    auditor: AuditRecorder
    signer: SignerClient
    fence: EpochFence
    wire: NodeConnections
    events: Dispatcher
    _commands: CommandLifecycle = field(default_factory=CommandLifecycle, init=False)
    _strays: LogPacer = field(default_factory=LogPacer, init=False)

    def recover(self) -> None:
        """What was open when the hub ended. The disk must take it, or there is no hub."""
        now = time.time()
        self._run(self._commands.recovered(self.store.pending(now), now), now)

    # -- orders

    def order(self, record: CommandRecord, preview: Preview | None, refusal: Refusal | None,
              condition: RuleCondition | None, **fields: Any) -> CommandRecord:
        """Recorded first; then signed, recorded as sent, and sent. `refusal`: what speaks against
        it already. Raises AuditWriteError."""
        now = time.time()
        shown = None if preview is None else msgspec.to_builtins(preview)
        self._run(self._commands.request(record), now, preview=shown, **fields)
        found = refusal or self._fence_refusal(record.node_id) or self._sign(
            record, preview, condition)
        now = time.time()
        if record.id not in self._commands.records:
            return self.find(record.id) or record  # it took so long that it was refused meanwhile
        if isinstance(found, Refusal):
            self._run(self._commands.refuse(record.id, found, now), now)
        else:
            is_connected = record.node_id in self.wire.connected()
            self._run(self._commands.signed(record.id, found, is_connected, now), now)
        return self.find(record.id) or record

    def hold(self, node_id: str, host: str, action: Action, asker: CommandActor, reason: str
             ) -> CommandRecord:
        """`hold` or `release`: of a node, without a victim. Raises AuditWriteError."""
        now = time.time()
        return self.order(CommandRecord(new_id(now), action, node_id, host, asker, reason, now, now,
                                        now + COMMAND_LASTS_S), None, None, None)

    def withdraw(self, command_id: str, why: str) -> bool:
        """Where it has not left yet: then it never does. False: it has."""
        record = self._commands.records.get(command_id)
        if record is None or record.state != "queued":
            return False
        now = time.time()
        self._try(self._commands.refuse(command_id, Refusal("hold", why[:1_024]), now), now)
        return True

    def _fence_refusal(self, node_id: str) -> Refusal | None:
        return self.fence.refusal(node_id, len(self.wire.connected()))

    def _sign(self, record: CommandRecord, preview: Preview | None, condition: RuleCondition | None
              ) -> SignedCommand | Refusal:
        try:
            nonce = self.signer.nonce() if preview is None else preview.nonce
            if self.signer.epoch != self.fence.epoch:
                self.signer.rise(self.fence.epoch)
        except SignerUnavailableError:
            return GONE
        command = Command(
            record.id, record.node_id, self.fence.epoch, record.requested_at, record.expires_at,
            nonce, record.action, record.asker, record.reason, preview, condition)
        found = self.signer.sign(command)
        if isinstance(found, SignedCommand):
            self.fence.has_issued = True
        return found

    # -- what nodes say, and time

    def replied(self, node_id: str, reply: Reply) -> None:
        now = time.time()
        try:
            known = self.store.find(reply.command_id)
        except CANNOT_STORE as error:  # the node says it again when it comes back
            log.warning("reply_not_taken command=%r reason=%r", reply.command_id, str(error))
            return
        if known is None or known.node_id != node_id:
            left_out = self._strays.due(node_id, time.monotonic())
            if left_out is not None:
                log.warning("stray_reply node=%s command=%r state=%s left_out=%d", node_id,
                            reply.command_id, reply.state, left_out)
        self._try(self._commands.replied(node_id, reply, now, known), now)

    def joined(self, node_id: str) -> None:
        now = time.time()
        self._try(self._commands.joined(node_id, now), now)

    def tick(self) -> None:
        now = time.time()
        self._try(self._commands.tick(now, self.wire.connected()), now)

    # -- effects

    def _try(self, effects: Iterable[Effect], now: float) -> None:
        """What cannot be written is not noted either, so that it is said or seen again."""
        try:
            self._run(effects, now)
        except (AuditWriteError, *CANNOT_STORE) as error:
            log.warning("command_not_written reason=%r", str(error))

    def _run(self, effects: Iterable[Effect], now: float, **fields: Any) -> None:
        for effect in effects:
            match effect:
                case SaveCommandRecord():
                    self._keep(effect, now, fields)
                case SendCommandMessage():
                    self.wire.tell(effect.node_id, effect.message)

    def _keep(self, effect: SaveCommandRecord, now: float, fields: dict[str, Any]) -> None:
        record = effect.record
        if effect.is_news:
            is_ahead = record.state in BEFORE_IT_ACTS
            with self.auditor.change("command", _recorded(record) | fields,
                                      takes_away=not is_ahead, is_strict=is_ahead):
                self.store.put(record)
        else:
            self.store.put(record)
        self._commands.kept(record, now)
        self.events.dispatch(CommandChanged(record))

    # -- what is known

    def in_flight(self) -> list[CommandRecord]:
        return [record for record in self._commands.records.values() if record.is_open]

    def find(self, command_id: str) -> CommandRecord | None:
        return self._commands.records.get(command_id) or self.store.find(command_id)


def _recorded(record: CommandRecord) -> dict[str, Any]:
    found = record.refusal if record.state == "refused" else None
    verified = None if record.verified is None else msgspec.to_builtins(record.verified)
    return {"actor": record.asker.name, "actor_kind": record.asker.kind,
            "approved_by": record.asker.approved_by, "action": record.action,
            "node": record.node_id, "host": record.host, "task_id": record.task_id,
            "job_id": record.job_id, "owner": record.owner, "command_id": record.id,
            "reason": record.reason, "outcome": record.state, "step": record.step or None,
            "refusal": None if found is None else found.code,
            "sentence": f"{_what(record)}, requested by {record.asker.name}: {sentence(record)}",
            "verified": verified}


def _what(record: CommandRecord) -> str:
    whom = "" if record.task_id is None else f" of task {record.task_id}"
    return f"{record.action}{whom} on {record.host}"


def new_id(now: float) -> str:
    """Sorts by time; what follows cannot be guessed."""
    return f"{int(now * 1_000):012x}{secrets.token_hex(10)}"
