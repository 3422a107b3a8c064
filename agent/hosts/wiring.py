"""Wiring of the host's metrics into the node."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..capability import Capability, NodeCore
from ..readings import Reading
from ..tasks.seen import GpuTask
from .collective_watch import CollectiveWatch
from .collector import HostCollector
from .serving_watch import ServingWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCapability(Capability):
    with_host: Callable[[Reading, Iterable[GpuTask], float], Reading]


def build(core: NodeCore, asks_serving: bool, asks_nccl: bool) -> HostCapability:
    """`asks_serving`: engines that serve models are asked for their metrics; `asks_nccl`: NCCL is
    asked about jobs that look stuck."""
    if core.is_made_up or core.backend.capabilities.pids != "host":
        return HostCapability(name="hosts", with_host=_as_read)
    collector = HostCollector(serving=ServingWatch() if asks_serving else None,
                              collectives=CollectiveWatch() if asks_nccl else None)
    return HostCapability(name="hosts", with_host=collector.with_host, close=collector.close)


def _as_read(reading: Reading, gpu_tasks: Iterable[GpuTask], now: float) -> Reading:
    """Return the reading as it is: a simulation or a recording brings the host's sample itself."""
    return reading
