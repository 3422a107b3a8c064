"""Promises to a tenant, and when one was not kept. Pure.

A violation counts from when its condition was first met, and only once it has been met for a
minute: a claim that waits for the next pass of the scheduler is none. While the hub does not check,
nothing is known, and nothing counts: a violation ends with the last moment at which it was seen.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

QosKind = Literal["gpus", "memory", "wait", "throttling"]
KINDS: tuple[QosKind, ...] = ("gpus", "memory", "wait", "throttling")
HAS_LEAST: tuple[QosKind, ...] = ("gpus", "memory")  # of which less is worse
GIB = 2**30
LASTS_S = 60.0  # until a condition counts, and until it counts as over
THROTTLED_OVER_S = 600.0
WEEK_S = 7 * 86_400.0
KEPT_S = 91 * 86_400.0
MOST = 200
VIOLATIONS_MOST = 2_000

Tenant = Annotated[str, Meta(pattern="^(user|team):.", max_length=140)]
PromisedGpus = Annotated[int, Meta(ge=1, le=1_000_000)]
PromisedMemory = Annotated[float, Meta(gt=0, le=1e9)]
PromisedWait = Annotated[float, Meta(ge=60, le=30 * 86_400)]
PromisedThrottling = Annotated[float, Meta(ge=0, le=100)]


class QosPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """Promises to `tenant`, which is `user:NAME` or `team:NAME`. `gpus`, `memory_gib`: that it gets
    while it asks for more; `wait_s`: the longest wait of one of its claims; `throttled_pct`: the
    most of the time in which its GPUs are throttled by heat or the power brake, over ten minutes.
    Null: not promised."""

    tenant: Tenant
    gpus: PromisedGpus | None = None
    wait_s: PromisedWait | None = None
    throttled_pct: PromisedThrottling | None = None
    memory_gib: PromisedMemory | None = None

    @property
    def promises_nothing(self) -> bool:
        return (self.gpus, self.memory_gib, self.wait_s, self.throttled_pct) == (None,) * 4


class QosViolation(Struct, frozen=True):
    """A promise that was not kept. `worst`: GPUs or GiB held, seconds waited, percent of the time.
    `ended_at` null: it goes on."""

    tenant: str
    kind: QosKind
    began_at: float
    ended_at: float | None
    worst: float
    promised: float


class QosRecord(Struct, frozen=True):
    """Policies and violations as they are stored."""

    policies: tuple[QosPolicy, ...] = ()
    violations: tuple[QosViolation, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantState:
    """State of a tenant at one moment. `waiting_s`: how long each of its claims has waited;
    `memory_bytes`: of GPUs; None: not known, or not promised."""

    gpus: int
    waiting_s: Sequence[float]
    throttled_pct: float | None
    memory_bytes: float | None


Key = tuple[str, QosKind]


def flaw(policies: Collection[QosPolicy]) -> str | None:
    """Return why these cannot be the policies; None: they can."""
    if len(policies) > MOST:
        return f"at most {MOST} tenants fit"
    names = [policy.tenant for policy in policies]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        return f"{twice!r} is there twice"
    empty = next((policy.tenant for policy in policies if policy.promises_nothing), None)
    return None if empty is None else f"{empty!r} is promised nothing"


def unkept(policy: QosPolicy, state: TenantState, throttled_pct: float | None
           ) -> dict[QosKind, tuple[float, float]]:
    """Return the present and the promised value of each kind that is not kept now."""
    violations: dict[QosKind, tuple[float, float]] = {}
    longest_s = max(state.waiting_s, default=0.0)
    if policy.gpus is not None and state.gpus < policy.gpus and longest_s > 0:
        violations["gpus"] = float(state.gpus), float(policy.gpus)
    if policy.memory_gib is not None and state.memory_bytes is not None and longest_s > 0 \
            and state.memory_bytes < policy.memory_gib * GIB:
        violations["memory"] = state.memory_bytes / GIB, policy.memory_gib
    if policy.wait_s is not None and longest_s > policy.wait_s:
        violations["wait"] = longest_s, policy.wait_s
    if policy.throttled_pct is not None and throttled_pct is not None \
            and throttled_pct > policy.throttled_pct:
        violations["throttling"] = throttled_pct, policy.throttled_pct
    return violations


@dataclass(slots=True)
class QosTracker:
    """Tracker of violations. `closed`: oldest first; `open`: those that go on."""

    closed: list[QosViolation] = field(default_factory=list)
    open: dict[Key, QosViolation] = field(default_factory=dict)
    _since: dict[Key, float] = field(default_factory=dict)
    _met_at: dict[Key, float] = field(default_factory=dict)
    _throttled: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _updated_at: float | None = None

    def update(self, policies: Iterable[QosPolicy], states: Mapping[str, TenantState], now: float
               ) -> bool:
        """Update the violations; return whether one began or ended."""
        has_gap = self._end_unseen(now)
        self._updated_at = now
        current: dict[Key, tuple[float, float]] = {}
        for policy in policies:
            state = states[policy.tenant]
            mean = self._mean_throttled(policy.tenant, state.throttled_pct, now)
            for kind, values in unkept(policy, state, mean).items():
                current[policy.tenant, kind] = values
        began = [self._add_value(key, *values, now) for key, values in current.items()]
        self._since = {key: at for key, at in self._since.items() if key in current}
        over = [key for key in self.open
                if key not in current and now - self._met_at[key] >= LASTS_S]
        for key in over:
            self._end(key)
        return any(began) or bool(over) or has_gap

    def _end_unseen(self, now: float) -> bool:
        """End what went on if nobody has looked for a while, or the clock was set back: return
        whether it is so."""
        if self._updated_at is None or 0 <= now - self._updated_at < LASTS_S:
            return False
        self._since, self._throttled = {}, {}
        for key in [*self.open]:
            self._end(key)
        return True

    def _add_value(self, key: Key, value: float, promised: float, now: float) -> bool:
        since = self._since.setdefault(key, now)
        self._met_at[key] = now
        had = self.open.get(key)
        if had is not None:
            worst = min if key[1] in HAS_LEAST else max
            self.open[key] = replace(had, worst=worst(had.worst, value), promised=promised)
        elif now - since >= LASTS_S:
            self.open[key] = QosViolation(*key, since, None, value, promised)
            return True
        return False

    def _end(self, key: Key) -> None:
        self.closed.append(replace(self.open.pop(key), ended_at=self._met_at.pop(key)))
        del self.closed[:-VIOLATIONS_MOST]

    def _mean_throttled(self, tenant: str, pct: float | None, now: float) -> float | None:
        """Return the mean throttling; None: not known over most of the ten minutes."""
        recent = [(at, value) for at, value in self._throttled.get(tenant, ())
                  if at > now - THROTTLED_OVER_S]
        if pct is not None:
            recent.append((now, pct))
        self._throttled[tenant] = recent
        if not recent or now - recent[0][0] < THROTTLED_OVER_S / 2:
            return None
        return sum(value for _, value in recent) / len(recent)

    def restore(self, violations: Iterable[QosViolation], now: float) -> None:
        """Restore the stored violations. One without an end, of a hub of before, is taken to have
        ended with its beginning, the last that is known."""
        self.closed = [
            past if past.ended_at is not None else replace(past, ended_at=past.began_at)
            for past in violations if past.began_at > now - KEPT_S]

    def unkept(self, tenant: str) -> list[QosKind]:
        """Return the promises that were not kept when it was last looked, counted or not yet."""
        return [kind for kind in KINDS if (tenant, kind) in self._since]

    def all(self) -> list[QosViolation]:
        return [*self.closed, *self.open.values()]

    def history(self) -> list[QosViolation]:
        """Return all as they are stored: what goes on has lasted until it was seen last."""
        return [*self.closed, *(replace(violation, ended_at=self._met_at[key])
                                for key, violation in self.open.items())]


def of_week(violations: Iterable[QosViolation], tenant: str, kind: QosKind, now: float
            ) -> tuple[int, float]:
    """Return how many there were in the last seven days, and for how many seconds of them."""
    spans = [(max(past.began_at, now - WEEK_S), now if past.ended_at is None else past.ended_at)
             for past in violations if (past.tenant, past.kind) == (tenant, kind)]
    lasted = [end - begin for begin, end in spans if end > now - WEEK_S]
    return len(lasted), sum(lasted)
