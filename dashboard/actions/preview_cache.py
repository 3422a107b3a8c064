"""Previews shown before an action: each job that was selected, with what its node reports."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpudeck.contract.action_table import ShownAction
from gpudeck.contract.action_views import PlanState
from gpudeck.contract.actions import NO_TASK, PREVIEW_LASTS_S, ActionParams, Preview, Refusal

from ..access.policy import Actor
from .errors import ActionRefusedError

MAX_PREVIEWS = 1_000


@dataclass(frozen=True, slots=True)
class PreviewTarget:
    """A job that was selected."""

    node_id: str
    host: str
    task_ids: tuple[str, ...]
    owner: str | None
    command: str | None

    @property
    def real_tasks(self) -> tuple[str, ...]:
        """Task ids without that of a setting, which stands for none."""
        return tuple(task_id for task_id in self.task_ids if task_id != NO_TASK)


@dataclass(frozen=True, slots=True)
class JobPreview:
    """A job with the preview of its node; `refusal`: the node could not be asked, or must not
    be."""

    target: PreviewTarget
    preview: Preview | None
    refusal: Refusal | None = None

    @property
    def owners(self) -> tuple[str | None, ...]:
        if self.preview is None or not self.preview.victims:
            # A Slurm job has an owner, and its node has just looked that owner up.
            is_own = self.preview is not None and self.preview.params.setting is not None and (
                self.target.owner is not None)
            reported = {self.preview.owner} if is_own and self.preview is not None else set()
            return tuple({self.target.owner} | reported)
        own = {None} if self.preview.params.setting is not None else set()  # without an owner
        return tuple({victim.user for victim in self.preview.victims} | own)

    @property
    def is_refused(self) -> bool:
        return self.refusal is not None or self.preview is None or bool(self.preview.refusals)

    def identities(self) -> frozenset[tuple[str, int, int]]:
        if self.preview is None:
            return frozenset()
        return frozenset((self.preview.boot_id, victim.process.pid, victim.process.start_ticks)
                         for victim in self.preview.victims)

    def with_refusal(self, refusal: Refusal) -> "JobPreview":
        return replace(self, refusal=refusal)


@dataclass(frozen=True, slots=True)
class CachedPreview:
    """A preview that a caller has in front of them."""

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
    """A plan. `cached`: the preview shown to the requester, without jobs that would be refused."""

    id: str
    cached: CachedPreview
    reason: str
    asked_at: float
    ends_at: float
    names: frozenset[str]  # people who must not approve it
    state: PlanState = "waiting"


class PreviewCache:
    """Each preview can be used once, by the caller to whom it was shown, for a short time."""

    def __init__(self) -> None:
        self._previews: dict[str, CachedPreview] = {}

    def put(self, preview: CachedPreview) -> None:
        mono = time.monotonic()
        self._previews = {key: cached for key, cached in self._previews.items()
                          if mono < cached.expires_mono}
        while len(self._previews) >= MAX_PREVIEWS:
            del self._previews[next(iter(self._previews))]
        self._previews[preview.id] = preview

    def get(self, actor: Actor, preview_id: str) -> CachedPreview:
        cached = self._previews.get(preview_id)
        if (cached is None or time.monotonic() >= cached.expires_mono
            or (cached.actor.kind, cached.actor.name, cached.actor.credential)
                != (actor.kind, actor.name, actor.credential)):
            raise ActionRefusedError(409, "stale_preview", "this preview is older than "
                                     f"{PREVIEW_LASTS_S:.0f} s, was used already, or belongs to "
                                     "somebody else; preview again")
        return cached

    def remove(self, preview: CachedPreview) -> None:
        del self._previews[preview.id]


def merge_jobs(jobs: Iterable[JobPreview]) -> tuple[JobPreview, ...]:
    """Merge previews of the same processes: two tasks may have been selected without anybody
    knowing that they are of one job."""
    by_processes: dict[object, JobPreview] = {}
    for at, job in enumerate(jobs):
        key: object = at if not job.identities() else (job.target.node_id, job.identities())
        by_processes.setdefault(key, job)
    return tuple(by_processes.values())


def refuse_if_changed(before: JobPreview, after: JobPreview) -> JobPreview:
    if after.refusal is not None or before.identities() == after.identities():
        return after
    return after.with_refusal(Refusal("changed", "its processes have changed since this was "
                                      "requested; request it again"))
