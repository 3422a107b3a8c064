"""Rights to act. The gate has checked `may` already; it is checked again with the victims known,
each time: at the preview, at the order, at the approval."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from gpudeck.contract.action_table import HARMFUL, ShownAction
from gpudeck.contract.actions import Refusal

from ..access.policy import (
    AccessDenial,
    AccessTarget,
    Actor,
    DenialReason,
    RefusedError,
    actor_fields,
    may,
)
from ..access.service import AccountService
from ..audit.recorder import AuditRecorder
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from .preview_cache import CachedPreview, JobPreview


def hidden(sentence: str) -> RefusedError:
    return RefusedError(AccessDenial(DenialReason.HIDDEN, sentence))


@dataclass(frozen=True, slots=True)
class ActionAuthorizer:
    visible_fleets: VisibleFleetCache
    accounts: AccountService
    auditor: AuditRecorder

    def visible(self, actor: Actor) -> VisibleFleet:
        return self.visible_fleets.of(VisibilityScope.of(actor))

    def check(self, actor: Actor, verb: str, target: AccessTarget, action: str,
              task_ids: Iterable[str]) -> None:
        try:
            self.accounts.check(actor, verb, target)
        except RefusedError as denied:
            self.auditor.record_refusal("command", actor_fields(actor) | {
                "action": action, "task_ids": list(task_ids), "refusal": "scope",
                "sentence": denied.refusal.sentence})
            raise

    def check_all(self, actor: Actor, verb: str, cached: CachedPreview) -> None:
        visible = self.visible(actor)
        for job in cached.jobs:
            if not visible.sees_node(job.target.node_id):
                raise hidden("this node is not in your scope any more")
            self.check_job(actor, verb, cached.action, job, cached.action in HARMFUL)

    def check_job(self, actor: Actor, verb: str, action: ShownAction, job: JobPreview,
                  is_harmful: bool) -> None:
        """Check a job, unless it is refused anyway: that needs no right."""
        if not job.is_refused:
            self.check(actor, verb, AccessTarget(owners=job.owners, is_harmful=is_harmful), action,
                       job.target.task_ids)

    def within_scope(self, actor: Actor, verb: str, job: JobPreview) -> JobPreview:
        """Refuse a job that is out of the actor's scope: the processes that the node found may
        belong to others than the selected task."""
        denial = may(actor, verb, AccessTarget(owners=job.owners, is_harmful=False), time.time())
        if denial is None or job.preview is None:
            return job
        return job.with_refusal(Refusal("scope", "its job has processes of other users as well: "
                                        + denial.sentence))
