"""The page for Prometheus of a node's own agent."""

import re
import time

import pytest

from agent.readings import BackendEvent, GpuReading, Reading
from agent.telemetry.prometheus import MetricsPage
from gpudeck.contract.wire import GpuFacts, GpuState
from gpudeck.measures.metrics import COLUMN, Absence


@pytest.mark.parametrize("state", ["lost", "error"])
def test_an_xid_is_told_whatever_can_be_read_since(state: GpuState) -> None:
    """Found by examiners: the Xid of a GPU that fell off the bus came once the GPU was back."""
    page, width = MetricsPage("n1"), len(COLUMN)
    gpus = (GpuReading("G0", "ok", (0.0,) * width, bytes([Absence.PRESENT] * width)),
            GpuReading("G1", state, (0.0,) * width, bytes([Absence.UNKNOWN] * width)))
    facts = tuple(GpuFacts(gpu.uuid, at, "H100") for at, gpu in enumerate(gpus))
    page.put(Reading(time.time(), 1.0, gpus, facts, (), driver_version="580.95.05"),
             [BackendEvent("xid", time.time(), "G1", numbers={"xid": 79.0})], (), (0, 0))

    def values_of(name: str) -> dict[str, float]:
        return {uuid: float(value) for uuid, value in re.findall(
            rf'^{name}{{.*UUID="(\w+)".*}} (\S+)$', page.text(), re.M)}

    assert values_of("DCGM_FI_DEV_XID_ERRORS") == {"G1": 79.0}
    assert values_of("DCGM_FI_DEV_GPU_TEMP").keys() == {"G0"}
    assert page.text().count('DCGM_FI_DRIVER_VERSION="580.95.05"') > 2
    assert values_of("gpudeck_gpu_tasks") == {"G0": 0.0}, "who holds the other is not known"
