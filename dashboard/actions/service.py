"""Orders of people and programs: what they were shown is done, or waits as a plan for a second
person."""

import secrets
import time
from collections.abc import Callable
from dataclasses import replace

from msgspec import to_builtins

from gpudeck.contract.action_table import HARMFUL, ShownAction
from gpudeck.contract.action_views import ActionPlanView, RequesterView
from gpudeck.contract.actions import COMMAND_LASTS_S, CommandActor, Preview, Refusal

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
from .preview_cache import ActionPlan, CachedPreview, JobPreview, PreviewCache, refuse_if_changed
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
        cached = self._cache.get(actor, preview_id)
        maintenance = self._guards.maintenance_among(cached.jobs)
        if maintenance is not None and not despite_maintenance:
            raise ActionRefusedError(409, "maintenance",
                                     f"{maintenance}; confirm once more to do it all the "
                                     "same (despite_maintenance)")
        if cached.action in HARMFUL and not reason.strip():
            raise ActionRefusedError(400, "schema",
                                     "give a reason: it goes into the audit log, and the "
                                     "owner is notified")
        self._authorizer.check_all(actor, ORDER, cached)
        self._cache.remove(cached)  # once, whatever the outcome
        if self.previews.needs_second_person(cached.ready):
            return [], self._add_plan(cached, reason)
        return self._order_all(cached, reason), None

    def order_exactly(self, actor: Actor, preview_id: str, reason: str, action: ShownAction,
                      node_id: str, flaw: Callable[[Preview], Refusal | None]) -> CommandRecord:
        """Order one job, exactly as a rule wants it: the person must have been shown that very
        job."""
        cached = self._cache.get(actor, preview_id)
        job = cached.jobs[0]
        if len(cached.jobs) > 1 or cached.action != action or job.target.node_id != node_id:
            raise ActionRefusedError(409, "changed",
                                     f"this preview is not for the rule's action, "
                                     f"which is to {action} one job; preview again")
        refusal = job.refusal if job.preview is None else job.refusal or flaw(job.preview)
        if refusal is not None:
            raise ActionRefusedError(409, refusal.code, refusal.sentence)
        # A node in maintenance holds the rule's actions, so this node is not in maintenance.
        [record], _ = self.order(actor, preview_id, reason)
        return record

    def _order_all(self, cached: CachedPreview, reason: str, approved_by: str | None = None
                   ) -> list[CommandRecord]:
        """Order one command per job."""
        return [self._order_job(cached, job, reason, approved_by) for job in cached.jobs]

    def _order_job(self, cached: CachedPreview, job: JobPreview, reason: str,
                   approved_by: str | None) -> CommandRecord:
        actor, preview, target, now = cached.actor, job.preview, job.target, time.time()
        asker = CommandActor("program" if actor.kind == "program" else "person", actor.name,
                             approved_by)
        refusal = job.refusal or (preview.refusals[0] if preview and preview.refusals else None)
        refusal = refusal or self._guards.refusal(target.node_id)
        victim = None if preview is None else main_victim(preview)
        record = CommandRecord(
            new_id(now), cached.action, target.node_id, target.host, asker, reason, now, now,
            now + COMMAND_LASTS_S, cached.params, task_id=next(iter(target.real_tasks), None),
            task_ids=target.real_tasks if preview is None else shown_task_ids(preview),
            job_id=None if preview is None else preview.job_id,
            owner=target.owner if preview is None else preview.owner,
            command=target.command if victim is None else victim.command,
            mem_used_bytes=None if preview is None else mem_of(preview),
            bystanders=None if preview is None else len(preview.bystanders),
            credential=actor.credential)
        return self._commander.order(record, preview, refusal, None, **actor_fields(actor))

    # -- plans: orders so large that a second person has to approve them

    def _add_plan(self, cached: CachedPreview, reason: str) -> ActionPlan:
        self._end_old_plans()
        if sum(plan.state == "waiting" for plan in self._plans.values()) >= MAX_PLANS:
            raise ActionRefusedError(409, "too_many",
                                     f"{MAX_PLANS} plans wait for a second person already")
        now, actor = time.time(), cached.actor
        plan = ActionPlan(secrets.token_urlsafe(12), replace(cached, jobs=cached.ready), reason,
                          now, now + PLAN_LASTS_S,
                          frozenset({actor.name, self._accounts.person_behind(actor)}))
        self._record(plan, actor)
        self._plans[plan.id] = plan
        return plan

    def _end_old_plans(self) -> None:
        now = time.time()
        for plan in list(self._plans.values()):
            if plan.state == "waiting" and (
                    now >= plan.ends_at or not self._accounts.holds(plan.cached.actor.credential)):
                plan.state = "expired"
                self._auditor.record_refusal("plan", _fields(plan, plan.cached.actor))
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
        cached = plan.cached
        return ActionPlanView(
            plan.id, plan.state, plan.ends_at,
            self.previews.items(cached.jobs, self.visible(actor).reads), cached.action,
            to_builtins(cached.params), RequesterView(cached.actor.kind, cached.actor.name),
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
        if plan.cached.actor.name != actor.name:
            self._authorizer.check_all(actor, APPROVE, plan.cached)
        plan.state = "withdrawn"
        self._record(plan, actor)

    def approve_plan(self, actor: Actor, plan_id: str) -> tuple[list[CommandRecord], ActionPlan]:
        """Approve a plan. Everything is previewed again, as it may have changed since the first
        person saw it."""
        plan = self._waiting_plan(actor, plan_id)
        cached, asker = plan.cached, plan.cached.actor
        if actor.name in plan.names:
            raise ActionRefusedError(403, "second_person",
                                     "it must be approved by another person than the requester")
        self._authorizer.check_all(actor, APPROVE, cached)
        plan.state = "approved"  # before anything waits: it is approved once
        self._record(plan, actor)
        current = self.previews.ask_nodes([job.target for job in cached.jobs], cached.action,
                                          cached.params)
        fresh = replace(cached, jobs=tuple(
            refuse_if_changed(before, self._authorizer.within_scope(asker, ORDER, after))
            for before, after in zip(cached.jobs, current, strict=True)))
        is_harmful = cached.action in HARMFUL
        for job in fresh.jobs:
            self._authorizer.check_job(actor, APPROVE, cached.action, job, is_harmful)
        for job in fresh.jobs:  # the requester's password was fresh then, and the approver's is now
            self._authorizer.check_job(asker, ORDER, cached.action, job, is_harmful=False)
        return self._order_all(fresh, plan.reason, actor.name), plan


def _fields(plan: ActionPlan, actor: Actor) -> dict[str, object]:
    return actor_fields(actor) | {
        "action": plan.cached.action, "outcome": plan.state, "plan": plan.id, "reason": plan.reason,
        "task_ids": [task_id for job in plan.cached.jobs for task_id in job.target.task_ids]}


def _sees_all(visible: VisibleFleet, plan: ActionPlan) -> bool:
    return all(visible.sees_node(job.target.node_id) for job in plan.cached.jobs)
