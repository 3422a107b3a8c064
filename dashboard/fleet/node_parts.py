"""Parts of a Node's view. Pure."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from gpudeck.contract.gpu_facts import GpuFacts
from gpudeck.contract.vendors import vendor_of


class AgentCostView(msgspec.Struct):
    """Cost of the agent to its machine, reader included."""

    cpu_pct: float | None  # of one core
    memory_bytes: float | None
    read_s: float | None
    outbox_bytes: float | None


class NodeRefusalView(msgspec.Struct):
    """Refusal of a node that sent more than allowed."""

    until: float
    why: str


class GpuLinkView(msgspec.Struct):
    """Path between two GPUs of a Node."""

    a: str
    b: str
    path: Literal["board", "one switch", "switches", "host bridge", "numa node", "system"]
    nvlinks: int | None


class GpuFactsView(msgspec.Struct):
    parent_uuid: str | None
    mig_profile: str | None
    gpu_instance: int | None
    compute_instance: int | None
    minor: int | None  # of /dev/nvidiaN
    serial: str | None
    vbios: str | None
    compute_capability: str | None
    numa_node: int | None
    pcie_gen_max: int | None
    pcie_width_max: int | None
    power_limit_min_w: float | None
    power_limit_max_w: float | None
    power_limit_default_w: float | None
    pci_bus_id: str | None
    mem_total_bytes: float | None
    power_limit_w: float | None
    sm_clock_max_mhz: float | None
    mem_clock_max_mhz: float | None
    temp_slowdown_c: float | None
    temp_shutdown_c: float | None
    mem_temp_max_c: float | None
    mem_margin_min_c: float | None  # the least `temp_margin_c` before it slows for its memory
    accounting_on: bool | None
    driver: str | None  # its version; None: it is the node's


def driver_words(version: str | None, gpus: Iterable[GpuFacts]) -> str | None:
    """Return the driver's version; of a node with several drivers all of them."""
    versions = dict.fromkeys((gpu.driver, vendor_of(gpu.uuid)) for gpu in gpus
                             if gpu.driver is not None)
    return ", ".join(f"{own} ({vendor})" for own, vendor in versions) or version
