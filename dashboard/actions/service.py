"""Orders of people and programs: what was shown to them is done, or waits for a second person."""

from collections.abc import Callable

from gpudeck.action_table import HARMFUL, ShownAction
from gpudeck.actions import Preview, Refusal

from ..access.policy import Actor
from ..access.service import AccountService
from ..audit.recorder import AuditRecorder
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibleFleet, VisibleFleetCache
from .authorizer import ActionAuthorizer
from .commander import Commander
from .errors import ActionRefusedError
from .guards import ActionGuards
from .lifecycle import CommandRecord
from .orders import JobOrderer
from .plans import ORDER, ActionPlanService
from .preview_cache import ActionPlan, PreviewCache
from .preview_requests import PreviewRequester
from .preview_views import PreviewPresenter, SecondPersonRule
from .previews import PreviewService


class ActionService:
    def __init__(self, fleet_state: FleetStateMachine, lenses: VisibleFleetCache,
                 accounts: AccountService, requester: PreviewRequester, commander: Commander,
                 auditor: AuditRecorder, guards: ActionGuards, second_person: bool) -> None:
        self.second_person = second_person
        self._plan_rule = SecondPersonRule(second_person)
        self._guards = guards
        self._authorizer = ActionAuthorizer(lenses, accounts, auditor)
        self._cache = PreviewCache()
        self._orderer = JobOrderer(commander, guards)
        presenter = PreviewPresenter(fleet_state.fleet, guards, self._plan_rule)
        self.previews = PreviewService(fleet_state, self._authorizer, requester, guards, presenter,
                                       self._cache)
        self.plans = ActionPlanService(self._authorizer, accounts, self.previews, presenter,
                                       self._orderer, auditor)

    def visible(self, actor: Actor) -> VisibleFleet:
        return self._authorizer.visible(actor)

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
                                     "say why: the reason goes into the record, and the "
                                     "owner is told")
        self._authorizer.check_all(actor, ORDER, shown.action, shown.jobs)
        ready = [job for job in shown.jobs if not job.is_refused]
        self._cache.use_up(shown)  # once: whatever comes of it
        if self._plan_rule.applies_to(ready):
            return [], self.plans.add(shown, ready, reason)
        return self._orderer.order_all(actor, shown.jobs, shown.action, shown.params, reason), None

    def order_exactly(self, actor: Actor, preview_id: str, reason: str, action: ShownAction,
                      node_id: str, flaw: Callable[[Preview], Refusal | None]) -> CommandRecord:
        """One job, as a Rule wants it: what was shown to the person must be that."""
        shown = self._cache.shown_to(actor, preview_id)
        job = shown.jobs[0]
        if len(shown.jobs) > 1 or shown.action != action or job.target.node_id != node_id:
            raise ActionRefusedError(409, "changed",
                                     f"this preview is of something else than the rule "
                                     f"wants, which is to {action} one job; look again")
        wrong = job.refusal if job.preview is None else job.refusal or flaw(job.preview)
        if wrong is not None:
            raise ActionRefusedError(409, wrong.code, wrong.sentence)
        # A node in maintenance holds the rule, so whoever gets here is not on one.
        [record], _ = self.order(actor, preview_id, reason)
        return record
