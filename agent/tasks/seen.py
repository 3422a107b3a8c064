"""A process on a GPU, as one look at the process list found it."""

from typing import NamedTuple

from msgspec import Struct

from gpudeck.contract.wire import Task


class GpuTask(Struct, frozen=True):
    """A Task found on a GPU."""

    task: Task
    gpu_uuid: str
    mem_used_bytes: float | None
    sm_pct: float | None
    state: str | None
    is_suspended: bool = False  # its memory is on the host, so that the driver does not list it


class SuspendedUse(NamedTuple):
    """Use of a GPU that a suspended process had, and gets back."""

    pid: int
    start_ticks: int
    gpu_uuid: str
