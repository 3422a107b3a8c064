"""Messages between `gpudeck run`, `claim` and `pool` and the agent, over its Unix socket.

The kernel says who asks (SO_PEERCRED), never a field. A message is its length in four bytes, then
MessagePack; file descriptors travel beside it."""

import array
import socket
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from gpudeck.contract.message_limits import Amount, Number, Seconds, Text, Word
from gpudeck.pool.core.claims import PRIORITIES, TERM_LEAST_S, TERM_MOST_S, WHOLE_MILLI
from gpudeck.pool.core.wait_estimate import WaitEstimate

MAX_FRAME_BYTES = 65_536
MAX_FDS = 1
WITHIN_S = 5.0  # for the rest of a message, once it has begun
SOCKET_ENV = "GPUDECK_POOL_SOCKET"
LEASE_ENV = "GPUDECK_LEASE"
SCOPE_UNIT = "gpudeck-{}.scope"  # of a lease, in the user's systemd
ELSEWHERE_MOST = 3
EXTEND_MOST_S = 30 * 86_400.0
NODES_MOST = 1_024
SYSTEM_SOCKET = "/run/gpudeck/pool.sock"


class PoolSocketError(Exception):
    """The other side has gone, or says what nobody understands."""


class AskClaim(Struct, frozen=True, tag="claim", forbid_unknown_fields=True, omit_defaults=True):
    """Request for a claim. Only what is asked for is sent: an older agent knows no later field.

    `request_id`: asked again with it, the same claim is meant. `is_run`: it holds GPUs for a
    process that this connection will name. `limits_itself`: it holds its share without MPS.
    `again_of`: its former lease, which was taken from it."""

    request_id: Word
    is_run: bool
    gpus: Annotated[int, Meta(ge=1, le=1_024)]
    nodes: Annotated[int, Meta(ge=1, le=NODES_MOST)] = 1
    share_milli: Annotated[int, Meta(ge=1, le=WHOLE_MILLI)] = WHOLE_MILLI
    mem_bytes: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    cpu_milli: Number | None = None
    models: Annotated[tuple[Word, ...], Meta(max_length=16)] = ()
    hosts: Annotated[tuple[Word, ...], Meta(max_length=64)] = ()
    term_s: Annotated[float, Meta(ge=TERM_LEAST_S, le=TERM_MOST_S)] | None = None
    wait_s: Amount | None = None  # None: until it is given up
    priority: Annotated[int, Meta(ge=PRIORITIES.start, lt=PRIORITIES.stop)] | None = None
    is_preemptible: bool = False
    starts_at: Seconds | None = None  # UTC, of a reservation
    limits_itself: bool = False
    again_of: Word | None = None
    shape: Text = ""
    ram_bytes: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    is_suspendable: bool = False


class Bind(Struct, frozen=True, tag="bind", forbid_unknown_fields=True):
    """Bind a lease. A pidfd travels with it: of the process that the lease is for, which waits."""

    lease_id: Word


class UseLease(Struct, frozen=True, tag="use", forbid_unknown_fields=True):
    """Use a lease that the asker holds already. `is_run`: for a run, if nothing runs on it yet."""

    lease_id: Word
    is_run: bool


class CancelClaim(Struct, frozen=True, tag="cancel", forbid_unknown_fields=True):
    """Cancel a claim that waits here, or a reservation."""

    claim_id: Word


class GiveBack(Struct, frozen=True, tag="give_back", forbid_unknown_fields=True):
    lease_id: Word
    exit_status: int | None = None


class Extend(Struct, frozen=True, tag="extend", forbid_unknown_fields=True):
    lease_id: Word
    by_s: Annotated[float, Meta(gt=0, le=EXTEND_MOST_S)]


class ShowPool(Struct, frozen=True, tag="show", forbid_unknown_fields=True):
    pass


class ClaimRefused(Struct, frozen=True, tag="refused"):
    """Refusal of a request. `waits`: of one about a lease, for its claim still waits. `is_full`: of
    the connection, for there are too many; it says nothing of the request."""

    why: Text
    waits: bool = False
    is_full: bool = False


class ClaimWaits(Struct, frozen=True, tag="waits"):
    """Place of a claim in the queue. `place` 1: the next. `wait_s`: at most, while terms are
    honoured; None: nobody can say. `elsewhere`: nodes that have it free."""

    place: Number
    why: Text
    wait_s: Amount | None = None
    estimate: WaitEstimate | None = None
    elsewhere: Annotated[tuple[Word, ...], Meta(max_length=ELSEWHERE_MOST)] = ()


class LeasedGpu(Struct, frozen=True):
    uuid: Word
    name: Word
    index: Number
    is_mig: bool = False
    pci_bus_id: Word | None = None
    mem_bytes: Amount | None = None


class Leased(Struct, frozen=True, tag="leased"):
    """Lease as granted. `node_uuids`: of all whole boards here that are not lost, to know whether
    the asker sees the same. `mps_pipes`: where the daemon of MPS that holds a share is. `hosts`: of
    a lease on several nodes all, in the order of ranks. `cpu_milli`, `ram_bytes`: of its node.
    `cores`: that are for it alone."""

    lease_id: Word
    host: Word
    gpus: tuple[LeasedGpu, ...]
    until: Seconds  # UTC
    share_milli: Number
    mem_bytes: Amount | None
    bind_within_s: Amount
    node_uuids: tuple[Word, ...] = ()
    mps_pipes: Text = ""
    hosts: tuple[Word, ...] = ()
    cpu_milli: Number | None = None
    ram_bytes: Amount | None = None
    cores: tuple[Number, ...] = ()


class Bound(Struct, frozen=True, tag="bound"):
    pass


class Reserved(Struct, frozen=True, tag="reserved"):
    """Reservation that is kept from now on, whether or not anybody is connected."""

    claim_id: Word
    starts_at: Seconds
    gpus: tuple[LeasedGpu, ...]


class ClaimCancelled(Struct, frozen=True, tag="cancelled"):
    pass


class LeaseNotice(Struct, frozen=True, tag="notice"):
    """Notice for the owner of a lease. `end`: of a run whose GPUs are taken back, how it ends its
    command: `term`, `kill`, or `no`, not any more. None: this is about something else."""

    text: Text
    end: Word | None = None


class LeaseEnded(Struct, frozen=True, tag="ended"):
    """End of a lease. `state`: how; a run whose lease was `preempted` may ask again."""

    why: Text
    state: Word = "released"


class HeldGpus(Struct, frozen=True):
    """GPUs of a lease. `host_words`: its CPUs and its memory of the node."""

    lease_id: Word
    owner: Word
    uuids: tuple[Word, ...]
    share_milli: Number
    state: Word
    until: Seconds
    unused_s: Amount | None = None
    host_words: Text = ""


class WaitingClaim(Struct, frozen=True):
    owner: Word
    asks: Text
    place: Number
    why: Text
    waits_s: Amount
    wait_s: Amount | None = None
    claim_id: Word = ""


class UnavailableGpu(Struct, frozen=True):
    uuid: Word
    why: Text
    reason: Text = ""  # gpudeck.measures.availability


class ReservedOnNode(Struct, frozen=True):
    """Reservation on this node. Times are UTC."""

    owner: Word
    uuids: tuple[Word, ...]
    starts_at: Seconds
    ends_at: Seconds
    claim_id: Word = ""


class PoolShown(Struct, frozen=True, tag="shown"):
    """Pool of a node, as shown. `left_words`: CPUs and memory of the node that no lease has."""

    host: Word
    gpus: tuple[LeasedGpu, ...]
    held: tuple[HeldGpus, ...]
    waiting: tuple[WaitingClaim, ...]
    unavailable: tuple[UnavailableGpu, ...]
    reserved: tuple[ReservedOnNode, ...] = ()
    left_words: Text = ""


FromUser = AskClaim | Bind | UseLease | CancelClaim | GiveBack | Extend | ShowPool
FromPool = (ClaimRefused | ClaimWaits | Leased | Bound | LeaseNotice | LeaseEnded | PoolShown
            | Reserved | ClaimCancelled)

_encode = msgspec.msgpack.Encoder().encode
_from_user: msgspec.msgpack.Decoder[FromUser] = msgspec.msgpack.Decoder(FromUser)
_from_pool: msgspec.msgpack.Decoder[FromPool] = msgspec.msgpack.Decoder(FromPool)
T = TypeVar("T")


def frame(message: FromUser | FromPool) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(4) + body


def send(sock: socket.socket, message: FromUser | FromPool, *fds: int) -> None:
    whole = frame(message)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sent_bytes = sock.sendmsg([whole], rights)
        sock.sendall(whole[sent_bytes:])
    except OSError as error:
        raise PoolSocketError(str(error)) from error


def from_user(sock: socket.socket) -> tuple[FromUser, list[int]] | None:
    return _receive(sock, _from_user)


def from_pool(sock: socket.socket) -> FromPool | None:
    received = _receive(sock, _from_pool)
    return None if received is None else received[0]


def _receive(sock: socket.socket, decoder: "msgspec.msgpack.Decoder[T]"
             ) -> tuple[T, list[int]] | None:
    """Receive a message and its file descriptors. None: the other side hung up between two
    messages."""
    fds: list[int] = []
    try:
        head, fds, *_ = socket.recv_fds(sock, 4, MAX_FDS)
        if not head:
            return None
        sock.settimeout(WITHIN_S)
        head += _rest(sock, 4 - len(head))
        length = int.from_bytes(head)
        if length > MAX_FRAME_BYTES:
            raise PoolSocketError(f"a message of {length} bytes; {MAX_FRAME_BYTES} at most")
        message = decoder.decode(_rest(sock, length))
        sock.settimeout(None)
        return message, fds
    except (OSError, msgspec.MsgspecError, PoolSocketError) as error:
        for fd in fds:
            socket.close(fd)
        raise PoolSocketError(str(error)) from error


def _rest(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        if not part:
            raise PoolSocketError("the message ends in the middle")
        parts += part
    return bytes(parts)
