"""An estimate of one GPU's memory: its parts, each with its formula. Pure."""

from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """A part of the memory. `low` and `high`: where only a range was ever measured."""

    name: str
    bytes: float
    formula: str
    low: float | None = None
    high: float | None = None

    @property
    def least(self) -> float:
        return self.bytes if self.low is None else self.low

    @property
    def most(self) -> float:
        return self.bytes if self.high is None else self.high


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Memory of the GPU that needs most.

    `inexact`: why it is no better than a range of 20 %; empty: it was checked against published
    figures of this kind, which it met within `error`. `margin`: the share of the allocated memory
    that the allocator reserves beyond.
    """

    parts: tuple[MemoryPart, ...]
    error: float
    inexact: tuple[str, ...] = ()
    margin: float = 0.0
    outside: tuple[MemoryPart, ...] = ()

    @property
    def allocated(self) -> float:
        """Peak that the framework reports as allocated."""
        return sum(part.bytes for part in self.parts)

    @property
    def total(self) -> float:
        """Total that the driver shows: with the context and the like."""
        return self.allocated + sum(part.bytes for part in self.outside)

    @property
    def low(self) -> float:
        return (1 - self._doubt) * sum(part.least for part in self.parts) + sum(
            part.least for part in self.outside)

    @property
    def high(self) -> float:
        return (1 + self._doubt) * sum(part.most for part in self.parts) + sum(
            part.most for part in self.outside)

    @property
    def ask(self) -> float:
        """Memory to have free: the upper end, or the margin of the allocator where that is more."""
        return max(self.high, (1 + self.margin) * self.allocated
                   + sum(part.most for part in self.outside))

    @property
    def _doubt(self) -> float:
        return 0.2 if self.inexact else self.error


CONTEXT = MemoryPart("CUDA context", 365 * 2**20, "300 to 430 MiB with lazy loading (CUDA 11.7 on)",
                     300 * 2**20, 430 * 2**20)
