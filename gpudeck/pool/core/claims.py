"""Claims, leases and their life cycle. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, isfinite, log2
from typing import Literal

WHOLE_MILLI = 1_000  # thousandths of a GPU
CPU_MILLI = 1_000  # thousandths of a CPU
CPUS_MOST = 4_096
DEFAULT_TERM_S = 8 * 3_600.0
TERM_LEAST_S, TERM_MOST_S = 60.0, 365 * 86_400.0
DEFAULT_GRACE_S = 120.0
OVERDUE_LEAST_S = 600.0
OVERDUE_PART = 0.2
TEXT_MOST, LIST_MOST, GPUS_MOST = 256, 64, 1_024
PRIORITIES = range(5)
DEFAULT_PRIORITY = 2

State = Literal["requested", "refused", "waiting", "offered", "active", "draining", "released",
                "expired", "preempted", "lost"]

HOLDS: tuple[State, ...] = ("offered", "active", "draining")
FINAL: tuple[State, ...] = ("refused", "released", "expired", "preempted", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A request for GPUs. `share_milli`, `mem_bytes`: of each GPU; `gpus`, `cpu_milli`,
    `ram_bytes` (the host's memory): of each node. `models`: any of these, as words of
    the model's name; none: any model."""

    id: str
    owner: str
    gpus: int
    submitted_at: float
    nodes: int = 1
    share_milli: int = WHOLE_MILLI
    mem_bytes: int | None = None
    cpu_milli: int | None = None
    ram_bytes: int | None = None
    models: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # none: any
    home: str = ""  # of several nodes the one where its run is, by id
    term_s: float = DEFAULT_TERM_S
    starts_at: float | None = None  # a reservation
    give_up_at: float | None = None
    priority: int = DEFAULT_PRIORITY
    is_preemptible: bool = False
    is_again: bool = False  # its GPUs were taken from it: it is the first of its priority
    shape: str = ""  # of its command, to predict its run time by
    is_suspendable: bool = False  # its work may be suspended instead of ended
    # GPUs of its node that alone will do: its work was suspended on them. None: any GPUs.
    home_gpus: tuple[str, ...] = ()

    @property
    def is_share(self) -> bool:
        return self.share_milli < WHOLE_MILLI

    @property
    def wants(self) -> tuple[object, ...]:
        """Needs on one node. Claims with the same are placed alike."""
        return (self.gpus, self.share_milli, self.mem_bytes, self.cpu_milli, self.ram_bytes,
                self.models, self.home_gpus)

    @property
    def gpu_milli(self) -> int:
        return self.gpus * self.nodes * self.share_milli


def flaw(claim: Claim) -> str:
    """Return what is out of bounds in a claim that somebody else wrote down; "": nothing."""
    texts = (claim.id, claim.owner, claim.shape, claim.home, *claim.models, *claim.hosts,
             *claim.home_gpus)
    times = (claim.submitted_at, claim.starts_at or 0.0, claim.give_up_at or 0.0)
    bounds = {
        "id": claim.id and claim.owner, "text": all(len(text) <= TEXT_MOST for text in texts),
        "models": len(claim.models) <= LIST_MOST, "hosts": len(claim.hosts) <= LIST_MOST,
        "home_gpus": not claim.home_gpus or (
            claim.nodes == 1 and len(claim.home_gpus) == claim.gpus),
        "gpus": 0 <= claim.gpus <= GPUS_MOST, "nodes": 1 <= claim.nodes <= GPUS_MOST,
        "share_milli": 1 <= claim.share_milli <= WHOLE_MILLI and (
            claim.gpus == 1 or not claim.is_share),
        "mem_bytes": claim.mem_bytes is None or 1 <= claim.mem_bytes <= 2**53,
        "cpu_milli": claim.cpu_milli is None or 0 <= claim.cpu_milli <= 2**40,
        "ram_bytes": claim.ram_bytes is None or 1 <= claim.ram_bytes <= 2**53,
        "term_s": TERM_LEAST_S <= claim.term_s <= TERM_MOST_S,
        "priority": claim.priority in PRIORITIES,
        "time": all(isfinite(time) and abs(time) < 1e12 for time in times),
    }
    return next((name for name, is_right in bounds.items() if not is_right), "")


# A GPU: its node and its UUID. Another node may say that it has one of that UUID, too.
GpuKey = tuple[str, str]


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


@dataclass(frozen=True, slots=True)
class Booking:
    """GPUs that are kept for a claim from `starts_at` on: reserved, or freed by a pre-emption."""

    claim: Claim
    grants: tuple[Grant, ...]
    starts_at: float

    @property
    def ends_at(self) -> float:
        return self.starts_at + self.claim.term_s

    @property
    def gpus(self) -> frozenset[GpuKey]:
        return gpus_of(self.grants)


def gpus_of(grants: Iterable[Grant]) -> frozenset[GpuKey]:
    return frozenset((grant.node, uuid) for grant in grants for uuid in grant.uuids)


def expected_end(lease: Lease, now: float) -> float:
    """Return when a lease is expected to end. An overdue lease is taken to end a while from now,
    each time twice as long (Tsafrir et al., TPDS 2007); it is never ended for that."""
    if lease.until > now:
        return lease.until
    step = max(OVERDUE_LEAST_S, OVERDUE_PART * (lease.until - lease.since))
    doublings = ceil(log2((now - lease.until) / step + 1 + 1e-9))
    return lease.until + step * float(2 ** max(doublings, 1) - 1)
