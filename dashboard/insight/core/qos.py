"""What a tenant was promised, and when it was not kept. Pure.

A violation counts from when its condition was first met, and only once it has been met for a
minute: a claim that waits for the next pass of the scheduler is none. While the hub does not look,
nothing is known, and nothing counts.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

QosKind = Literal["gpus", "wait", "throttling"]
KINDS: tuple[QosKind, ...] = ("gpus", "wait", "throttling")
LASTS_S = 60.0  # until a condition counts, and until it counts as over
THROTTLED_OVER_S = 600.0
WEEK_S = 7 * 86_400.0
KEPT_S = 91 * 86_400.0
MOST = 200
VIOLATIONS_MOST = 2_000


class QosPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """`tenant`: `user:NAME` or `team:NAME`. `gpus`: that it gets while it asks for more; `wait_s`:
    the longest wait of one of its claims; `throttled_pct`: the most of the time in which its GPUs
    are throttled by heat or the power brake, over ten minutes. Null: not promised."""

    tenant: Annotated[str, Meta(pattern="^(user|team):.", max_length=140)]
    gpus: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    wait_s: Annotated[float, Meta(ge=60, le=30 * 86_400)] | None = None
    throttled_pct: Annotated[float, Meta(ge=0, le=100)] | None = None


class QosViolation(Struct, frozen=True):
    """`worst`: GPUs held, seconds waited, or percent of the time. `ended_at` null: it goes on."""

    tenant: str
    kind: QosKind
    began_at: float
    ended_at: float | None
    worst: float
    promised: float


class QosRecord(Struct, frozen=True):
    """As it is kept."""

    policies: tuple[QosPolicy, ...] = ()
    violations: tuple[QosViolation, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantState:
    """Of one moment. `waiting_s`: how long each of its claims has waited."""

    gpus: int
    waiting_s: Sequence[float]
    throttled_pct: float | None


Key = tuple[str, QosKind]


def flaw(policies: Collection[QosPolicy]) -> str | None:
    """Why these cannot be the policies; None: they can."""
    if len(policies) > MOST:
        return f"at most {MOST} tenants fit"
    names = [each.tenant for each in policies]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        return f"{twice!r} is there twice"
    empty = next((each.tenant for each in policies if (
        each.gpus, each.wait_s, each.throttled_pct) == (None, None, None)), None)
    return None if empty is None else f"{empty!r} is promised nothing"


def unkept(policy: QosPolicy, state: TenantState, throttled_pct: float | None
           ) -> dict[QosKind, tuple[float, float]]:
    """What is, and what was promised, of each kind that is not kept now."""
    found: dict[QosKind, tuple[float, float]] = {}
    longest_s = max(state.waiting_s, default=0.0)
    if policy.gpus is not None and state.gpus < policy.gpus and longest_s > 0:
        found["gpus"] = float(state.gpus), float(policy.gpus)
    if policy.wait_s is not None and longest_s > policy.wait_s:
        found["wait"] = longest_s, policy.wait_s
    if policy.throttled_pct is not None and throttled_pct is not None \
            and throttled_pct > policy.throttled_pct:
        found["throttling"] = throttled_pct, policy.throttled_pct
    return found


@dataclass(slots=True)
class QosTracker:
    """`done`: oldest first; `open`: those that go on."""

    done: list[QosViolation] = field(default_factory=list)
    open: dict[Key, QosViolation] = field(default_factory=dict)
    _since: dict[Key, float] = field(default_factory=dict)
    _met_at: dict[Key, float] = field(default_factory=dict)
    _throttled: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _looked_at: float | None = None

    def look(self, policies: Iterable[QosPolicy], states: Mapping[str, TenantState], now: float
             ) -> bool:
        """Whether a violation began or ended."""
        if self._looked_at is not None and not 0 <= now - self._looked_at < LASTS_S:
            self._since, self._throttled = {}, {}
        self._looked_at = now
        met: dict[Key, tuple[float, float]] = {}
        for policy in policies:
            state = states[policy.tenant]
            mean = self._mean_throttled(policy.tenant, state.throttled_pct, now)
            for kind, found in unkept(policy, state, mean).items():
                met[policy.tenant, kind] = found
        began = [self._met(key, *found, now) for key, found in met.items()]
        self._since = {key: at for key, at in self._since.items() if key in met}
        ended = [key for key in self.open
                 if key not in met and now - self._met_at[key] >= LASTS_S]
        for key in ended:
            self._end(key)
        return any(began) or bool(ended)

    def _met(self, key: Key, value: float, promised: float, now: float) -> bool:
        since = self._since.setdefault(key, now)
        self._met_at[key] = now
        had = self.open.get(key)
        if had is not None:
            worst = min if key[1] == "gpus" else max
            self.open[key] = replace(had, worst=worst(had.worst, value), promised=promised)
        elif now - since >= LASTS_S:
            self.open[key] = QosViolation(*key, since, None, value, promised)
            return True
        return False

    def _end(self, key: Key) -> None:
        self.done.append(replace(self.open.pop(key), ended_at=self._met_at.pop(key)))
        del self.done[:-VIOLATIONS_MOST]

    def _mean_throttled(self, tenant: str, pct: float | None, now: float) -> float | None:
        """None: not known over most of the ten minutes."""
        kept = [(at, value) for at, value in self._throttled.get(tenant, ())
                if at > now - THROTTLED_OVER_S]
        if pct is not None:
            kept.append((now, pct))
        self._throttled[tenant] = kept
        if not kept or now - kept[0][0] < THROTTLED_OVER_S / 2:
            return None
        return sum(value for _, value in kept) / len(kept)

    def recovered(self, kept: Iterable[QosViolation], now: float) -> None:
        """What went on when the hub was last there ended then, as far as anybody knows."""
        self.done = [each if each.ended_at is not None else replace(each, ended_at=each.began_at)
                     for each in kept if each.began_at > now - KEPT_S]

    def all(self) -> list[QosViolation]:
        return [*self.done, *self.open.values()]


def of_week(violations: Iterable[QosViolation], tenant: str, kind: QosKind, now: float
            ) -> tuple[int, float]:
    """How many in the last seven days, and for how many seconds of them."""
    spans = [(max(each.began_at, now - WEEK_S), now if each.ended_at is None else each.ended_at)
             for each in violations if (each.tenant, each.kind) == (tenant, kind)]
    lasted = [end - begin for begin, end in spans if end > now - WEEK_S]
    return len(lasted), sum(lasted)
