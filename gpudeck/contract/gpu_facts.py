"""Facts that a node reports about each of its GPUs, once per connection. A part of the contract."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from gpudeck.contract.message_limits import Amount, Number, Seconds, Word


class GpuFacts(Struct, frozen=True):
    """Facts that do not change while a GPU is there. None: not known; `missing` says why."""

    uuid: Word
    index: Annotated[int, Meta(ge=0, le=65_535)]
    name: Word
    parent_uuid: Word | None = None  # of a MIG instance
    mig_profile: Word | None = None  # "1g.10gb"
    gpu_instance: Number | None = None
    compute_instance: Number | None = None
    minor: Number | None = None  # of /dev/nvidiaN
    serial: Word | None = None
    vbios: Word | None = None
    compute_capability: Word | None = None  # "9.0"
    numa_node: Number | None = None
    pcie_gen_max: Number | None = None
    pcie_width_max: Number | None = None
    power_limit_min_w: Amount | None = None
    power_limit_max_w: Amount | None = None
    power_limit_default_w: Amount | None = None
    pci_bus_id: Word | None = None
    mem_total_bytes: Amount | None = None
    power_limit_w: Amount | None = None
    sm_clock_max_mhz: Amount | None = None
    mem_clock_max_mhz: Amount | None = None
    temp_slowdown_c: Seconds | None = None
    temp_shutdown_c: Seconds | None = None
    mem_temp_max_c: Seconds | None = None
    # For boards that report limits as margins: below this `temp_margin_c` it throttles for its
    # memory's sake. The driver does not report which temperature that is.
    mem_margin_min_c: Seconds | None = None
    accounting_on: bool | None = None  # the driver keeps statistics of ended processes
    # metric key -> "unsupported" | "denied": what this board never reports
    missing: Annotated[dict[Word, Word], Meta(max_length=128)] = {}
    driver_version: Word | UnsetType = UNSET  # on a node with several drivers

    @property
    def driver(self) -> str | None:
        """Version of the driver that reads it; None: the node's, or not known."""
        return None if isinstance(self.driver_version, UnsetType) else self.driver_version

    @property
    def place(self) -> str:
        """Position as NVIDIA numbers it: "3"; of a MIG instance "3/9", of a part of one "3/9/1"."""
        parts = [self.index, self.gpu_instance, self.compute_instance or None]
        return "/".join(str(part) for part in parts if part is not None)
