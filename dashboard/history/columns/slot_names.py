"""Names that stand in files in place of a slot: its GPU and Node, and their cluster and host."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .arrays import Ints, Slots, lengths, runs
from .arrow_columns import words_at


@dataclass(frozen=True, slots=True)
class SlotStrings:
    """Words of slots: of each, the number of its word."""

    words: list[str | None]  # each once
    number: npt.NDArray[np.int32]

    def column(self, slot: npt.NDArray[np.intp], times: npt.NDArray[np.intp]) -> Any:
        """Return a column of the word of each slot so many times, with only the words that are in
        it: the writer spells out all."""
        numbers, at = np.unique(self.number[slot], return_inverse=True)
        return words_at(np.repeat(at.astype(np.int32), times),
                      [self.words[number] for number in numbers.tolist()])


def _words_of_slots(names: Sequence[str | None]) -> SlotStrings:
    words = sorted(set(names), key=lambda word: word or "")
    number = {word: at for at, word in enumerate(words)}
    return SlotStrings(words, np.array([number[name] for name in names], np.int32))


class NodeHosts(NamedTuple):
    """Name that a Node gives its machine, since when, and the one before."""

    now: str | None
    since: int = 0
    former: str | None = None

    def at(self, t: float) -> str | None:
        return self.now if t >= self.since else self.former


NOWHERE = NodeHosts(None)  # it was not heard of yet


@dataclass(frozen=True, slots=True)
class NamedSlots:
    """Words of all slots, until a slot is added or a host renamed."""

    gpus: SlotStrings
    nodes: SlotStrings
    hosts: SlotStrings  # the former ones of all slots, then those of now
    since: Ints
    renamings: int


@dataclass(slots=True)
class SlotNames:
    """Names of each slot. They only become more, while another thread reads: a slot is known once
    its Node is named, which comes last."""

    gpus: list[str]
    nodes: list[str]
    hosts: dict[str, NodeHosts]
    cluster: str | None
    _renamings: int = 0
    _cache: NamedSlots | None = None

    def set_host(self, node_id: str, host: str, t: float) -> None:
        """Name a Node's host from then on: rows of before keep the name that it had."""
        former = self.hosts.get(node_id)
        if former is None or former.now != host:
            self.hosts[node_id] = NodeHosts(host) if former is None else NodeHosts(
                host, int(t), former.now)
            self._renamings += 1

    def host(self, node_id: str, t: float) -> str | None:
        return self.hosts.get(node_id, NOWHERE).at(t)

    def columns(self, slot: Slots, t: Ints) -> dict[str, Any]:
        """Return the columns NAMES of each row."""
        words = self._cache
        if (words is None or len(words.since) < len(self.nodes)
                or words.renamings != self._renamings):
            words = self._cache = self._build()
        is_now = t >= words.since[slot]
        starts = runs(slot, is_now)
        times, first = lengths(starts, len(slot)), slot[starts]
        return {"gpu": words.gpus.column(first, times), "node": words.nodes.column(first, times),
                "cluster": words_at(np.zeros(len(slot), np.int32), [self.cluster]),
                "host": words.hosts.column(first + len(words.since) * is_now[starts], times)}

    def _build(self) -> NamedSlots:
        nodes, renamings = self.nodes[:], self._renamings
        hosts = [self.hosts.get(node, NOWHERE) for node in nodes]
        return NamedSlots(
            _words_of_slots(self.gpus[: len(nodes)]), _words_of_slots(nodes),
            _words_of_slots([*(host.former for host in hosts), *(host.now for host in hosts)]),
            np.array([host.since for host in hosts], np.int64), renamings)

    def order(self) -> npt.NDArray[np.intp]:
        """Return the slots as files are sorted."""
        many = len(self.nodes)
        pairs = list(zip(self.gpus[:many], self.nodes[:many], strict=True))
        return np.array(sorted(range(len(pairs)), key=pairs.__getitem__), np.intp)
