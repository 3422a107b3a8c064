"""What the tuning of MPS shares looks at, out of readings, and what it would have done in those of
a recording. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gpudeck.metrics import COLUMN, Absence

from .autotune import Seen, Tune, tune
from .backends import ProcessReading, Reading

UTIL = COLUMN["util_pct"]
OF_MPS = ("mps_server", "mps_client")
# Readings come each second: after a hole nothing is known of the time in it.
GAP_S = 30.0


@dataclass(slots=True)
class Watch:
    """Of the boards that MPS is on, or of all while none is known to be; since the last `take`."""

    clients: int | None = None  # None: no list of processes yet
    _boards: frozenset[str] = frozenset()
    _loads: dict[str, list[float]] = field(default_factory=dict)

    def see(self, reading: Reading) -> None:
        if reading.processes is not None:
            self._count(reading.processes)
        for gpu in reading.gpus:
            if gpu.state == "ok" and gpu.absent[UTIL] == Absence.PRESENT:
                self._loads.setdefault(gpu.uuid, []).append(gpu.values[UTIL])

    def _count(self, processes: Iterable[ProcessReading]) -> None:
        theirs = [each for each in processes if each.kind in OF_MPS]
        self.clients = len({each.pid for each in theirs if each.kind == "mps_client"})
        self._boards = frozenset(each.gpu_uuid for each in theirs)

    def take(self) -> float | None:
        """The mean load of the busiest, in %; None: not known."""
        loads, self._loads = self._loads, {}
        means = {uuid: sum(each) / len(each) for uuid, each in loads.items()}
        of_mps = [mean for uuid, mean in means.items() if uuid in self._boards]
        return max(of_mps or means.values(), default=None)


@dataclass(frozen=True, slots=True)
class Would:
    """One look: at what, and what would have been done."""

    at: float
    seen: Seen
    tune: Tune


def rehearse(readings: Iterable[Reading], every_s: float, begin_pct: int) -> Iterator[Would]:
    """As in life, but for one thing: the past does not answer to the share."""
    watch, now_pct = Watch(), float(begin_pct)
    last_at = due_at = float("-inf")
    for reading in readings:
        at = reading.taken_at
        if not 0 <= at - last_at <= GAP_S:
            watch, due_at = Watch(), at + every_s
        last_at = at
        watch.see(reading)
        if at < due_at or watch.clients is None:
            continue
        due_at = at + every_s
        seen = Seen(watch.clients, watch.take(), now_pct)
        found = tune(seen)
        now_pct = now_pct if found.pct is None else float(found.pct)
        yield Would(at, seen, found)
