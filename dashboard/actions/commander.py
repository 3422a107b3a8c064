"""Commander: issues commands and follows their outcomes, by lifecycle.py with the signer, the disk,
the audit log and the connections."""

import logging
import secrets
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from gpudeck.contract.action_table import Action
from gpudeck.contract.actions import (
    COMMAND_LASTS_S,
    Command,
    CommandActor,
    Preview,
    Refusal,
    Reply,
    RuleCondition,
)
from gpudeck.contract.wire import FromHub, SignedCommand
from gpudeck.rate import RateLimiter
from gpudeck.words.commands import sentence

from ..audit.recorder import AuditRecorder
from ..errors import AuditWriteError, SignerUnavailableError
from ..fleet.epoch_fence import EpochFence
from ..runtime.dispatcher import Dispatcher
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

log = logging.getLogger("gpudeck.actions")

BEFORE_IT_ACTS = ("requested", "queued", "sent")


class NodeConnections(Protocol):
    """Connections to the nodes."""

    def connected(self) -> Collection[str]: ...

    def send(self, node_id: str, message: FromHub) -> bool: ...


@dataclass(eq=False, slots=True)
class Commander:
    store: CommandsStore
    auditor: AuditRecorder
    signer: SignerClient
    fence: EpochFence
    wire: NodeConnections
    events: Dispatcher
    _commands: CommandLifecycle = field(default_factory=CommandLifecycle, init=False)
    _strays: RateLimiter = field(default_factory=RateLimiter, init=False)

    def recover(self) -> None:
        """Recover commands that were open when the hub stopped. The hub does not start if the disk
        refuses."""
        now = time.time()
        self._run(self._commands.recovered(self.store.pending(now), now), now)

    # -- orders

    def order(self, record: CommandRecord, preview: Preview | None, refusal: Refusal | None,
              condition: RuleCondition | None, **fields: Any) -> CommandRecord:
        """Order a command: recorded first; then signed, recorded as sent, and sent. `refusal`: why
        it is refused already. Raises AuditWriteError."""
        now = time.time()
        preview_fields = None if preview is None else msgspec.to_builtins(preview)
        self._run(self._commands.request(record), now, preview=preview_fields, **fields)
        outcome = refusal or self._fence_refusal(record.node_id) or self._sign(
            record, preview, condition)
        now = time.time()
        if record.id not in self._commands.records:
            return self.find(record.id) or record  # signing took so long that it was refused
        if isinstance(outcome, Refusal):
            self._run(self._commands.refuse(record.id, outcome, now), now)
        else:
            is_connected = record.node_id in self.wire.connected()
            self._run(self._commands.signed(record.id, outcome, is_connected, now), now)
        return self.find(record.id) or record

    def hold(self, node_id: str, host: str, action: Action, asker: CommandActor, reason: str
             ) -> CommandRecord:
        """Order `hold` or `release` on a node, without a victim. Raises AuditWriteError."""
        now = time.time()
        return self.order(CommandRecord(new_id(now), action, node_id, host, asker, reason, now, now,
                                        now + COMMAND_LASTS_S), None, None, None)

    def withdraw(self, command_id: str, why: str) -> bool:
        """Withdraw a command that has not been sent yet. False: it has been sent."""
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
                self.signer.raise_epoch(self.fence.epoch)
        except SignerUnavailableError:
            return GONE
        command = Command(
            record.id, record.node_id, self.fence.epoch, record.requested_at, record.expires_at,
            nonce, record.action, record.asker, record.reason, preview, condition)
        signature = self.signer.sign(command)
        if isinstance(signature, SignedCommand):
            self.fence.has_issued = True
        return signature

    # -- replies of nodes, and time

    def replied(self, node_id: str, reply: Reply) -> None:
        now = time.time()
        try:
            stored = self.store.find(reply.command_id)
        except CANNOT_STORE as error:  # the node repeats it when it reconnects
            log.warning("reply_not_taken command=%r reason=%r", reply.command_id, str(error))
            return
        if stored is None or stored.node_id != node_id:
            suppressed = self._strays.due(node_id, time.monotonic())
            if suppressed is not None:
                log.warning("stray_reply node=%s command=%r state=%s left_out=%d", node_id,
                            reply.command_id, reply.state, suppressed)
        self._try(self._commands.replied(node_id, reply, now, stored), now)

    def node_joined(self, node_id: str) -> None:
        now = time.time()
        self._try(self._commands.node_joined(node_id, now), now)

    def tick(self) -> None:
        now = time.time()
        self._try(self._commands.tick(now, self.wire.connected()), now)

    # -- effects

    def _try(self, effects: Iterable[Effect], now: float) -> None:
        """Run effects. A change that cannot be stored is not noted either, so that it is reported
        or detected again."""
        try:
            self._run(effects, now)
        except (AuditWriteError, *CANNOT_STORE) as error:
            log.warning("command_not_written reason=%r", str(error))

    def _run(self, effects: Iterable[Effect], now: float, **fields: Any) -> None:
        for effect in effects:
            match effect:
                case SaveCommandRecord():
                    self._save(effect, now, fields)
                case SendCommandMessage():
                    self.wire.send(effect.node_id, effect.message)

    def _save(self, effect: SaveCommandRecord, now: float, fields: dict[str, Any]) -> None:
        record = effect.record
        if effect.is_news:
            is_ahead = record.state in BEFORE_IT_ACTS
            with self.auditor.change("command", _audit_fields(record) | fields,
                                      takes_away=not is_ahead, is_strict=is_ahead):
                self.store.put(record)
        else:
            self.store.put(record)
        self._commands.record_saved(record, now)
        self.events.dispatch(CommandChanged(record))

    # -- queries

    def in_flight(self) -> list[CommandRecord]:
        return [record for record in self._commands.records.values() if record.is_open]

    def find(self, command_id: str) -> CommandRecord | None:
        return self._commands.records.get(command_id) or self.store.find(command_id)


def _audit_fields(record: CommandRecord) -> dict[str, Any]:
    refusal = record.refusal if record.state == "refused" else None
    verified = None if record.verified is None else msgspec.to_builtins(record.verified)
    return {"actor": record.asker.name, "actor_kind": record.asker.kind,
            "approved_by": record.asker.approved_by, "action": record.action,
            "node": record.node_id, "host": record.host, "task_id": record.task_id,
            "job_id": record.job_id, "owner": record.owner, "command_id": record.id,
            "reason": record.reason, "outcome": record.state, "step": record.step or None,
            "refusal": None if refusal is None else refusal.code,
            "sentence": f"{_subject(record)}, requested by {record.asker.name}: {sentence(record)}",
            "verified": verified}


def _subject(record: CommandRecord) -> str:
    task = "" if record.task_id is None else f" of task {record.task_id}"
    return f"{record.action}{task} on {record.host}"


def new_id(now: float) -> str:
    """Return a new id, which sorts by time and cannot be guessed."""
    return f"{int(now * 1_000):012x}{secrets.token_hex(10)}"
