"""Plans: what is so large that a second person has to approve it."""

import secrets
import time
from collections.abc import Iterable

from msgspec import to_builtins

from gpudeck.action_table import HARMFUL
from gpudeck.action_views import ActionPlanView, RequesterView

from ..access.policy import AccessDenial, Actor, DenialReason, RefusedError, by
from ..access.service import AccountService
from ..audit.recorder import AuditRecorder
from ..fleet.visibility import VisibleFleet
from .authorizer import ActionAuthorizer
from .errors import ActionRefusedError
from .lifecycle import CommandRecord
from .orders import JobOrderer
from .preview_cache import ActionPlan, CachedPreview, JobPreview, unchanged
from .preview_views import PreviewPresenter
from .previews import PreviewService

ORDER = "POST /api/v1/commands"
APPROVE = "POST /api/v1/plans/<plan_id>/approve"
PLAN_LASTS_S = 600.0
MAX_PLANS = 100


class ActionPlanService:
    def __init__(self, authorizer: ActionAuthorizer, accounts: AccountService,
                 previews: PreviewService, presenter: PreviewPresenter, orderer: JobOrderer,
                 auditor: AuditRecorder) -> None:
        self._authorizer = authorizer
        self._accounts = accounts
        self._previews = previews
        self._presenter = presenter
        self._orderer = orderer
        self._auditor = auditor
        self._plans: dict[str, ActionPlan] = {}

    def add(self, shown: CachedPreview, ready: Iterable[JobPreview], reason: str) -> ActionPlan:
        self._end_old()
        if sum(plan.state == "waiting" for plan in self._plans.values()) >= MAX_PLANS:
            raise ActionRefusedError(409, "too_many",
                                     f"{MAX_PLANS} plans wait for a second person already")
        now, actor = time.time(), shown.actor
        plan = ActionPlan(secrets.token_urlsafe(12), actor, shown.action, shown.params, reason, now,
                          now + PLAN_LASTS_S, tuple(ready),
                          names=frozenset({actor.name, self._accounts.behind(actor)}))
        self._record(plan, actor)
        self._plans[plan.id] = plan
        return plan

    def _end_old(self) -> None:
        now = time.time()
        for plan in list(self._plans.values()):
            if plan.state == "waiting" and (
                    now >= plan.ends_at or not self._accounts.holds(plan.actor.credential)):
                plan.state = "expired"
                self._auditor.refused("plan", _fields(plan, plan.actor))
            if now >= plan.ends_at + PLAN_LASTS_S:
                del self._plans[plan.id]

    def _record(self, plan: ActionPlan, actor: Actor) -> None:
        self._auditor.record("plan", _fields(plan, actor))

    def views(self, actor: Actor) -> list[ActionPlanView]:
        self._end_old()
        visible = self._authorizer.visible(actor)
        return [self.view(actor, plan) for plan in self._plans.values()
                if _sees_all(visible, plan)]

    def view(self, actor: Actor, plan: ActionPlan) -> ActionPlanView:
        return ActionPlanView(
            plan.id, plan.state, plan.ends_at,
            self._presenter.items(plan.jobs, self._authorizer.visible(actor).reads),
            plan.action, to_builtins(plan.params),
            RequesterView(plan.actor.kind, plan.actor.name), plan.reason, plan.asked_at)

    def _waiting(self, actor: Actor, plan_id: str) -> ActionPlan:
        self._end_old()
        plan = self._plans.get(plan_id)
        if plan is None or not _sees_all(self._authorizer.visible(actor), plan):
            raise RefusedError(AccessDenial(DenialReason.HIDDEN,
                                            f"there is no plan {plan_id[:64]!r} here"))
        if plan.state != "waiting":
            raise ActionRefusedError(409, "stale_preview", f"this plan is {plan.state} already")
        return plan

    def withdraw(self, actor: Actor, plan_id: str) -> None:
        plan = self._waiting(actor, plan_id)
        if plan.actor.name != actor.name:
            self._authorizer.check_all(actor, APPROVE, plan.action, plan.jobs)
        plan.state = "withdrawn"
        self._record(plan, actor)

    def approve(self, actor: Actor, plan_id: str) -> tuple[list[CommandRecord], ActionPlan]:
        """All is looked at anew: what was shown to the first person may be another now."""
        plan = self._waiting(actor, plan_id)
        if actor.name in plan.names:
            raise ActionRefusedError(403, "second_person",
                                     "another person than the one who asked has to "
                                     "approve it")
        self._authorizer.check_all(actor, APPROVE, plan.action, plan.jobs)
        plan.state = "approved"  # before anything waits: it is approved once
        self._record(plan, actor)
        asked = self._previews.ask_nodes([job.target for job in plan.jobs], plan.action,
                                         plan.params)
        jobs = [unchanged(before, self._authorizer.within_scope(plan.actor, ORDER, after))
                for before, after in zip(plan.jobs, asked, strict=True)]
        is_harmful = plan.action in HARMFUL
        for job in jobs:
            self._authorizer.check_job(actor, APPROVE, plan.action, job, is_harmful)
        for job in jobs:  # the one who asked was fresh then, and the one who approves is now
            self._authorizer.check_job(plan.actor, ORDER, plan.action, job, is_harmful=False)
        return self._orderer.order_all(plan.actor, jobs, plan.action, plan.params, plan.reason,
                                       actor.name), plan


def _fields(plan: ActionPlan, actor: Actor) -> dict[str, object]:
    return by(actor) | {
        "action": plan.action, "outcome": plan.state, "plan": plan.id, "reason": plan.reason,
        "task_ids": [task_id for job in plan.jobs for task_id in job.target.task_ids]}


def _sees_all(visible: VisibleFleet, plan: ActionPlan) -> bool:
    return all(visible.sees_node(job.target.node_id) for job in plan.jobs)
