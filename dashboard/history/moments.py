"""The whole fleet within one block: which row of a file is whose second, kept for the next
question, since whoever drags the time bar asks for the same five minutes again and again."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .head import BLOCK_S
from .reading import Footers, Places, block_column, block_places, seconds_of

KEPT_ROWS = 8_000_000  # in all that is kept; the newest is kept in any case

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Moment:
    """Rows of one second or more, in no order."""

    gpus: list[str]
    nodes: list[str]
    pair: npt.NDArray[np.int32]  # which of these
    t: npt.NDArray[np.int64]
    value: Floats
    missing: list[str | None]


class Moments:
    """Used under a lock of its owner."""

    def __init__(self) -> None:
        self._places: OrderedDict[tuple[str, int], Places] = OrderedDict()
        self._footers = Footers()

    def places(self, path: Path, start: int) -> Places:
        key = (path.name, start)
        found = self._places.pop(key, None)
        if found is None:
            found = block_places(self._footers.open(path, ("gpu", "node", "missing")), start,
                                 start + BLOCK_S)
        self._places[key] = found
        while len(self._places) > 1 and sum(
                len(kept.t) for kept in self._places.values()) > KEPT_ROWS:
            self._places.popitem(last=False)
        return found

    def newest(self, paths: Sequence[Path], metric: str, first: int, last: int) -> list[Moment]:
        """Of each Gpu in each file, the newest row from first to last, both included."""
        return [one for path in paths for start in range(first - first % BLOCK_S, last + 1, BLOCK_S)
                if (one := self._newest(path, start, metric, first, last)) is not None]

    def _newest(self, path: Path, start: int, metric: str, first: int, last: int) -> Moment | None:
        places = self.places(path, start)
        hits = np.flatnonzero((places.t >= first - start) & (places.t <= last - start))
        if not len(hits):
            return None
        # By pair and time in a file: the last of each run is the newest.
        runs = np.append(np.flatnonzero(np.diff(places.pair[hits])), len(hits) - 1)
        rows = hits[runs]
        value = block_column(self._footers.open(path), metric, places, rows)
        words = [places.words[at] if at >= 0 else None for at in places.missing[rows].tolist()]
        return Moment(places.gpus, places.nodes, places.pair[rows],
                      places.t[rows].astype(np.int64) + start, value, words)

    def seconds(self, paths: Sequence[Path], gpus: Sequence[str], keys: Sequence[str],
                span: tuple[int, int], nodes: frozenset[str] | None) -> list[dict[str, Any]]:
        return [part for path in paths for part in seconds_of(
            self._footers.open(path, ("gpu",)), gpus, keys, span, nodes)]

    def matrix(self, path: Path, metric: str, start: int) -> tuple[Places, Floats]:
        """Seconds down, pairs across; a hole is NaN."""
        places = self.places(path, start)
        wide = np.full((BLOCK_S, len(places.gpus)), np.nan)
        if len(places.t):
            wide[places.t, places.pair] = block_column(self._footers.open(path), metric, places)
        return places, wide


def columns_of(moments: Sequence[Moment]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"gpu": [], "node": [], "t": [], "value": [], "missing": []}
    for one in moments:
        pairs = one.pair.tolist()
        found["gpu"] += [one.gpus[pair] for pair in pairs]
        found["node"] += [one.nodes[pair] for pair in pairs]
        found["t"] += one.t.tolist()
        found["value"] += one.value.tolist()
        found["missing"] += [words or "" for words in one.missing]
    return found
