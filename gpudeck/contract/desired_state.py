"""The state that a node is to hold until it gets a newer one, signed; and what of it is in force.

Unlike a Command it does not expire: it lies on the node's disk, and holds without the hub.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from gpudeck.contract.message_limits import Number, Seconds, Signature, Text, Word
from gpudeck.contract.quota import MAX_QUOTAS, Quota

DESIRED_MAX_BYTES = 512_000
RECONCILE_EVERY_S = 10.0


class DesiredState(Struct, frozen=True):
    """The body that is signed. `generation` grows with every change, over restarts of the hub too;
    of two with the same one, the later issued counts."""

    node_id: Word
    epoch: Number
    generation: Number
    issued_at: Seconds  # by the hub's clock
    group: Word  # the node group that this one is in
    quotas: Annotated[tuple[Quota, ...], Meta(max_length=MAX_QUOTAS)] = ()


class SignedDesired(Struct, frozen=True, tag="desired"):
    body: Annotated[bytes, Meta(max_length=DESIRED_MAX_BYTES)]
    signature: Signature  # of desired_statement, by the key that the node has pinned


MechanismName = Literal["ladder", "memory_limit", "hami", "mps", "mig"]


class QuotaMechanism(Struct, frozen=True):
    """A means of this node to enforce a Quota: there or not, and how that is known."""

    name: MechanismName
    state: Literal["there", "not_there", "unknown"]
    proof: Text = ""


class QuotaEnforcement(Struct, frozen=True):
    """State of a Quota on this node, as of its last check. `over`: owners over it, for people."""

    quota_id: Word
    is_in_force: bool
    mechanism: Literal["ladder", "none"]
    proof: Text  # what was seen, or why it is not in force
    over: Annotated[tuple[Text, ...], Meta(max_length=16)] = ()


class InForce(Struct, frozen=True, tag="in_force"):
    """A node's report of what it enforces, sent when it changes and once a minute; its `generation`
    tells the hub what the node has on its disk. 0: nothing."""

    generation: Number
    issued_at: Seconds
    looked_at: Seconds  # by the node's clock
    quotas: Annotated[tuple[QuotaEnforcement, ...], Meta(max_length=MAX_QUOTAS)] = ()
    mechanisms: Annotated[tuple[QuotaMechanism, ...], Meta(max_length=8)] = ()
    trouble: Text = ""  # why the last state that was sent is not in force


_encode = msgspec.msgpack.Encoder().encode
_desired = msgspec.msgpack.Decoder(DesiredState)


def encode_desired(desired: DesiredState) -> bytes:
    return _encode(desired)


def decode_desired(body: bytes) -> DesiredState:
    """Decode a state whose signature was checked. Raises msgspec.MsgspecError."""
    return _desired.decode(body)


def desired_statement(body: bytes) -> bytes:
    """Return what is signed: it begins with its own words, so that no signature serves another
    purpose."""
    return _encode(("gpudeck wire 1 desired", body))
