"""An agent that sends all that the contract knows: slow metrics, facts, links, Events, its cost."""

import random
import time
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from gpudeck.contract.hosts import HostSample
from gpudeck.contract.wire import Beat, Cost, Event, GpuFacts, GpuLink, Inventory, Tasks, encode
from gpudeck.measures.metrics import COLUMNS, SLOW, THROTTLE_REASONS, Absence, Metric
from tests.integration.hubs import HubProcess, WireAgent
from tests.unit.fleets import Row, frame

GONE = {"fan_pct": Absence.UNSUPPORTED, "fan_rpm": Absence.UNSUPPORTED,
        "pages_corrected": Absence.UNSUPPORTED, "pages_uncorrected": Absence.UNSUPPORTED,
        "pages_pending": Absence.UNSUPPORTED, "jpg_util_pct": Absence.DENIED}


def believable(metrics: Sequence[Metric], lots: random.Random) -> dict[str, float | Absence]:
    """Return a value within its range for each metric, and none of the alarms."""
    return {metric.key: _some(metric, lots) for metric in metrics} | {
        key: absence for key, absence in GONE.items() if key in {m.key for m in metrics}}


def _some(metric: Metric, lots: random.Random) -> float:
    if metric.key == "throttle_bits":
        return float(lots.choice(list(THROTTLE_REASONS)))
    if metric.words is not None or metric.aggregate == "counter":
        return 0.0
    if metric.full_fact == "mem_total_bytes":
        return lots.uniform(1e9, 20e9)
    if metric.key.startswith("pcie_"):
        return {"pcie_gen": 4.0, "pcie_width": 16.0}.get(metric.key, lots.uniform(0, 2e10))
    return float(lots.randint(1, int(min(metric.high, metric.full or 80.0, 80.0))))


class Teller(WireAgent):
    def __init__(self, name: str, gpus: int = 2, seed: int | None = None) -> None:
        super().__init__(name, gpus, seed)
        self.sent_rows: list[tuple[float, list[Row]]] = []
        self.host: HostSample | UnsetType = UNSET
        self.slow: list[dict[str, float | Absence]] = [believable(SLOW, self.random)
                                                       for _ in self.facts]
        self.facts = tuple(msgspec.structs.replace(
            facts, serial=f"16501{at}", vbios="96.00.74.00.1A", compute_capability="9.0",
            numa_node=at % 2, minor=at, pcie_gen_max=5, pcie_width_max=16,
            pci_bus_id=f"0000:{at:02X}:00.0", power_limit_min_w=200.0, power_limit_max_w=700.0,
            power_limit_default_w=700.0, temp_slowdown_c=87.0, temp_shutdown_c=92.0,
            sm_clock_max_mhz=1980.0, mem_clock_max_mhz=2619.0,
        ) for at, facts in enumerate(self.facts))

    def connect(self, hub: HubProcess) -> None:
        super().connect(hub)
        gpus = range(len(self.facts))
        self.say(Inventory(1, self.facts, tuple(
            GpuLink(a, b, "numa node" if a % 2 == b % 2 else "system", 18)
            for a in gpus for b in gpus if a < b)))

    def describe(self, at: int, **facts: object) -> GpuFacts:
        """Change the facts of a GPU before it connects."""
        listed = [*self.facts]
        listed[at] = msgspec.structs.replace(listed[at], **facts)
        self.facts = tuple(listed)
        return listed[at]

    def tell(self, tasks: Tasks | None = None, states: Sequence[str] = (),
             has_slow: bool = True) -> None:
        rows: list[Row] = [believable(COLUMNS, self.random) for _ in self.facts]
        self.sent_rows.append((time.time(), rows))
        self._put(msgspec.structs.replace(frame(
            rows, self._next(), time.time(), states, tasks,
            slow=self.slow if has_slow else None), host=self.host))

    def happen(self, kind: str, gpu: int | None = None, text: str = "", task: str | None = None,
               ago_s: float = 0.0, **numbers: float) -> None:
        uuid = None if gpu is None else self.facts[gpu].uuid
        self._put(Event(self._next(), time.time() - ago_s, kind, uuid, task, text, numbers))

    def beat(self, reader: str = "ok", detail: str = "", pending: int = 0, dropped: int = 0
             ) -> None:
        self.say(Beat(reader, 0.4, pending, dropped, detail,  # type: ignore[arg-type]
                      cost=Cost(0.62, 44e6, 0.0123, 3e6)))

    def _next(self) -> int:
        self.seq += 1
        return self.seq

    def _put(self, message: Event | object) -> None:
        self.outbox[self.seq] = encode(message)  # type: ignore[arg-type]
        if self.is_connected:
            self._emit(self.outbox[self.seq])
