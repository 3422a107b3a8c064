"""Claims, leases and their life cycle. Pure."""

from dataclasses import dataclass
from typing import Literal

WHOLE_MILLI = 1_000  # thousandths of a GPU
DEFAULT_TERM_S = 8 * 3_600.0
PRIORITIES = range(5)
DEFAULT_PRIORITY = 2

State = Literal["requested", "refused", "waiting", "offered", "active", "draining", "released",
                "expired", "preempted", "lost"]

NEXT: dict[State, tuple[State, ...]] = {
    "requested": ("refused", "waiting"),
    "waiting": ("offered", "refused", "released", "expired"),
    # A node that refuses, or that nobody came to, sends the claim back to the queue.
    "offered": ("active", "waiting", "released", "expired", "lost"),
    "active": ("draining", "released", "expired", "preempted", "lost"),
    "draining": ("released", "expired", "preempted", "lost"),
    "refused": (),
    "released": (),
    "expired": (),
    "preempted": ("waiting",),  # `--requeue`
    "lost": ("waiting",),
}
HOLDS: tuple[State, ...] = ("offered", "active", "draining")
FINAL: tuple[State, ...] = ("refused", "released", "expired", "preempted", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A request for GPUs. `share_milli`, `mem_bytes`: of each GPU; `gpus`, `cpu_milli`: of each
    node. `models`: any of these, as words of the model's name; none: any model."""

    id: str
    owner: str
    gpus: int
    submitted_at: float
    team: str = ""
    nodes: int = 1
    share_milli: int = WHOLE_MILLI
    mem_bytes: int | None = None
    cpu_milli: int | None = None
    models: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # none: any
    term_s: float = DEFAULT_TERM_S
    starts_at: float | None = None  # a reservation
    give_up_at: float | None = None
    priority: int = DEFAULT_PRIORITY
    is_preemptible: bool = False
    shape: str = ""  # of its command, to predict its run time by

    @property
    def is_share(self) -> bool:
        return self.share_milli < WHOLE_MILLI

    @property
    def wants(self) -> tuple[object, ...]:
        """Of one node. Claims with the same are placed alike."""
        return self.gpus, self.share_milli, self.mem_bytes, self.cpu_milli, self.models

    @property
    def gpu_milli(self) -> int:
        return self.gpus * self.nodes * self.share_milli


@dataclass(frozen=True, slots=True)
class Grant:
    """GPUs of one node."""

    node: str
    uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A claim that holds GPUs. `until`: the end of its term, on the clock of `since`."""

    id: str
    claim: Claim
    grants: tuple[Grant, ...]
    since: float
    until: float
    ended_at: float | None = None
