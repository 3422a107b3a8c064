"""A metric of all Gpus at many moments at once, for who moves through the past. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpudeck.metrics import Absence

from .columns import AT, STORED, Ints, missing_at, reason
from .memory import BLOCK_S, SampleRows
from .parquet import MINUTE_S

if TYPE_CHECKING:
    import pandas as pd

NO_SAMPLE = 255
OF_WORD = {absence.word: int(absence) for absence in Absence}

Codes = npt.NDArray[np.uint8]
Pair = tuple[str, str]  # a Gpu, and the Node that it was on


@dataclass(slots=True)
class MomentSamples:
    """Samples that some moments show: the number of the moment, that of the pair, and when."""

    pairs: list[Pair]
    moment: npt.NDArray[np.intp]
    pair: npt.NDArray[np.intp]
    t: Ints
    value: npt.NDArray[np.float64]
    why: Codes


@dataclass(slots=True)
class InstantMatrix:
    """Moments x pairs. `why` is an Absence, or NO_SAMPLE."""

    pairs: list[Pair]
    value: npt.NDArray[np.float64]
    why: Codes
    grain_s: int  # 60: means of minutes, because the seconds have been given up


def planned(moments: Sequence[int], begin: int | None, back_s: int
            ) -> tuple[list[tuple[int, list[int]]], dict[int, list[int]]]:
    """Five minutes at a time: the number of the first moment, and all of them. One by one, and by
    their numbers: what is kept by the minute (before `begin`), which is told alike in all its
    seconds, what looks back over the edge of its five minutes, and what changes seldom (None)."""
    blocks: dict[int, tuple[int, list[int]]] = {}
    singles: dict[int, list[int]] = {}
    for at, t in enumerate(moments):
        if begin is not None and t < begin:
            singles.setdefault(t - t % MINUTE_S, []).append(at)
        elif begin is None or t % BLOCK_S < back_s - 1:
            singles.setdefault(t, []).append(at)
        else:
            blocks.setdefault(t - t % BLOCK_S, (at, []))[1].append(t)
    return list(blocks.values()), singles


def why_of(value: npt.NDArray[np.float64], codes: npt.NDArray[Any]) -> Codes:
    """What is there needs no reason; what is not always has one."""
    told = np.where(codes == Absence.PRESENT, np.uint8(Absence.UNKNOWN), codes)
    return np.where(np.isnan(value), told, np.uint8(Absence.PRESENT)).astype(np.uint8)


def code_of(words: str | None, metric: str) -> int:
    return OF_WORD.get(reason(words or "", metric) or "", int(Absence.PRESENT))


def seen_in_memory(rows: SampleRows, metric: str, moments: Sequence[int], back_s: int,
                   gpus: Sequence[str], nodes: Sequence[str]) -> MomentSamples:
    at = AT[metric]
    slots, pair = np.unique(rows.slot, return_inverse=True)
    codes = missing_at(rows.missing, at)
    value = np.where(codes != 0, np.nan, rows.units[at] * STORED[at].step)
    why, order = why_of(value, codes), np.argsort(rows.t, kind="stable")
    ends = np.searchsorted(rows.t[order], [[t - back_s + 1, t + 1] for t in moments])
    hits = [order[first:last] for first, last in ends.tolist()]
    row = np.concatenate([np.zeros(0, np.intp), *hits])
    moment = np.repeat(np.arange(len(moments)), [len(each) for each in hits])
    names = [(gpus[slot], nodes[slot]) for slot in slots.tolist()]
    return MomentSamples(names, moment, pair[row], rows.t[row], value[row], why[row])


def of_instant(frame: "pd.DataFrame", moment: int) -> MomentSamples:
    value = frame["value"].to_numpy(np.float64)
    codes = np.array([OF_WORD.get(word, 0) for word in frame["missing"].tolist()], np.uint8)
    pairs = list(zip(frame["gpu"].tolist(), frame["node"].tolist(), strict=True))
    return MomentSamples(pairs, np.full(len(pairs), moment), np.arange(len(pairs)),
                         frame["t"].to_numpy(np.int64), value, why_of(value, codes))


def seen_together(parts: Iterable[MomentSamples], moments: int, grain_s: int) -> InstantMatrix:
    """Of what several parts say of one pair at one moment, the newest."""
    parts = list(parts)
    number: dict[Pair, int] = {}
    pairs = [np.array([number.setdefault(pair, len(number)) for pair in part.pairs], np.intp)
             for part in parts]
    none = np.zeros(0, np.intp)
    moment, pair, t, value, why = (np.concatenate([none, *each]) for each in (
        [part.moment for part in parts],
        [of[part.pair] for of, part in zip(pairs, parts, strict=True)],
        [part.t for part in parts], [part.value for part in parts], [part.why for part in parts]))
    found = InstantMatrix(list(number), np.full((moments, len(number)), np.nan),
                          np.full((moments, len(number)), NO_SAMPLE, np.uint8), grain_s)
    by_age = np.argsort(t, kind="stable")  # of two at one place, the last one stays
    place = moment[by_age].astype(np.intp), pair[by_age].astype(np.intp)
    found.value[place], found.why[place] = value[by_age], why[by_age]
    return found
