"""What a backend collects values in. Pure."""

from dataclasses import dataclass

from gpudeck.metrics import COLUMN, WIDTH, Absence


class Row:
    """The values of one Gpu while they are being collected; absent until put."""

    def __init__(self) -> None:
        self.values = [0.0] * WIDTH
        self.absent = bytearray([Absence.UNKNOWN]) * WIDTH

    def put(self, key: str, value: "float | Absence", scale: float = 1.0) -> None:
        at = COLUMN[key]
        if isinstance(value, Absence):
            self.values[at], self.absent[at] = 0.0, value
        else:
            self.values[at], self.absent[at] = value * scale, Absence.PRESENT


@dataclass(slots=True)
class Counter:
    """A byte counter that may wrap, as nvml.h says of PCIe's (fields 197 and 198)."""

    value: int | None = None
    at: float = 0.0

    def rate(self, value: int, bits: int, now: float) -> "float | Absence":
        before, elapsed_s = self.value, now - self.at
        self.value, self.at = value, now
        if before is None or elapsed_s <= 0:
            return Absence.UNKNOWN
        if value < before and before >= 2**32 and bits > 32:
            return Absence.UNKNOWN  # no 64-bit counter wraps in our lifetime: it was reset
        # A counter of 32 bits may come in a type of 64.
        return ((value - before) % 2**32 if value < before else value - before) / elapsed_s
