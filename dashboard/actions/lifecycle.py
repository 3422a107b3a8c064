"""The life of a command at the hub, over a transport that loses, duplicates, reorders and delays.

Events in, effects out: if a SaveCommandRecord could not be written, it has not happened
(`record_saved` is not called), and messages after it are not sent. A SignedCommand is sent once,
ever; its outcome is then requested by Inquire, also after a restart. LIFE in
gpudeck.contract.actions says which state may follow which.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from gpudeck.contract.action_table import Action
from gpudeck.contract.actions import (
    FINAL,
    LIFE,
    MEMORY_BACK_WITHIN_S,
    UNKILLABLE_AFTER_S,
    ActionParams,
    ActionVerification,
    CommandActor,
    CommandState,
    Refusal,
    Reply,
)
from gpudeck.contract.wire import FromHub, Inquire, Noted, SignedCommand

ANSWER_WITHIN_S = 5.0  # after a command can no longer begin
SLACK_S = 15.0
REQUESTED_MOST_S = 60.0
ASK_EVERY_S = 10.0
# An agent keeps its outcomes for at least a day; asking for longer would be useless.
ASKED_FOR_S = 86_400.0
INQUIRE_MOST = 1_024


class CommandStateChange(msgspec.Struct, frozen=True):
    state: CommandState
    at: float
    step: str = ""


class CommandRecord(msgspec.Struct, frozen=True):
    """A command as the hub knows it. Times are the hub's."""

    id: str
    action: Action
    node_id: str
    host: str
    asker: CommandActor
    reason: str
    requested_at: float
    updated_at: float
    expires_at: float
    params: ActionParams = ActionParams()
    state: CommandState = "requested"
    step: str = ""
    task_id: str | None = None
    task_ids: tuple[str, ...] = ()
    job_id: str | None = None
    owner: str | None = None
    command: str | None = None  # the command line of its first victim
    mem_used_bytes: float | None = None
    bystanders: int | None = None  # how many the preview showed
    credential: str = ""
    refusal: Refusal | None = None
    verified: ActionVerification | None = None
    number: int = 0  # of the newest Reply that was applied
    history: tuple[CommandStateChange, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.state not in FINAL

    def is_pending(self, now: float) -> bool:
        """Return whether the node may still report something about it."""
        return self.is_open or (self.state == "unknown" and now < self.expires_at + ASKED_FOR_S)


@dataclass(frozen=True, slots=True)
class SaveCommandRecord:
    """Write to disk; with `is_news`, to the audit log too."""

    record: CommandRecord
    is_news: bool = True


@dataclass(frozen=True, slots=True)
class SendCommandMessage:
    node_id: str
    message: FromHub


Effect = SaveCommandRecord | SendCommandMessage


def _reachable(state: CommandState) -> frozenset[CommandState]:
    """Return the states that may come after this one. Replies get lost, so that the first one to
    arrive may skip several steps."""
    return frozenset(LIFE[state]).union(*map(_reachable, LIFE[state]))


REACHABLE = {state: _reachable(state) for state in LIFE}


class CommandLifecycle:
    """Commands about which the node may still report something."""

    def __init__(self) -> None:
        self.records: dict[str, CommandRecord] = {}
        self._unsent: dict[str, SignedCommand] = {}  # in memory only: a restart sends nothing
        self._inquired_at: dict[str, float] = {}

    def of_node(self, node_id: str) -> list[CommandRecord]:
        return [record for record in self.records.values() if record.node_id == node_id]

    def record_saved(self, record: CommandRecord, now: float) -> None:
        """Note that a record is on disk."""
        if record.is_pending(now):
            self.records[record.id] = record
        else:
            self.records.pop(record.id, None)
            self._inquired_at.pop(record.id, None)
        if record.state != "queued":
            self._unsent.pop(record.id, None)

    # -- requests and signatures

    def request(self, record: CommandRecord) -> list[Effect]:
        first_change = CommandStateChange("requested", record.requested_at)
        return [SaveCommandRecord(replace(record, history=(first_change,)))]

    def refuse(self, command_id: str, refusal: Refusal, now: float) -> list[Effect]:
        record = self.records[command_id]
        return [SaveCommandRecord(_with_state(record, "refused", now, refusal=refusal))]

    def signed(self, command_id: str, message: SignedCommand, is_connected: bool, now: float
               ) -> list[Effect]:
        record = _with_state(self.records[command_id], "queued", now)
        self._unsent[command_id] = message
        return self._send(record, message, now) if is_connected else [SaveCommandRecord(record)]

    def _send(self, record: CommandRecord, message: SignedCommand, now: float) -> list[Effect]:
        """Send a command, recorded as sent before it is: after a crash in between, the node is
        asked about it, and it is not sent again."""
        return [SaveCommandRecord(_with_state(record, "sent", now)),
                SendCommandMessage(record.node_id, message)]

    # -- replies of nodes

    def node_joined(self, node_id: str, now: float) -> list[Effect]:
        """Handle a reconnect. Earlier replies may have been lost, so the node is asked for them."""
        effects: list[Effect] = []
        command_ids: list[str] = []
        for record in self.of_node(node_id):
            message = self._unsent.get(record.id)
            if record.state == "queued" and message is not None and now < record.expires_at:
                effects += self._send(record, message, now)
            elif record.state not in ("requested", "queued"):
                command_ids.append(record.id)
        return [*self._inquire(node_id, command_ids, now), *effects]

    def replied(self, node_id: str, reply: Reply, now: float, stored: CommandRecord | None = None
                ) -> list[Effect]:
        """Handle a reply. `stored`: the record on disk, for a command that is not in memory any
        more."""
        record = self.records.get(reply.command_id, stored)
        acknowledgement = SendCommandMessage(node_id, Noted(reply.command_id, reply.number))
        if record is None or record.node_id != node_id or reply.number <= record.number:
            return [acknowledgement]
        news = reply.state != record.state and reply.state in REACHABLE[record.state]
        if not news and not record.is_pending(now):
            return [acknowledgement]
        state = reply.state if news else record.state
        updated = replace(record, number=reply.number, step=reply.step,
                          refusal=reply.refusal or record.refusal,
                          verified=reply.verified or record.verified)
        changed = (_with_state(updated, state, now, reply.step) if news
                   else replace(updated, updated_at=now))
        return [SaveCommandRecord(changed, news), acknowledgement]

    # -- time

    def tick(self, now: float, connected: Collection[str]) -> list[Effect]:
        effects: list[Effect] = []
        inquiries: dict[str, list[str]] = {}
        for record in list(self.records.values()):
            late = self._late(record, now)
            if late is not None:
                effects.append(SaveCommandRecord(late))
            if (record.state == "unknown" or (late is not None and late.state == "unknown")) and (
                    record.node_id in connected
                    and now - self._inquired_at.get(record.id, -ASK_EVERY_S) >= ASK_EVERY_S):
                inquiries.setdefault(record.node_id, []).append(record.id)
        for node_id, command_ids in inquiries.items():
            effects += self._inquire(node_id, command_ids, now)
        return effects

    def _late(self, record: CommandRecord, now: float) -> CommandRecord | None:
        match record.state:
            case "requested" if now >= record.requested_at + REQUESTED_MOST_S:
                return _with_state(record, "refused", now, refusal=NOT_SIGNED)
            case "queued" if now >= record.expires_at:
                return _with_state(record, "expired", now)
            case "sent" if now >= record.expires_at + ANSWER_WITHIN_S:
                return _with_state(record, "unknown", now)
            case "accepted" | "acting" if now >= record.updated_at + _most_s(record.params):
                return _with_state(record, "unknown", now)
            case "unknown" if not record.is_pending(now):
                self.records.pop(record.id)
        return None

    def _inquire(self, node_id: str, command_ids: list[str], now: float) -> list[Effect]:
        self._inquired_at |= dict.fromkeys(command_ids, now)
        return [SendCommandMessage(node_id, Inquire(tuple(command_ids[at : at + INQUIRE_MOST])))
                for at in range(0, len(command_ids), INQUIRE_MOST)]

    # -- start

    def recovered(self, records: Iterable[CommandRecord], now: float) -> list[Effect]:
        """Recover records from disk, which may have been restored from a backup: nothing of them is
        ever sent."""
        effects: list[Effect] = []
        for record in records:
            self.records[record.id] = record
            if record.state == "requested":
                effects.append(SaveCommandRecord(
                    _with_state(record, "refused", now, refusal=NOT_SIGNED)))
            elif record.state == "queued":
                effects.append(SaveCommandRecord(_with_state(
                    record, "expired", now, "the hub was restarted before this was sent")))
        return effects


NOT_SIGNED = Refusal("expired", "the hub stopped before this was signed; nothing was sent")


def _most_s(params: ActionParams) -> float:
    """Return the longest time for which a node may be silent while it acts."""
    within_s = params.checkpoint_within_s
    return ((0.0 if within_s is UNSET else within_s) + params.checkpoint_wait_s + params.grace_s
            + UNKILLABLE_AFTER_S + MEMORY_BACK_WITHIN_S + SLACK_S)


def _with_state(record: CommandRecord, state: CommandState, now: float, step: str = "",
                refusal: Refusal | None = None) -> CommandRecord:
    return replace(record, state=state, updated_at=now, step=step,
                   refusal=refusal or record.refusal,
                   history=(*record.history, CommandStateChange(state, now, step)))
