"""Layout of a Frame's metrics in memory and in files: whole steps of a fixed size.

A step is 1 where the driver itself counts in whole units, so that nothing is lost there; where a
mean has a fraction, it is finer than any chart shows and coarse enough to compress. Why a number is
missing takes three bits per metric in one integer per row: 0 means that all are there.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpudeck.measures.metrics import COLUMNS, SLOW, SLOW_WIDTH, WIDTH, Absence

from .arrays import Ints

Kind = Literal["int", "share", "rate"]

MIB = 2**20


@dataclass(frozen=True, slots=True)
class HistoryColumn:
    key: str
    step: float
    dtype: type[np.signedinteger[Any]]  # in memory; in steps
    kind: Kind
    narrow: type[np.integer[Any]]  # in memory as long as what comes fits into it

    def values(self, units: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values as they stand in a file."""
        if self.kind == "int":
            return units if self.step == 1.0 else units.astype(np.int64) * int(self.step)
        scaled: npt.NDArray[Any] = np.multiply(units, np.float32(self.step), dtype=np.float32)
        return scaled


_STEPS: dict[str, tuple[float, type[np.signedinteger[Any]], Kind, type[np.integer[Any]]]] = {
    "util_pct": (0.5, np.int16, "share", np.uint8),
    "mem_util_pct": (0.5, np.int16, "share", np.uint8),
    "sm_active_pct": (0.5, np.int16, "share", np.uint8),
    "util_max_pct": (0.5, np.int16, "share", np.uint8),
    "temp_c": (1.0, np.int16, "int", np.uint8),
    "mem_temp_c": (1.0, np.int16, "int", np.uint8),
    "power_w": (1.0, np.int16, "int", np.uint16),
    "power_max_w": (1.0, np.int16, "int", np.uint16),
    # A counter: what is read from it is how much it grew in minutes and hours.
    "energy_j": (100.0, np.int64, "int", np.int32),
    "sm_clock_mhz": (1.0, np.int16, "int", np.uint16),
    "mem_clock_mhz": (1.0, np.int32, "int", np.uint16),
    "fan_pct": (1.0, np.int16, "int", np.uint8),
    # A power of two, so that a float32 holds every step exactly.
    "pcie_tx_bytes_per_s": (MIB, np.int32, "rate", np.uint16),
    "pcie_rx_bytes_per_s": (MIB, np.int32, "rate", np.uint16),
    "throttle_bits": (1.0, np.int64, "int", np.uint16),
}
# What is not named is kept to the unit: bytes, joules, bit masks.
_WHOLE: tuple[float, type[np.signedinteger[Any]], Kind, type[np.integer[Any]]] = (
    1.0, np.int64, "int", np.int64)

STORED: tuple[HistoryColumn, ...] = tuple(
    HistoryColumn(metric.key, *_STEPS.get(metric.key, _WHOLE)) for metric in COLUMNS)
KEYS: tuple[str, ...] = tuple(column.key for column in STORED)
AT: dict[str, int] = {key: at for at, key in enumerate(KEYS)}
SLOW_KEYS: tuple[str, ...] = tuple(metric.key for metric in SLOW)
# Bits of a mask are joined where numbers are averaged.
MASKS = frozenset({"throttle_bits"})
COUNTERS = frozenset(metric.key for metric in COLUMNS if metric.aggregate == "counter")
# A mean of these says nothing.
NO_MEAN = MASKS | COUNTERS

_INVERSE = 1.0 / np.array([column.step for column in STORED])
_LOW = np.array([metric.low for metric in COLUMNS])
_HIGH = np.array([metric.high for metric in COLUMNS])
_SLOW_LOW = np.array([metric.low for metric in SLOW])
_SLOW_HIGH = np.array([metric.high for metric in SLOW])
_BYTES = -(-WIDTH // 8) * 8
WHY = 0b111

assert WIDTH * 3 < 63, "why a number is missing no longer fits into one integer"
assert max(Absence) <= WHY


def quantise(values: bytes, absent: bytes) -> tuple[npt.NDArray[np.float64], Ints]:
    """Return rows of steps, and why what is missing is missing. What is out of range is a driver's
    sentinel or a lie, here as in the live picture. Column by column in memory, as blocks are."""
    steps = np.array(np.frombuffer(values, "<f8").reshape(-1, WIDTH).T, order="C")
    codes = np.frombuffer(absent, np.uint8).reshape(-1, WIDTH)
    if len(codes) and not ((steps.min(axis=1) >= _LOW) & (steps.max(axis=1) <= _HIGH)).all():
        inside = (steps >= _LOW[:, None]) & (steps <= _HIGH[:, None])
        codes = np.where((codes == 0) & ~inside.T, np.uint8(Absence.UNKNOWN), codes)
        steps[codes.T != 0] = 0
    steps *= _INVERSE[:, None]
    np.rint(steps, out=steps)
    return steps.T, _packed(codes)


def as_stored(key: str, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Round a live metric to the steps in which it is kept."""
    rounded: npt.NDArray[np.float64] = np.rint(values * _INVERSE[AT[key]]) * STORED[AT[key]].step
    return rounded


def _packed(codes: npt.NDArray[np.uint8]) -> Ints:
    """Pack three bits of each byte, side by side."""
    many = len(codes)
    if many > 1 and (codes == codes[0]).all():  # one kind of board
        return np.full(many, _packed_row(codes[0].tobytes()))
    wide = np.zeros((many, _BYTES), np.uint8)
    wide[:, :WIDTH] = codes
    words = wide.view("<u8")
    for shift, mask in ((5, 0x003F003F003F003F), (10, 0x00000FFF00000FFF), (20, 0x00FFFFFF)):
        words = (words | (words >> np.uint64(shift))) & np.uint64(mask)
    packed = words[:, 0].astype(np.int64)
    for at in range(1, words.shape[1]):
        packed |= words[:, at].astype(np.int64) << (24 * at)
    return packed


@lru_cache(256)
def _packed_row(codes: bytes) -> int:
    return int(_packed(np.frombuffer(codes, np.uint8).reshape(1, -1))[0])


def slow_values(values: bytes, absent: bytes
                ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint8]]:
    numbers = np.frombuffer(values, "<f8").reshape(-1, SLOW_WIDTH)
    codes = np.frombuffer(absent, np.uint8).reshape(-1, SLOW_WIDTH)
    lies = (codes == 0) & ((numbers < _SLOW_LOW) | (numbers > _SLOW_HIGH))
    return numbers, np.where(lies, np.uint8(Absence.UNKNOWN), codes)


def missing_at(missing: Ints, column: int) -> Ints:
    """Return the Absence of one metric, per row."""
    return (missing >> (3 * column)) & WHY


def missing_words(code: int) -> str:
    """Return a row's code as it stands in a file: `fan_pct=unsupported mem_temp_c=denied`."""
    return " ".join(f"{key}={Absence(why).word}" for at, key in enumerate(KEYS)
                    if (why := (code >> (3 * at)) & WHY))


def slow_words(codes: npt.NDArray[np.uint8]) -> str:
    return " ".join(f"{key}={Absence(why).word}"
                    for key, why in zip(SLOW_KEYS, codes.tolist(), strict=True) if why)


def reason(words: str, key: str) -> str | None:
    """Return why this metric is missing, by such words; None: it is not."""
    for word in words.split():
        name, _, why = word.partition("=")
        if name == key:
            return why
    return None
