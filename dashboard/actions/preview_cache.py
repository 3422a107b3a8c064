"""What somebody was shown before an action: each job pointed at, and what its node says."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpudeck.action_table import ShownAction
from gpudeck.action_views import PlanState
from gpudeck.actions import NO_TASK, PREVIEW_LASTS_S, ActionParams, Preview, Refusal

from ..access.policy import Actor
from .errors import ActionRefusedError

MAX_PREVIEWS = 1_000


@dataclass(frozen=True, slots=True)
class PreviewTarget:
    """One job that was pointed at."""

    node_id: str
    host: str
    task_ids: tuple[str, ...]
    owner: str | None
    command: str | None

    @property
    def real_tasks(self) -> tuple[str, ...]:
        """None of a setting."""
        return tuple(task_id for task_id in self.task_ids if task_id != NO_TASK)


@dataclass(frozen=True, slots=True)
class JobPreview:
    """A job and what its node says of it; `refusal`: it could not be asked, or must not."""

    target: PreviewTarget
    preview: Preview | None
    refusal: Refusal | None = None

    @property
    def owners(self) -> tuple[str | None, ...]:
        if self.preview is None or not self.preview.victims:
            # A Slurm job has an owner, and its node has just looked up who that is.
            is_own = self.preview is not None and self.preview.params.setting is not None and (
                self.target.owner is not None)
            again = {self.preview.owner} if is_own and self.preview is not None else set()
            return tuple({self.target.owner} | again)
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

    def refused(self, refusal: Refusal) -> "JobPreview":
        return replace(self, refusal=refusal)


@dataclass(frozen=True, slots=True)
class CachedPreview:
    """A preview that somebody has before their eyes."""

    id: str
    actor: Actor
    action: ShownAction
    params: ActionParams
    expires_at: float
    expires_mono: float
    jobs: tuple[JobPreview, ...]

    @property
    def ready(self) -> tuple[JobPreview, ...]:
        return tuple(job for job in self.jobs if not job.is_refused)


@dataclass(slots=True)
class ActionPlan:
    """`shown`: to the one who asked, without what would be refused."""

    id: str
    shown: CachedPreview
    reason: str
    asked_at: float
    ends_at: float
    names: frozenset[str]  # who must not approve it
    state: PlanState = "waiting"


class PreviewCache:
    """Each is good once, for the one who was shown it, and not for long."""

    def __init__(self) -> None:
        self._previews: dict[str, CachedPreview] = {}

    def put(self, preview: CachedPreview) -> None:
        mono = time.monotonic()
        self._previews = {key: one for key, one in self._previews.items()
                          if mono < one.expires_mono}
        while len(self._previews) >= MAX_PREVIEWS:
            del self._previews[next(iter(self._previews))]
        self._previews[preview.id] = preview

    def shown_to(self, actor: Actor, preview_id: str) -> CachedPreview:
        found = self._previews.get(preview_id)
        if (found is None or time.monotonic() >= found.expires_mono
                or (found.actor.kind, found.actor.name, found.actor.credential)
                != (actor.kind, actor.name, actor.credential)):
            raise ActionRefusedError(409, "stale_preview", "this preview is older than "
                                     f"{PREVIEW_LASTS_S:.0f} s, was used already, or belongs to "
                                     "somebody else; preview again")
        return found

    def use_up(self, preview: CachedPreview) -> None:
        del self._previews[preview.id]


def merged(jobs: Iterable[JobPreview]) -> tuple[JobPreview, ...]:
    """Two tasks of one job may have been pointed at without anybody knowing that they are one."""
    found: dict[object, JobPreview] = {}
    for at, one in enumerate(jobs):
        key: object = at if not one.identities() else (one.target.node_id, one.identities())
        found.setdefault(key, one)
    return tuple(found.values())


def unchanged(before: JobPreview, after: JobPreview) -> JobPreview:
    if after.refusal is not None or before.identities() == after.identities():
        return after
    return after.refused(Refusal("changed", "its processes have changed since this was "
                                 "requested; request it again"))
