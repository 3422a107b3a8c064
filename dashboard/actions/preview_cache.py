"""What somebody was shown before an act: each job that was pointed at, and what its node says."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpudeck.actions import ActionParams, Preview, Refusal, ShownAction

from ..access.policy import Actor
from .views import PlanState


@dataclass(frozen=True, slots=True)
class PreviewTarget:
    """One job that was pointed at."""

    node_id: str
    host: str
    task_ids: tuple[str, ...]
    owner: str | None
    command: str | None


@dataclass(frozen=True, slots=True)
class JobPreview:
    """A job and what its node says of it; `refusal`: it could not be asked, or must not."""

    wanted: PreviewTarget
    preview: Preview | None
    refusal: Refusal | None = None

    @property
    def owners(self) -> tuple[str | None, ...]:
        if self.preview is None or not self.preview.victims:
            return (self.wanted.owner,)
        own = {None} if self.preview.params.setting is not None else set()  # nobody's own
        return tuple({victim.user for victim in self.preview.victims} | own)

    @property
    def is_refused(self) -> bool:
        return self.refusal is not None or self.preview is None or bool(self.preview.refusals)

    def identities(self) -> frozenset[tuple[str, int, int]]:
        if self.preview is None:
            return frozenset()
        return frozenset((self.preview.boot_id, victim.process.pid, victim.process.start_ticks)
                         for victim in self.preview.victims)


@dataclass(frozen=True, slots=True)
class CachedPreview:
    """A preview that somebody has before their eyes."""

    id: str
    actor: Actor
    action: ShownAction
    params: ActionParams
    expires_at: float
    expires_mono: float
    seen: tuple[JobPreview, ...]


@dataclass(slots=True)
class ActionPlan:
    id: str
    actor: Actor
    action: ShownAction
    params: ActionParams
    reason: str
    asked_at: float
    ends_at: float
    seen: tuple[JobPreview, ...]
    state: PlanState = "waiting"
    names: frozenset[str] = field(default_factory=frozenset)  # who must not approve it


def replace_seen(one: JobPreview, refusal: Refusal) -> JobPreview:
    return JobPreview(one.wanted, one.preview, refusal)


def merged(seen: Iterable[JobPreview]) -> tuple[JobPreview, ...]:
    """Two tasks of one job may have been pointed at without anybody knowing that they are one."""
    found: dict[object, JobPreview] = {}
    for at, one in enumerate(seen):
        key: object = at if not one.identities() else (one.wanted.node_id, one.identities())
        found.setdefault(key, one)
    return tuple(found.values())


def unchanged(before: JobPreview, after: JobPreview) -> JobPreview:
    if after.refusal is not None or before.identities() == after.identities():
        return after
    return replace_seen(after, Refusal("changed", "its processes are not the same as when this "
                                       "was asked for; ask anew"))
