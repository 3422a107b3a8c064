"""Messages of a viewed hub, checked and bounded. Pure.

A site is trusted only about its own GPUs. What it sends may be anything: it is decoded by type,
limited in size, and only the newest of each kind is kept, however much it sends.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Raw, Struct

from gpudeck.contract.gpu_facts import GpuFacts
from gpudeck.contract.message_limits import Number, Word

from ..fleet.effects import SiteLayout, SiteNode, SiteNumbers, SiteOwners
from ..fleet.numbers_views import NODE_STATES
from ..fleet.sites import MOST_GPUS, MOST_NODES, columns_of

NAMESPACE = "/live"
NAMES_MOST = 4_000
MODELS_MOST = 256
AGE_MOST_S = 1e9
GPUS_SAID_MOST = 10 * MOST_GPUS


class SiteMessageError(Exception):
    """A message that no hub sends. The text is for people."""


class SiteFacts(Struct):
    epoch: int
    metrics: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=128)]
    nodes: Annotated[tuple[SiteNode, ...], Meta(max_length=MOST_NODES)]
    gpus: Annotated[tuple[GpuFacts, ...], Meta(max_length=GPUS_SAID_MOST)]
    node: bytes


class SiteFigures(Struct):
    epoch: int
    n: Number
    values: bytes
    absent: bytes
    states: bytes
    age: bytes
    nodes: bytes


class SiteTotals(Struct):
    epoch: int
    free: bytes
    tasks: Number = 0


class SiteOwnerCodes(Struct):
    epoch: int
    names: Annotated[tuple[Word, ...], Meta(max_length=NAMES_MOST)]
    owner: bytes
    paused: bytes


class LivePacket(Struct):
    """A Socket.IO packet."""

    type: int
    nsp: str = "/"
    data: Raw = Raw(b"\xc0")


_packets = msgspec.msgpack.Decoder(LivePacket)
_events = msgspec.msgpack.Decoder(tuple[str, Raw])
_kinds: dict[str, msgspec.msgpack.Decoder[Any]] = {
    name: msgspec.msgpack.Decoder(kind) for name, kind in (
        ("facts", SiteFacts), ("numbers", SiteFigures), ("totals", SiteTotals),
        ("owners", SiteOwnerCodes), ("bye", dict[str, str]))}


def packet(data: bytes) -> tuple[int, tuple[str, Any] | None]:
    """Return the packet's type and, for an event that we know, its name and content. Raises
    SiteMessageError."""
    try:
        decoded = _packets.decode(data)
        if decoded.type != 2 or decoded.nsp != NAMESPACE:
            return decoded.type, None
        name, content = _events.decode(decoded.data)
        return 2, (name, _kinds[name].decode(content)) if name in _kinds else None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SiteMessageError(f"it sends what this version does not understand ({error}); update "
                               "gpudeck there or here") from error


@dataclass(frozen=True, slots=True)
class SitePicture:
    """The newest layout, owners and numbers of a site. Each is replaced, never changed."""

    layout: SiteLayout | None = None
    owners: SiteOwners | None = None
    numbers: SiteNumbers | None = None


class SiteStream:
    """Builds a picture from the events of one connection."""

    def __init__(self) -> None:
        self.picture = SitePicture()
        self._facts: SiteFacts | None = None
        self._totals: SiteTotals | None = None

    def apply(self, content: Any, mono: float) -> None:
        match content:
            case SiteFacts():
                self._apply_facts(content)
            case SiteTotals():
                self._totals = content
            case SiteOwnerCodes() if self._is_of_facts(content.epoch):
                self._put(owners=_owners(content))
            case SiteFigures() if self._is_of_facts(content.epoch):
                assert self._facts is not None
                if content.n >= len(self._facts.gpus):
                    self._put(numbers=_numbers(self._facts, content, self._totals, mono))

    def _is_of_facts(self, epoch: int) -> bool:
        return self._facts is not None and self._facts.epoch == epoch

    def _put(self, **new: Any) -> None:
        old = self.picture
        self.picture = SitePicture(**{"layout": old.layout, "owners": old.owners,
                                      "numbers": old.numbers} | new)

    def _apply_facts(self, facts: SiteFacts) -> None:
        previous, self._facts = self._facts, facts
        if previous == facts:
            return
        layout = _layout(facts)
        is_same = previous is not None and previous.epoch == facts.epoch
        # Numbers of another epoch belong to other GPUs.
        self.picture = SitePicture(layout, self.picture.owners if is_same else None,
                                   self.picture.numbers if is_same else None)


def _array(data: bytes, dtype: str, count: int, what: str) -> "np.ndarray[Any, Any]":
    numbers = np.frombuffer(data, dtype) if len(data) % np.dtype(dtype).itemsize == 0 else None
    if numbers is None or len(numbers) < count:
        raise SiteMessageError(f"it sends fewer {what} than it has GPUs")
    return numbers


def _layout(facts: SiteFacts) -> SiteLayout:
    count = len(facts.gpus)
    at = _array(facts.node, "<i4", count, "places")[:count].astype(np.intp)
    if count and (at.min() < 0 or at.max() >= len(facts.nodes)):
        raise SiteMessageError("it has a GPU on no node")
    if len({gpu.name for gpu in facts.gpus}) > MODELS_MOST:
        raise SiteMessageError(f"it names more than {MODELS_MOST} models")
    if len({node.id for node in facts.nodes}) < len(facts.nodes):
        raise SiteMessageError("it lists a node twice")
    if len({(place, gpu.uuid) for place, gpu in zip(at.tolist(), facts.gpus, strict=True)}) < count:
        raise SiteMessageError("it lists a GPU twice")
    return SiteLayout(facts.nodes, facts.gpus, at)


def _numbers(facts: SiteFacts, figures: SiteFigures, totals: SiteTotals | None, mono: float
             ) -> SiteNumbers:
    count, wide = len(facts.gpus), len(facts.metrics)
    values = _array(figures.values, "<f4", count * wide, "values")[: count * wide]
    absent = _array(figures.absent, "u1", count * wide, "values")[: count * wide]
    rows, codes = columns_of(facts.metrics, values.reshape(count, wide),
                             absent.reshape(count, wide))
    ages = _array(figures.age, "<f4", count, "ages")[:count].astype(float)
    ages = np.where((ages >= 0) & (ages <= AGE_MOST_S), ages, np.inf)
    states = tuple(NODE_STATES[min(code, len(NODE_STATES) - 1)] for code in figures.nodes)
    is_free = np.zeros(count, bool)
    if totals is not None and totals.epoch == facts.epoch:
        free_bits = _bits(totals.free)[:count]
        is_free[: len(free_bits)] = free_bits
    return SiteNumbers(mono, rows, codes, _array(figures.states, "u1", count, "states")[:count],
                       ages, is_free, states, 0 if totals is None else totals.tasks)


def _owners(codes: SiteOwnerCodes) -> SiteOwners:
    owner = _array(codes.owner, "<u2", 0, "owners")
    paused = np.zeros(len(owner), bool)
    paused_bits = _bits(codes.paused)[: len(owner)]
    paused[: len(paused_bits)] = paused_bits
    return SiteOwners(codes.names, owner, paused)


def _bits(data: bytes) -> "np.ndarray[Any, Any]":
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(bool)
