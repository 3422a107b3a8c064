"""Pictures: what a notebook's kernel sends to its widgets. types/hub.d.ts is made of them."""

from typing import Literal, TypedDict

from gpudeck.contract.quota import Limit, QuotaMode


class TaskPicture(TypedDict):
    """A task of the user. `kernel`: it is this notebook's kernel; `child`: of that one."""

    id: str
    pid: int
    user: str | None
    command: str | None
    gpus: list[str]
    node: str | None
    mem: float | None
    sm: float | None
    state: Literal["running", "paused", "uninterruptible", "zombie"] | None
    since: float | None
    kernel: bool
    child: bool


class HeldPicture(TypedDict):
    """Memory of a GPU by its holder. `rank`: 0 this kernel, 1 the user's other tasks, 2 another
    user, 3 no visible task."""

    rank: int
    who: str
    bytes: float


class GpuPicture(TypedDict):
    """A GPU of this machine. `past`: utilization and memory, as shares of 1."""

    uuid: str
    place: str
    name: str
    state: str
    total: float | None
    values: dict[str, float]
    missing: dict[str, str]
    past: list[list[float | None]]
    held: list[HeldPicture]


class RamPicture(TypedDict):
    total: int | None
    available: int | None


class MachinePicture(TypedDict):
    """A picture of this machine. `unseen`: why no task is the user's; "": tasks are visible."""

    kind: Literal["here"]
    at: float
    host: str
    reader: str
    detail: str
    driver: str | None
    simulated: bool
    holds: list[str]
    unseen: str
    ram: RamPicture
    gpus: list[GpuPicture]
    tasks: list[TaskPicture]


class NodePicture(TypedDict):
    node: str
    host: str
    count: int
    places: list[str]


class FreePicture(TypedDict):
    """Free GPUs of a node. `name`: of the first one's model."""

    host: str
    gpus: int
    name: str


class QuotaPicture(TypedDict):
    quota: str
    mode: QuotaMode
    limit: Limit
    holder: str
    used: float
    most: float
    is_over: bool
    is_whole: bool
    sentence: str
    goes: int
    ladder: str


class DonePicture(TypedDict):
    """An action of somebody else on one of the user's tasks."""

    words: str
    by: str
    host: str
    at: float
    reason: str


class LeasePicture(TypedDict):
    host: str
    gpus: list[str]
    share_pct: float
    until: float
    command: str
    idle_since: float | None


class ClaimPicture(TypedDict):
    place: int
    asks: str
    why: str
    starts_at: float | None
    estimate: str


class FleetPicture(TypedDict):
    """A hub's fleet, and what of it is the user's."""

    kind: Literal["fleet"]
    at: float
    hub: str
    reader: Literal["ok", "failed"]
    every_s: float
    words: str
    detail: str
    rows: list[NodePicture]
    free: list[FreePicture]
    why_no_tasks: str
    tasks: list[TaskPicture]
    quotas: list[QuotaPicture]
    done: list[DonePicture]
    leases: list[LeasePicture]
    claims: list[ClaimPicture]


class LeasedGpuPicture(TypedDict):
    index: int
    name: str
    uuid: str


class LeaseOfKernelPicture(TypedDict):
    """The lease of `claim()`."""

    state: Literal["waiting", "held", "ended"]
    words: str
    note: str
    gpus: list[LeasedGpuPicture]
    until: float
