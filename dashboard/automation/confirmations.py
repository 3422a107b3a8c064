"""Confirmation of a ladder's next step by a person."""

from dataclasses import dataclass

from gpudeck.contract.action_table import ON_RUNG
from gpudeck.contract.action_views import CommandView
from gpudeck.contract.actions import Preview, Refusal
from gpudeck.contract.ladder import LadderStep

from ..access.policy import Actor
from ..actions.errors import ActionRefusedError
from ..actions.lifecycle import CommandRecord
from ..actions.service import ActionService
from ..actions.views import command_view
from ..alerts.queries import AlertQueries
from ..errors import NotFoundError
from ..fleet.visibility import VisibleFleet
from .intents import ActionIntent, preview_flaw
from .service import LadderService
from .views import LadderConfirmation


@dataclass(frozen=True, slots=True)
class StepConfirmations:
    alerts: AlertQueries
    ladders: LadderService
    actions: ActionService

    def confirm(self, actor: Actor, visible: VisibleFleet, alert_id: str,
                confirmation: LadderConfirmation) -> CommandView:
        """Order the step that is due, exactly as it was previewed."""
        alert = next((firing for firing in self.alerts.alerts.firing()
                      if firing.id == alert_id), None)
        if alert is None or not self.alerts.is_seen(alert.target, visible):
            raise NotFoundError("there is no such alert, or it is resolved")

        def order(intent: ActionIntent, step: LadderStep) -> CommandRecord:
            def flaw(preview: Preview) -> Refusal | None:
                return preview_flaw(intent, step.do, preview)

            reason = "; ".join(filter(None, (f"confirms {intent.cause}", intent.sentence,
                                             confirmation.reason)))
            return self.actions.order_exactly(actor, confirmation.preview, reason[:1_024],
                                              ON_RUNG[step.do], intent.node_id, flaw)

        outcome = self.ladders.confirm(alert_id, order)
        if isinstance(outcome, str):
            raise ActionRefusedError(409, "not_due", outcome)
        return command_view(outcome, visible.reads)
