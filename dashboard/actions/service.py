"""Orders of people and programs: what was shown to them is done, or waits as a plan for a second
person."""

import secrets
import time
from collections.abc import Callable
from dataclasses import replace

from msgspec import to_builtins

from gpudeck.action_table import HARMFUL, ShownAction
from gpudeck.action_views import ActionPlanView, RequesterView
from gpudeck.actions import COMMAND_LASTS_S, CommandActor, Preview, Refusal

from ..access.policy import Actor, actor_fields
from ..access.service import AccountService
from ..audit.recorder import AuditRecorder
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibleFleet, VisibleFleetCache
from .authorizer import ActionAuthorizer, hidden
from .commander import Commander, new_id
from .errors import ActionRefusedError
from .guards import ActionGuards
from .lifecycle import CommandRecord
from .preview_cache import ActionPlan, CachedPreview, JobPreview, PreviewCache, unchanged
from .preview_requests import PreviewRequester
from .previews import PreviewService
from .views import main_victim, mem_of, shown_task_ids

ORDER = "POST /api/v1/commands"
APPROVE = "POST /api/v1/plans/<plan_id>/approve"
PLAN_LASTS_S = 600.0
MAX_PLANS = 100


class ActionService:
    def __init__(self, fleet_state: FleetStateMachine, visible_fleets: VisibleFleetCache,
                 accounts: AccountService, requester: PreviewRequester, commander: Commander,
                 auditor: AuditRecorder, guards: ActionGuards, second_person: bool,
                 slurm_nodes: frozenset[str]) -> None:
        self.second_person = second_person
        self._accounts = accounts
        self._commander = commander
        self._auditor = auditor
        self._guards = guards
        self._authorizer = ActionAuthorizer(visible_fleets, accounts, auditor)
        self._cache = PreviewCache()
        self.previews = PreviewService(fleet_state, self._authorizer, requester, guards,
                                       self._cache, second_person, slurm_nodes)
        self._plans: dict[str, ActionPlan] = {}

    def visible(self, actor: Actor) -> VisibleFleet:
        return self._authorizer.visible(actor)

    # -- orders

    def order(self, actor: Actor, preview_id: str, reason: str, despite_maintenance: bool = False
              ) -> tuple[list[CommandRecord], ActionPlan | None]:
        shown = self._cache.shown_to(actor, preview_id)
        maintenance = self._guards.maintenance_among(shown.jobs)
        if maintenance is not None and not despite_maintenance:
            raise ActionRefusedError(409, "maintenance",
                                     f"{maintenance}; confirm once more to do it all the "
                                     "same (despite_maintenance)")
        if shown.action in HARMFUL and not reason.strip():
            raise ActionRefusedError(400, "schema",
                                     "give a reason: it goes into the audit log, and the "
                                     "owner is notified")
        self._authorizer.check_all(actor, ORDER, shown)
        self._cache.use_up(shown)  # once: whatever comes of it
        if self.previews.needs_second_person(shown.ready):
            return [], self._add_plan(shown, reason)
        return self._order_all(shown, reason), None

    def order_exactly(self, actor: Actor, preview_id: str, reason: str, action: ShownAction,
                      node_id: str, flaw: Callable[[Preview], Refusal | None]) -> CommandRecord:
        """One job, as a Rule wants it: what was shown to the person must be that."""
        shown = self._cache.shown_to(actor, preview_id)
        job = shown.jobs[0]
        if len(shown.jobs) > 1 or shown.action != action or job.target.node_id != node_id:
            raise ActionRefusedError(409, "changed",
                                     f"this preview is not for the rule's action, "
                                     f"which is to {action} one job; preview again")
        wrong = job.refusal if job.preview is None else job.refusal or flaw(job.preview)
        if wrong is not None:
            raise ActionRefusedError(409, wrong.code, wrong.sentence)
        # A node in maintenance holds the rule, so whoever gets here is not on one.
        [record], _ = self.order(actor, preview_id, reason)
        return record

    def _order_all(self, shown: CachedPreview, reason: str, approved_by: str | None = None
                   ) -> list[CommandRecord]:
        """One Command per job."""
        return [self._order_job(shown, job, reason, approved_by) for job in shown.jobs]

    def _order_job(self, shown: CachedPreview, job: JobPreview, reason: str,
                   approved_by: str | None) -> CommandRecord:
        actor, preview, target, now = shown.actor, job.preview, job.target, time.time()
        asker = CommandActor("program" if actor.kind == "program" else "person", actor.name,
                             approved_by)
        refusal = job.refusal or (preview.refusals[0] if preview and preview.refusals else None)
        refusal = refusal or self._guards.refusal(target.node_id)
        victim = None if preview is None else main_victim(preview)
        record = CommandRecord(
            new_id(now), shown.action, target.node_id, target.host, asker, reason, now, now,
            now + COMMAND_LASTS_S, shown.params, task_id=next(iter(target.real_tasks), None),
            task_ids=target.real_tasks if preview is None else shown_task_ids(preview),
            job_id=None if preview is None else preview.job_id,
            owner=target.owner if preview is None else preview.owner,
            command=target.command if victim is None else victim.command,
            mem_used_bytes=None if preview is None else mem_of(preview),
            bystanders=None if preview is None else len(preview.bystanders),
            credential=actor.credential)
        return self._commander.order(record, preview, refusal, None, **actor_fields(actor))

    # -- plans: what is so large that a second person has to approve it

    def _add_plan(self, shown: CachedPreview, reason: str) -> ActionPlan:
        self._end_old_plans()
        if sum(plan.state == "waiting" for plan in self._plans.values()) >= MAX_PLANS:
            raise ActionRefusedError(409, "too_many",
                                     f"{MAX_PLANS} plans wait for a second person already")
        now, actor = time.time(), shown.actor
        plan = ActionPlan(secrets.token_urlsafe(12), replace(shown, jobs=shown.ready), reason, now,
                          now + PLAN_LASTS_S,
                          frozenset({actor.name, self._accounts.person_behind(actor)}))
        self._record(plan, actor)
        self._plans[plan.id] = plan
        return plan

    def _end_old_plans(self) -> None:
        now = time.time()
        for plan in list(self._plans.values()):
            if plan.state == "waiting" and (
                    now >= plan.ends_at or not self._accounts.holds(plan.shown.actor.credential)):
                plan.state = "expired"
                self._auditor.record_refusal("plan", _fields(plan, plan.shown.actor))
            if now >= plan.ends_at + PLAN_LASTS_S:
                del self._plans[plan.id]

    def _record(self, plan: ActionPlan, actor: Actor) -> None:
        self._auditor.record("plan", _fields(plan, actor))

    def plan_views(self, actor: Actor) -> list[ActionPlanView]:
        self._end_old_plans()
        visible = self.visible(actor)
        return [self.plan_view(actor, plan) for plan in self._plans.values()
                if _sees_all(visible, plan)]

    def plan_view(self, actor: Actor, plan: ActionPlan) -> ActionPlanView:
        shown = plan.shown
        return ActionPlanView(
            plan.id, plan.state, plan.ends_at,
            self.previews.items(shown.jobs, self.visible(actor).reads), shown.action,
            to_builtins(shown.params), RequesterView(shown.actor.kind, shown.actor.name),
            plan.reason, plan.asked_at)

    def _waiting_plan(self, actor: Actor, plan_id: str) -> ActionPlan:
        self._end_old_plans()
        plan = self._plans.get(plan_id)
        if plan is None or not _sees_all(self.visible(actor), plan):
            raise hidden(f"there is no plan {plan_id[:64]!r} here")
        if plan.state != "waiting":
            raise ActionRefusedError(409, "stale_preview", f"this plan is {plan.state} already")
        return plan

    def withdraw_plan(self, actor: Actor, plan_id: str) -> None:
        plan = self._waiting_plan(actor, plan_id)
        if plan.shown.actor.name != actor.name:
            self._authorizer.check_all(actor, APPROVE, plan.shown)
        plan.state = "withdrawn"
        self._record(plan, actor)

    def approve_plan(self, actor: Actor, plan_id: str) -> tuple[list[CommandRecord], ActionPlan]:
        """Preview everything again: it may have changed since the first person saw it."""
        plan = self._waiting_plan(actor, plan_id)
        shown, asker = plan.shown, plan.shown.actor
        if actor.name in plan.names:
            raise ActionRefusedError(403, "second_person",
                                     "it must be approved by another person than the requester")
        self._authorizer.check_all(actor, APPROVE, shown)
        plan.state = "approved"  # before anything waits: it is approved once
        self._record(plan, actor)
        asked = self.previews.ask_nodes([job.target for job in shown.jobs], shown.action,
                                        shown.params)
        now_shown = replace(shown, jobs=tuple(
            unchanged(before, self._authorizer.within_scope(asker, ORDER, after))
            for before, after in zip(shown.jobs, asked, strict=True)))
        is_harmful = shown.action in HARMFUL
        for job in now_shown.jobs:
            self._authorizer.check_job(actor, APPROVE, shown.action, job, is_harmful)
        for job in now_shown.jobs:  # the one who asked was fresh then, and the one who approves now
            self._authorizer.check_job(asker, ORDER, shown.action, job, is_harmful=False)
        return self._order_all(now_shown, plan.reason, actor.name), plan


def _fields(plan: ActionPlan, actor: Actor) -> dict[str, object]:
    return actor_fields(actor) | {
        "action": plan.shown.action, "outcome": plan.state, "plan": plan.id, "reason": plan.reason,
        "task_ids": [task_id for job in plan.shown.jobs for task_id in job.target.task_ids]}


def _sees_all(visible: VisibleFleet, plan: ActionPlan) -> bool:
    return all(visible.sees_node(job.target.node_id) for job in plan.shown.jobs)
