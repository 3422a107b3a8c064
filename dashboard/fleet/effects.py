"""Events into the fleet's state machine, and effects out of it."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from gpudeck.contract.actions import Preview, Reply
from gpudeck.contract.desired_state import InForce
from gpudeck.contract.gpu_facts import GpuFacts
from gpudeck.contract.message_limits import Word
from gpudeck.contract.pool_link import PoolReport
from gpudeck.contract.sequence_ranges import SequenceRanges
from gpudeck.contract.wire import Beat, Frame, FromAgent, FromHub, Hello, Inventory, Sequenced

# events


class MessageReceived(Struct, frozen=True, gc=False):
    """An agent's message; `link` is its connection, and identity comes from there alone."""

    link: str
    message: FromAgent
    payload: bytes


class LinkClosed(Struct, frozen=True):
    link: str


class RevokeNode(Struct, frozen=True):
    """Revocation of a node, which is no member any more."""

    node_id: str


class RateExceeded(Struct, frozen=True):
    """`bound`: the limit, in words that follow "more than"."""

    link: str
    what: str
    bound: str


class Tick(Struct, frozen=True):
    """A second has passed; by it the state machine sees that it stood still itself."""


class RecordsStored(Struct, frozen=True):
    """Records that are on disk now."""

    records: "tuple[StreamRecord, ...]"


class ArchiveGrown(Struct, frozen=True):
    """Messages that are in the archive now, by node id and stream: all of them."""

    streams: dict[tuple[str, str], SequenceRanges]


class ArchiveJoined(Struct, frozen=True):
    """Messages that another hub had archived before this one took over."""

    streams: dict[tuple[str, str], SequenceRanges]


class StorageFailed(Struct, frozen=True):
    """The disk refuses writes; `dropped` did not fit into memory either."""

    reason: str
    dropped: "tuple[StreamRecord, ...]" = ()


class RecordingImported(Struct, frozen=True):
    """Recording of a node, imported: history, on which nothing acts."""

    hello: Hello
    inventories: tuple[Inventory, ...]  # the last lists all of its GPUs
    frames: tuple[Frame, ...]


class SitesViewed(Struct, frozen=True):
    """Other hubs that this one views, by name and URL, and the name of its own site among them."""

    own: str
    sites: tuple[tuple[str, str], ...]


class SiteNode(Struct, frozen=True):
    id: Word
    host: Word
    backend: Word
    driver: Word | None
    agent: Word


class SiteLayout(Struct, frozen=True):
    """`node_at`: the place of each GPU's node."""

    nodes: tuple[SiteNode, ...]
    gpus: tuple[GpuFacts, ...]
    node_at: npt.NDArray[np.intp]


class SiteNumbers(Struct, frozen=True):
    """Numbers of the GPUs of a layout, in its order. `age_s`: since it was read; inf: never."""

    received_mono: float
    values: npt.NDArray[np.float64]
    absent: npt.NDArray[np.uint8]
    states: npt.NDArray[np.uint8]
    age_s: npt.NDArray[np.float64]
    is_free: npt.NDArray[np.bool_]
    node_states: tuple[Literal["live", "suspect", "silent"], ...]
    tasks: int


class SiteOwners(Struct, frozen=True):
    names: tuple[str, ...]
    owner: npt.NDArray[np.uint16]
    is_paused: npt.NDArray[np.bool_]


class SiteHeard(Struct, frozen=True):
    """News of a site: the newest of each kind; what came between is not missed."""

    site: str
    layout: SiteLayout | None
    owners: SiteOwners | None
    numbers: SiteNumbers | None


class SiteAway(Struct, frozen=True):
    site: str
    why: str


HubEvent = (MessageReceived | LinkClosed | RevokeNode | RateExceeded | Tick | RecordsStored
            | StorageFailed | ArchiveGrown | ArchiveJoined | RecordingImported | SitesViewed
            | SiteHeard | SiteAway)


# effects


class SendMessage(Struct, frozen=True, gc=False):
    link: str
    message: FromHub


class CloseLink(Struct, frozen=True):
    link: str
    reason: str


class StreamRecord(Struct, frozen=True, gc=False):
    """A new message, as received: for the head log, for taps, and to wake the live path. `seq` 0: a
    Hello or an Inventory. `message` is for history, and `second` the one of the hub's clock in
    which a Frame was taken."""

    node_id: str
    stream: str
    seq: int
    received_at: float
    payload: bytes
    is_backfill: bool = False  # of an outage: history, on which nothing acts
    message: Hello | Inventory | Sequenced | None = None
    second: int = 0


class LogMessage(Struct, frozen=True):
    """Line for the program's log; never holds a secret."""

    what: str
    fields: dict[str, Any]


class NodeReport(Struct, frozen=True, gc=False):
    """Message about actions or the node itself: none of it belongs to the fleet's picture."""

    node_id: str
    message: Preview | Reply | Beat | InForce | PoolReport


class NodeJoined(Struct, frozen=True):
    """A node that connected and was welcomed."""

    node_id: str


class EpochRaised(Struct, frozen=True):
    """New epoch, which every command from now on carries."""

    epoch: int


Effect = (SendMessage | CloseLink | StreamRecord | LogMessage | NodeReport
          | NodeJoined | EpochRaised)
