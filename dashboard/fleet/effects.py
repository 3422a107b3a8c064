"""What goes into the room and what comes out of it: events and effects."""

from dataclasses import dataclass
from typing import Any

from gpudeck.actions import Preview, Reply
from gpudeck.desired_state import InForce
from gpudeck.wire import Beat, FromAgent, FromHub, Hello, Inventory, Sequenced

# events


@dataclass(slots=True, frozen=True)
class MessageReceived:
    """An agent's message; `link` is its connection, and identity comes from there alone."""

    link: str
    message: FromAgent
    payload: bytes


@dataclass(slots=True, frozen=True)
class LinkClosed:
    link: str


@dataclass(slots=True, frozen=True)
class RevokeNode:
    """This node is no member any more."""

    node_id: str


@dataclass(slots=True, frozen=True)
class RateExceeded:
    link: str
    what: str


@dataclass(slots=True, frozen=True)
class Tick:
    """Once a second; the room sees by it that it stood still itself."""


@dataclass(slots=True, frozen=True)
class RecordsStored:
    """These are on disk now."""

    records: "tuple[StreamRecord, ...]"


@dataclass(slots=True, frozen=True)
class StorageFailed:
    """The disk takes nothing; `dropped` did not fit into memory either."""

    reason: str
    dropped: "tuple[StreamRecord, ...]" = ()


HubEvent = (MessageReceived | LinkClosed | RevokeNode | RateExceeded | Tick | RecordsStored
            | StorageFailed)


# effects


@dataclass(slots=True, frozen=True)
class SendMessage:
    link: str
    message: FromHub


@dataclass(slots=True, frozen=True)
class CloseLink:
    link: str
    reason: str


@dataclass(slots=True, frozen=True)
class MessageApplied:
    """A Frame or Event that is new; for taps, and to wake the live path. Rules act on none that
    `is_backfill`."""

    node_id: str
    stream: str
    seq: int
    received_at: float
    is_backfill: bool = False


@dataclass(slots=True, frozen=True)
class StreamRecord:
    """For the head log, as received. `seq` 0: a Hello or an Inventory. `message` is for history,
    and `second` the one of the hub's clock in which a Frame was taken."""

    node_id: str
    stream: str
    seq: int
    received_at: float
    payload: bytes
    is_backfill: bool = False  # of a time without us: history, on which nothing acts
    message: Hello | Inventory | Sequenced | None = None
    second: int = 0

    @property
    def applied(self) -> MessageApplied:
        return MessageApplied(self.node_id, self.stream, self.seq, self.received_at,
                              self.is_backfill)


@dataclass(slots=True, frozen=True)
class LogMessage:
    """For the log of the program; never holds a secret."""

    what: str
    fields: dict[str, Any]


@dataclass(slots=True, frozen=True)
class NodeReport:
    """Of acts, and of the node itself: nothing of it is the fleet's picture."""

    node_id: str
    message: Preview | Reply | Beat | InForce


@dataclass(slots=True, frozen=True)
class NodeJoined:
    """Connected, and welcomed."""

    node_id: str


@dataclass(slots=True, frozen=True)
class EpochRaised:
    """To this epoch, and no command may carry another."""

    epoch: int


Effect = (SendMessage | CloseLink | StreamRecord | MessageApplied | LogMessage | NodeReport
          | NodeJoined | EpochRaised)
