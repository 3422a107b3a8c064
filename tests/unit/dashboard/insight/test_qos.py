"""Promises to tenants: when a violation begins, counts, ends, and what is not known."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from dashboard.fleet.fleet import Fleet
from dashboard.insight.core.qos import (
    GIB,
    KEPT_S,
    LASTS_S,
    WEEK_S,
    QosPolicy,
    QosTracker,
    QosViolation,
    TenantState,
    flaw,
    of_week,
)
from dashboard.insight.core.tenant_memory import HeldMemory
from dashboard.insight.qos_service import QosService
from gpudeck.pool.core.claims import Claim
from tests.unit import fleets
from tests.unit.fleets import MONO, NOW

STEP_S = 10.0
POLICY = QosPolicy("user:ada", gpus=4, wait_s=600.0, throttled_pct=5.0, memory_gib=40.0)


class SteppedTracker:
    """A tracker that is stepped every ten seconds."""

    def __init__(self) -> None:
        self.tracker, self.now = QosTracker(), random.uniform(1e9, 2e9)

    def run(self, seconds: float, state: TenantState) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            self.tracker.update((POLICY,), {"user:ada": state}, self.now)


GOOD = TenantState(4, [], 0.0, 40 * GIB)


@pytest.mark.parametrize(("state", "kind", "worst"), [
    (TenantState(3, [5.0], 0.0, None), "gpus", 3.0),
    (TenantState(9, [5.0, 601.0], 0.0, None), "wait", 601.0),
    (TenantState(9, [], 30.0, None), "throttling", None),
    (TenantState(9, [5.0], 0.0, 39.5 * GIB), "memory", 39.5),
])
def test_each_promise(state: TenantState, kind: Any, worst: float | None) -> None:
    stepped = SteppedTracker()
    stepped.run(1_200, GOOD)
    began = stepped.now
    stepped.run(600, state)
    (of, violation), = stepped.tracker.open.items()
    assert of == ("user:ada", kind)
    assert violation.began_at >= began
    assert worst is None or violation.worst == worst
    stepped.run(1_200, GOOD)
    assert stepped.tracker.open == {}
    closed, = stepped.tracker.closed
    assert closed.ended_at is not None
    assert 500 < closed.ended_at - closed.began_at < 1_200


def test_what_is_kept_is_no_violation() -> None:
    stepped = SteppedTracker()
    stepped.run(900, TenantState(1, [], None, None))  # few, and it asks for no more
    stepped.run(900, TenantState(4, [600.0], 5.0, 40 * GIB))
    stepped.run(900, TenantState(4, [], 5.0, 1.0))  # little, and it asks for no more
    stepped.run(900, TenantState(4, [5.0], 5.0, None))  # not known
    assert stepped.tracker.all() == []


def test_less_than_a_minute_does_not_count() -> None:
    stepped = SteppedTracker()
    for _ in range(5):
        stepped.run(LASTS_S - STEP_S, TenantState(1, [5.0], 0.0, None))
        stepped.run(STEP_S, GOOD)
    assert stepped.tracker.all() == []


def test_what_is_not_kept_is_known_at_once_and_no_longer_than_it_is_so() -> None:
    stepped, late = SteppedTracker(), TenantState(9, [601.0], 0.0, None)
    stepped.run(STEP_S, late)
    assert (stepped.tracker.unkept("user:ada"), stepped.tracker.open) == (["wait"], {})
    stepped.run(LASTS_S, late)
    assert [*stepped.tracker.open] == [("user:ada", "wait")]
    stepped.run(STEP_S, GOOD)
    assert (stepped.tracker.unkept("user:ada"), len(stepped.tracker.open)) == ([], 1)


def test_a_short_break_is_one_violation_with_its_worst() -> None:
    stepped = SteppedTracker()
    for gpus in (3, 1, 2):
        stepped.run(120, TenantState(gpus, [5.0], 0.0, None))
        stepped.run(LASTS_S - STEP_S, GOOD)
    violation, = stepped.tracker.open.values()
    assert violation.worst == 1.0


def test_while_nobody_looks_nothing_counts() -> None:
    stepped = SteppedTracker()
    stepped.run(LASTS_S - STEP_S, TenantState(1, [5.0], 0.0, None))
    stepped.now += 3_600
    stepped.run(STEP_S, TenantState(1, [5.0], 0.0, None))
    assert stepped.tracker.all() == []
    stepped.run(120, TenantState(1, [5.0], 30.0, None))
    violation = stepped.tracker.open["user:ada", "gpus"]
    assert stepped.now - violation.began_at < 200
    assert ("user:ada", "throttling") not in stepped.tracker.open, "ten minutes are not known yet"


def test_what_went_on_ends_with_the_last_that_was_seen() -> None:
    """The hub stood still for hours, or its clock was set back: nobody knows what was then."""
    for leap_s in (8 * 3_600.0, -3_600.0):
        stepped, few = SteppedTracker(), TenantState(1, [5.0], 0.0, None)
        stepped.run(300, few)
        seen_at = stepped.now
        stepped.now += leap_s
        stepped.run(120, few)
        past, = stepped.tracker.closed
        assert (past.kind, past.ended_at) == ("gpus", seen_at)
        assert stepped.tracker.open["user:ada", "gpus"].began_at == seen_at + leap_s + STEP_S


def test_a_restart_ends_what_went_on_and_forgets_the_old() -> None:
    now = random.uniform(1e9, 2e9)
    recent = QosViolation("user:ada", "gpus", now - 500, None, 1.0, 4.0)
    old = QosViolation("user:ada", "gpus", now - KEPT_S - 1, now - KEPT_S, 1.0, 4.0)
    tracker = QosTracker()
    tracker.restore([old, recent], now)
    assert [violation.ended_at for violation in tracker.closed] == [recent.began_at]


def test_of_a_week_only_its_part_counts() -> None:
    now = 2e9
    violations = [QosViolation("user:ada", "gpus", now - WEEK_S - 100, now - WEEK_S + 50, 1.0, 4.0),
                  QosViolation("user:ada", "gpus", now - WEEK_S - 100, now - WEEK_S - 50, 1.0, 4.0),
                  QosViolation("user:ada", "wait", now - 300, now - 200, 1.0, 4.0),
                  QosViolation("user:ada", "gpus", now - 30, None, 1.0, 4.0)]
    assert of_week(violations, "user:ada", "gpus", now) == pytest.approx((2, 80.0))


@pytest.mark.parametrize(("policies", "why"), [
    ([POLICY], None), ([POLICY, POLICY], "twice"), ([QosPolicy("user:x")], "nothing"),
    ([QosPolicy(f"user:{at}", gpus=1) for at in range(201)], "at most 200"),
])
def test_wrong_ones_are_refused(policies: list[QosPolicy], why: str | None) -> None:
    reason = flaw(policies)
    assert reason is None if why is None else why in str(reason)


def claim(owner: str, share_milli: int = 1_000, mem_bytes: int | None = None) -> Claim:
    return Claim(id="c", owner=owner, gpus=1, submitted_at=NOW, share_milli=share_milli,
                 mem_bytes=mem_bytes)


def test_memory_of_a_tenant_is_the_whole_of_its_own_gpus_and_its_part_of_shared_ones() -> None:
    total = float(random.randrange(20, 200) * GIB)
    memory = HeldMemory()
    memory.add_use("ada", 0, total, 1.0)  # alone
    memory.add_use("ada", 1, total, 3.0)  # beside bob
    memory.add_use("bob", 1, total, 5.0)
    memory.add_lease(claim("ada", 250), 2, total)  # a quarter, beside bob's half
    memory.add_lease(claim("bob", 500, 7), 2, total)
    memory.add_use("ada", 2, total, 1e12)  # more than it was given is not its own
    memory.add_use(None, 3, total, 1.0)  # beside somebody unknown
    memory.add_use("ada", 3, total, 2.0)
    memory.add_use("ada", 3, total, 4.0)
    assert memory.of(["ada"]) == total + 3.0 + total / 4 + 6.0
    assert memory.of(["bob"]) == 5.0 + 7.0
    assert memory.of(["ada", "bob"]) == 3 * total + 6.0, "a team's own GPUs are whole"
    assert memory.of([]) == memory.of(["eve"]) == 0.0
    memory.add_lease(claim("eve"), 4, total)
    memory.add_use("bob", 4, total, 9.0)  # on what is leased to another
    assert (memory.of(["eve"]), memory.of(["bob"])) == (total, 5.0 + 7.0 + 9.0)


def test_memory_that_is_not_known_is_none() -> None:
    memory = HeldMemory()
    memory.add_use("ada", 0, None, 1.0)
    memory.add_use("bob", 1, 80.0, None)
    memory.add_use("eve", 1, 80.0, 2.0)
    assert (memory.of(["ada"]), memory.of(["bob"]), memory.of(["eve"])) == (None, None, 2.0)
    assert memory.of(["bob", "eve"]) == 80.0


class DictStore(dict[str, str]):
    def put(self, key: str, value: str) -> None:
        self[key] = value


class Waiting:
    """A pool of which only its waiting claims matter here."""

    nodes: tuple[Any, ...] = ()

    def __init__(self, *claims: Claim) -> None:
        self.claims = claims

    def waiting(self, _nodes: object) -> tuple[Claim, ...]:
        return self.claims


class Teams:
    def teams_of(self, users: Any) -> Mapping[str, str]:
        return {user: "vision" for user in users if user.startswith("v")}


def test_a_tenant_is_its_tasks_claims_and_boards() -> None:
    fleet = Fleet(1)
    node = fleets.add_node(fleet, gpus=3)
    slow = [{"slowed_soft_thermal_pct": 20.0, "slowed_hard_thermal_pct": 0.0,
             "slowed_brake_pct": 0.0, "slowed_power_pct": 100.0},
            {"slowed_soft_thermal_pct": 0.0, "slowed_hard_thermal_pct": 0.0,
             "slowed_brake_pct": 0.0}, {}]
    message = fleets.frame([{"util_pct": 30.0}] * 3, slow=slow, tasks=fleets.tasks(
        ("a", 0, "vera"), ("b", 1, "vic"), ("c", 1, "vera"), ("d", 2, "ann")))
    node.set_clock(NOW, MONO, NOW, MONO)
    fleet.frame(node, message, NOW, MONO)
    pool = Waiting(*(Claim(id=f"c{at}", owner=owner, gpus=2, submitted_at=NOW - ago_s,
                           starts_at=starts_at) for at, (owner, ago_s, starts_at) in enumerate((
                               ("vic", 70, None), ("ann", 700, None), ("vic", 900, NOW + 60)))))
    service = QosService(fleet, Teams(), pool, DictStore(), None, lambda: NOW)  # type: ignore[arg-type]
    service.policies = (QosPolicy("team:vision", gpus=3, memory_gib=1.0),
                        QosPolicy("user:ann", gpus=3))
    service.step(NOW, MONO)
    team, ann = service.states["team:vision"], service.states["user:ann"]
    assert (team.gpus, team.waiting_s) == (2, [70.0])
    assert team.throttled_pct == pytest.approx(10.0)
    assert (ann.gpus, ann.waiting_s, ann.throttled_pct) == (1, [700.0], None)
    assert (team.memory_bytes, ann.memory_bytes) == (2 * 80e9, None)
    for turn in range(1, 8):
        service.step(NOW + 10 * turn, MONO)
    assert {*service.tracker.open} == {("team:vision", "gpus"), ("user:ann", "gpus")}
    restarted = QosService(fleet, Teams(), pool, service.store, None,  # type: ignore[arg-type]
                           lambda: NOW + 100)
    assert len(restarted.tracker.closed) == 2


def test_the_gpu_of_a_suspended_task_is_not_its_tenants() -> None:
    """A pre-emption took it: the promise is broken, though the task has not ended."""
    fleet = Fleet(1)
    node = fleets.add_node(fleet, gpus=2)
    tasks = fleets.tasks(("a", 0, "ada"), ("b", 1, "ada"), ("c", 0, "bob"))
    node.set_clock(NOW, MONO, NOW, MONO)
    fleet.frame(node, fleets.frame([{"util_pct": 30.0}] * 2, tasks=replace(
        tasks, suspended=("a",))), NOW, MONO)
    service = QosService(fleet, Teams(), Waiting(), DictStore(), None,  # type: ignore[arg-type]
                         lambda: NOW)
    service.policies = tuple(QosPolicy(f"user:{name}", gpus=2, memory_gib=1.0)
                             for name in ("ada", "bob"))
    service.step(NOW, MONO)
    assert [(state.gpus, state.memory_bytes) for state in service.states.values()] == [
        (1, 80e9), (1, 80e9)], "and bob has his GPU to himself"


def late_service(store: DictStore) -> QosService:
    pool = Waiting(Claim(id="c", owner="ada", gpus=2, submitted_at=NOW))
    service = QosService(Fleet(1), Teams(), pool, store, None, lambda: NOW)  # type: ignore[arg-type]
    service.policies = (QosPolicy("user:ada", wait_s=60.0),)
    return service


def test_a_restart_keeps_how_long_a_violation_lasted_and_its_worst() -> None:
    store = DictStore()
    service = late_service(store)
    for at in range(0, 3_601, 10):
        service.step(NOW + at, MONO + at)
    past, = late_service(store).tracker.closed
    assert past.ended_at is not None
    assert past.ended_at - past.began_at > 3_400
    assert past.worst > 3_500


def test_a_promise_that_is_taken_back_is_broken_no_longer() -> None:
    service = late_service(DictStore())
    for at in range(0, 301, 10):
        service.step(NOW + at, MONO + at)
    assert len(service.tracker.open) == 1
    service.policies = ()
    for at in range(310, 400, 10):
        service.step(NOW + at, MONO + at)
    past, = service.tracker.all()
    assert past.ended_at == NOW + 300
