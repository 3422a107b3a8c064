"""A process on a GPU, as one look at the process list found it."""

from msgspec import Struct

from gpudeck.contract.wire import Task


class GpuTask(Struct, frozen=True):
    """A Task found on a GPU."""

    task: Task
    gpu_uuid: str
    mem_used_bytes: float | None
    sm_pct: float | None
    state: str | None
