"""Newest sample of this node, for the parts that do not read the GPUs themselves."""

from msgspec import UNSET, UnsetType

from gpudeck.contract.limits import ORDINALS
from gpudeck.contract.vendors import is_nvidia
from gpudeck.contract.wire import GpuFacts

from ..limits.mps_doctor import whole_boards
from ..limits.reconciler import DriverFacts
from ..link.outbox import Outbox
from ..tasks.seen import GpuTask
from . import sampler


class LatestSample:
    """Written by the node's own thread alone, each part replaced as a whole; read by any."""

    def __init__(self, outbox: Outbox) -> None:
        self.state = _restored_state(outbox)
        self.driver_version: str | None = None
        self.cuda_version: str | UnsetType = UNSET
        self.gpu_tasks: tuple[GpuTask, ...] | None = None  # None: not listed yet
        self.listed_at = 0.0  # by the clock that never steps

    @property
    def facts(self) -> tuple[GpuFacts, ...]:
        return self.state.facts or ()

    def driver(self) -> str | None:
        return self.driver_version

    def driver_facts(self) -> DriverFacts:
        """Return what MPS is looked at by. Runs on the reconciler's thread: what is replaced as a
        whole is read once."""
        facts = (state := self.state).facts or ()
        boards = sum(gpu.parent_uuid is None and is_nvidia(gpu.uuid) for gpu in facts)
        return DriverFacts(min(boards, ORDINALS), self.driver_version, {
            uuid: int(mode) for uuid in whole_boards(facts)
            if (mode := sampler.slow_number(state, uuid, "compute_mode")) is not None})


def _restored_state(outbox: Outbox) -> sampler.SamplerState:
    """Return the sampler's state to go on from. Frames on disk refer to generations: the stored one
    is continued, and stays the same if nothing has changed."""
    inventory = outbox.latest_inventory
    if inventory is None:
        return sampler.SamplerState()
    return sampler.SamplerState(generation=inventory.generation, facts=inventory.gpus)
