"""A metric of all GPUs at many moments at once, for moving through the past. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpudeck.measures.metrics import Absence

from .arrays import Floats, Ints, Slots, Words, concat_rows, take_rows
from .layout import reason
from .memory import SampleRows
from .rows import SlowMetricRows

if TYPE_CHECKING:
    import pandas as pd

NO_SAMPLE = 255
OF_WORD = {absence.word: int(absence) for absence in Absence}
WORD_OF = np.array([None, *(absence.word for absence in sorted(Absence) if absence)], object)

Codes = npt.NDArray[np.uint8]
Pair = tuple[str, str]  # a GPU, and the Node that it was on


@dataclass(slots=True)
class MomentSamples:
    """Samples that some moments show: the number of the moment, that of the pair, and when."""

    names: tuple[Words, Words]  # GPU and Node of each pair
    moment: Slots
    pair: Slots
    t: Ints
    value: Floats
    why: Codes
    seconds: Ints  # of which each is the mean
    is_sorted: bool = False  # the pairs are known to be, by GPU and Node, each of them once

    def at(self, numbers: Sequence[int]) -> "MomentSamples":
        """Return the samples with other numbers of their moments."""
        return replace(self, moment=np.array(numbers, np.intp)[self.moment])


@dataclass(slots=True)
class InstantMatrix:
    """Moments x pairs. `why` is an Absence, or NO_SAMPLE."""

    pairs: list[Pair]
    value: Floats
    why: Codes
    grain_s: int  # 60: means of minutes, because the seconds have been given up


def why_of(value: Floats, codes: npt.NDArray[Any]) -> Codes:
    """Return why values are missing: what is there needs no reason; what is not always has one."""
    reasons = np.where(codes == Absence.PRESENT, np.uint8(Absence.UNKNOWN), codes)
    return np.where(np.isnan(value), reasons, np.uint8(Absence.PRESENT)).astype(np.uint8)


@lru_cache(1_024)
def code_of(words: str | None, metric: str) -> int:
    return OF_WORD.get(reason(words or "", metric) or "", int(Absence.PRESENT))


def seen_in_memory(rows: SampleRows | SlowMetricRows, metric: str, moments: Sequence[int],
                   back_s: int, gpus: Sequence[str], nodes: Sequence[str]) -> MomentSamples:
    slots, pair = np.unique(rows.slot, return_inverse=True)
    value, order = rows.values(metric), np.argsort(rows.t, kind="stable")
    why = why_of(value, rows.why(metric))
    ends = np.searchsorted(rows.t[order], [[t - back_s + 1, t + 1] for t in moments])
    hits = [order[first:last] for first, last in ends.tolist()]
    row = np.concatenate(hits)
    moment = np.repeat(np.arange(len(moments)), [len(hit) for hit in hits])
    on = [np.array([of[slot] for slot in slots.tolist()], object) for of in (gpus, nodes)]
    return MomentSamples((on[0], on[1]), moment, pair[row], rows.t[row], value[row], why[row],
                         np.ones(len(row), np.int64))


def seen_in(frame: "pd.DataFrame", metric: str) -> MomentSamples:
    """Return samples of one moment: gpu, node, t, value, and what is said to be missing."""
    value = frame["value"].to_numpy(np.float64)
    codes = np.array([code_of(words, metric) for words in frame["missing"].tolist()], np.uint8)
    return MomentSamples((frame["gpu"].to_numpy(object), frame["node"].to_numpy(object)),
                         np.zeros(len(frame), np.intp), np.arange(len(frame)),
                         frame["t"].to_numpy(np.int64), value, why_of(value, codes),
                         np.ones(len(frame), np.int64))


def pairs_of(samples: MomentSamples) -> Iterator[Pair]:
    return zip(*(names.tolist() for names in samples.names), strict=True)


def _by_age(parts: Sequence[MomentSamples]) -> MomentSamples:
    """Join parts, the oldest samples first: of two at one place, the last one stays. A minute may
    be in two files, as some of its seconds came late: that of most seconds stays."""
    number: dict[Pair, int] = {}
    numbered = []
    for part in parts:
        of_pair = np.array([number.setdefault(pair, len(number)) for pair in pairs_of(part)],
                           np.intp)
        numbered.append(replace(part, pair=of_pair[part.pair]))
    samples = concat_rows(numbered)
    samples = take_rows(samples, np.lexsort((samples.seconds, samples.t)))
    return replace(samples, is_sorted=False, names=(
        np.array([gpu for gpu, _ in number], object), np.array([node for _, node in number],
                                                               object)))


def instant_frame(parts: Sequence[MomentSamples]) -> "pd.DataFrame":
    """Return the samples of one moment, by GPU and Node."""
    import pandas as pd

    parts = [part for part in parts if len(part.t)]
    if not parts:
        return pd.DataFrame({"gpu": [], "node": [], "t": [], "value": [], "missing": []})
    samples = parts[0]
    if len(parts) > 1 or not samples.is_sorted:
        samples = _by_age(parts)
        pairs = list(pairs_of(samples))
        newest = np.full(len(pairs), -1)
        newest[samples.pair] = np.arange(len(samples.t))
        rows = newest[sorted(range(len(pairs)), key=pairs.__getitem__)]
        samples = take_rows(samples, rows[rows >= 0])
    gpu, node = (names[samples.pair] for names in samples.names)
    return pd.DataFrame({"gpu": gpu, "node": node, "t": samples.t, "value": samples.value,
                         "missing": WORD_OF[samples.why]})


def instant_matrix(parts: Sequence[MomentSamples], moments: int, grain_s: int) -> InstantMatrix:
    if not parts:
        return InstantMatrix([], np.zeros((moments, 0)), np.zeros((moments, 0), np.uint8), grain_s)
    samples = _by_age(parts)
    pairs = list(pairs_of(samples))
    matrix = InstantMatrix(pairs, np.full((moments, len(pairs)), np.nan),
                           np.full((moments, len(pairs)), NO_SAMPLE, np.uint8), grain_s)
    matrix.value[samples.moment, samples.pair] = samples.value
    matrix.why[samples.moment, samples.pair] = samples.why
    return matrix
