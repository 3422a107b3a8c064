"""Quality of service: checks every ten seconds what each tenant was promised and gets."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec
import numpy as np
from gevent import sleep

from gpudeck.measures.metrics import Absence
from gpudeck.pool.core.claims import Claim

from ..access.policy import Actor, actor_fields
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from ..fleet.fleet import Fleet
from ..fleet.mig import NO_PARENT
from ..pool.plan import PoolNode
from ..runtime.runner import Loop
from .advice_service import KeyValueStore
from .core.qos import QosPolicy, QosRecord, QosTracker, TenantState, flaw
from .core.tenant_memory import HeldMemory

T = TypeVar("T")

log = logging.getLogger("gpudeck.insight")

EVERY_S = 10.0
SAVE_EVERY_S = 60.0  # while a violation goes on: a restart knows of it until then
KEY = "qos"
# By heat and the power brake: a healthy board may be power-limited all the time.
THROTTLING = ("slowed_soft_thermal_pct", "slowed_hard_thermal_pct", "slowed_brake_pct")


class TeamMembers(Protocol):
    def teams_of(self, users: Collection[str]) -> Mapping[str, str]: ...


class TenantPool(Protocol):
    @property
    def nodes(self) -> Sequence[PoolNode]: ...
    def waiting(self, nodes: Sequence[PoolNode]) -> Collection[Claim]: ...


@dataclass(slots=True)
class QosService:
    fleet: Fleet
    teams: TeamMembers
    pool: TenantPool
    store: KeyValueStore
    audit: AuditRecorder
    clock: Callable[[], float]
    policies: tuple[QosPolicy, ...] = field(init=False)
    tracker: QosTracker = field(init=False, default_factory=QosTracker)
    states: dict[str, TenantState] = field(init=False, default_factory=dict)
    _saved_mono: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        record = msgspec.json.decode(self.store.get(KEY) or "{}", type=QosRecord)
        self.policies = record.policies
        self.tracker.restore(record.violations, self.clock())

    @property
    def loop(self) -> Loop:
        return Loop("qos", self.step, EVERY_S)

    def step(self, now: float, mono: float) -> None:
        policies = self.policies
        if not policies and not self.tracker.open:
            self.states = {}
            return
        self.states = self._states(policies, now, mono) if policies else {}
        has_changed = self.tracker.update(policies, self.states, now)
        if has_changed or (self.tracker.open and mono - self._saved_mono >= SAVE_EVERY_S):
            self._save()
            self._saved_mono = mono

    def set_policies(self, actor: Actor, policies: tuple[QosPolicy, ...]) -> None:
        require(actor, "PUT /api/v1/qos")
        self._replace(actor, policies)

    def put(self, actor: Actor, policy: QosPolicy) -> None:
        """Promise this to its tenant, in place of what it was promised before."""
        require(actor, "PUT /api/v1/qos/<path:tenant>")
        by_tenant = {old.tenant: old for old in self.policies} | {policy.tenant: policy}
        self._replace(actor, tuple(by_tenant.values()))

    def remove(self, actor: Actor, tenant: str) -> None:
        require(actor, "DELETE /api/v1/qos/<path:tenant>")
        remaining = tuple(policy for policy in self.policies if policy.tenant != tenant)
        if len(remaining) == len(self.policies):
            raise NotFoundError(f"nothing is promised to {tenant!r}")
        self._replace(actor, remaining)

    def _replace(self, actor: Actor, policies: tuple[QosPolicy, ...]) -> None:
        if (why := flaw(policies)) is not None:
            raise InvalidChangeError(why)
        had = {policy.tenant: policy for policy in self.policies}
        changed = sorted({policy.tenant for policy in policies if had.get(policy.tenant) != policy}
                         | {*had} - {policy.tenant for policy in policies})
        with self.audit.change("qos", actor_fields(actor) | {"action": "replace", "detail": {
                "count": len(policies), "changed": changed[:100]}}):
            self._save(policies)
        self.policies = policies

    def _save(self, policies: tuple[QosPolicy, ...] | None = None) -> None:
        record = QosRecord(self.policies if policies is None else policies,
                           tuple(self.tracker.history()))
        self.store.put(KEY, msgspec.json.encode(record).decode())

    def _states(self, policies: Collection[QosPolicy], now: float, mono: float
                ) -> dict[str, TenantState]:
        boards, memory = self._holdings()
        waiting = [claim for claim in self.pool.waiting(self.pool.nodes)
                   if claim.starts_at is None or claim.starts_at <= now]
        waits: dict[str, list[float]] = {}
        for claim in _in_turns(waiting, 1_000):
            since = max(claim.submitted_at, claim.starts_at or 0.0)
            waits.setdefault(claim.owner, []).append(max(0.0, now - since))
        users = boards.keys() | waits.keys()
        members = _members(users, self.teams.teams_of(users))
        throttled = self._throttled(mono)
        return {policy.tenant: _state(
            members.get(policy.tenant, ()), boards, waits, throttled,
            memory if policy.memory_gib is not None else None)
                for policy in _in_turns(policies, 2)}

    def _holdings(self) -> tuple[dict[str, set[int]], HeldMemory]:
        """Return, by owner, the boards that its tasks use or its leases hold, and the memory."""
        fleet, by_owner, memory = self.fleet, dict[str, set[int]](), HeldMemory()
        for node in _in_turns([*fleet.nodes.values()], 64):
            order = [] if node.listing is None else node.listing.order
            suspended = frozenset(node.suspended or ())  # what was taken from them, they have not
            for use in node.uses:
                task = node.tasks.get(use.task_id)
                if task is None or use.gpu >= len(order) or use.task_id in suspended:
                    continue
                slot = order[use.gpu]
                if task.user is not None:
                    by_owner.setdefault(task.user, set()).add(_board(fleet, slot))
                memory.add_use(task.user, slot, fleet.facts[slot].mem_total_bytes,
                               use.mem_used_bytes)
        for pool_node in self.pool.nodes:
            for lease in pool_node.report.leases:
                for uuid in lease.uuids:
                    at = fleet.slot_on(pool_node.id, uuid)
                    if at is not None:
                        by_owner.setdefault(lease.claim.owner, set()).add(_board(fleet, at))
                        memory.add_lease(lease.claim, at, fleet.facts[at].mem_total_bytes)
        return by_owner, memory

    def _throttled(self, mono: float) -> "np.ndarray":
        """Return the throttled percent of the time of each GPU; NaN: not known."""
        total = np.zeros(len(self.fleet))
        for key in THROTTLING:
            column = self.fleet.column(key, mono)
            total += np.where(column.absent == Absence.PRESENT, column.values, np.nan)
        return np.minimum(total, 100.0)


def _in_turns(of: Iterable[T], many: int) -> Iterator[T]:
    """Yield the items, letting other threads run before the first and after each `many`."""
    for at, item in enumerate(of):
        if at % many == 0:
            sleep(0)
        yield item


def _board(fleet: Fleet, slot: int) -> int:
    parent = int(fleet.parent[slot])
    return slot if parent == NO_PARENT else parent


def _members(users: Iterable[str], teams: Mapping[str, str]) -> dict[str, list[str]]:
    """Group these users by tenant."""
    by_tenant: dict[str, list[str]] = {f"user:{user}": [user] for user in users}
    for user, team in teams.items():
        by_tenant.setdefault(f"team:{team}", []).append(user)
    return by_tenant


def _state(members: Collection[str], boards_of: Mapping[str, set[int]],
           waits: Mapping[str, Sequence[float]], throttled: "np.ndarray",
           memory: HeldMemory | None) -> TenantState:
    boards = {slot for user in members for slot in boards_of.get(user, ())}
    shares = throttled[sorted(boards)] if boards else np.zeros(0)
    shares = shares[~np.isnan(shares)]
    return TenantState(len(boards), [wait for user in members for wait in waits.get(user, ())],
                       float(shares.mean()) if len(shares) else None,
                       None if memory is None else memory.of(members))
