"""Guards before the next step of a ladder: its intent, the brakes, the owner, a person."""

import time
from dataclasses import dataclass, field

from gpudeck.contract.ladder import LadderClimb, LadderObservation, LadderStep

from .brake_limits import BrakeRequest
from .brakes import BrakeService
from .dispatch import ActionDispatcher
from .intents import WAITS, ActionIntent
from .ladder_runs import LadderClock, LadderRun, LadderRuns
from .ladder_state import QUOTAS

TELLS_PER_STEP = 20


@dataclass(slots=True)
class LadderGuards:
    brakes: BrakeService
    dispatcher: ActionDispatcher
    runs: LadderRuns
    clock: LadderClock
    _busy: set[str] = field(default_factory=set)
    _tells: int = 0  # in this step of the service

    def begin_step(self) -> None:
        self.find_busy()
        self._tells = 0

    def find_busy(self) -> None:
        self._busy = self.runs.busy()

    def observe(self, intent: ActionIntent, climb: LadderClimb, now: float,
                is_confirmed: bool = False) -> LadderObservation:
        mutes = (*intent.mutes, *self.brakes.mutes(intent.source))
        holds, rung = intent.holds, climb.next_rung
        if rung is not None and rung.do != "tell" and now >= climb.due_at:
            holds = (*holds, *self._brake_holds(intent))
            if intent.mode == "confirm" and not is_confirmed:
                holds = (*holds, WAITS)
        keep = intent.keep
        until = None if keep is None else now + (keep.until - time.time())
        return LadderObservation(intent.condition_met, intent.sample_age_s, holds, mutes, until,
                                 "" if keep is None else keep.sentence)

    def _brake_holds(self, intent: ActionIntent) -> list[str]:
        """Return holds of the brakes. Without the fleet's limit for rules: one that reaches it has
        to be noticed, and opens the breaker. Quotas wait for it."""
        if intent.mode == "dry_run":
            return self.brakes.mutes(intent.source)
        return [block.sentence for block in self.brakes.holds(self._request(intent))
                if block.brake != "fleet" or intent.source == QUOTAS]

    def _request(self, intent: ActionIntent) -> BrakeRequest:
        return BrakeRequest(intent.source, intent.node_id, intent.acts, intent.within_s,
                            self.dispatcher.node_count(), frozenset(self._busy))

    def reserve(self, run: LadderRun, step: LadderStep) -> str:
        """Count this step against the brakes. Return why it may not begin, or ''."""
        intent = run.intent
        if step.do == "tell":
            self._tells += 1
            return "" if self._tells <= TELLS_PER_STEP else "many owners are notified first"
        if intent.mode == "dry_run":
            return ""
        reservation = self.brakes.reserve(self._request(intent))
        if isinstance(reservation, str):
            return reservation
        run.counted_action = reservation
        self._busy.add(intent.node_id)
        return ""

    def refund(self, run: LadderRun) -> None:
        if run.counted_action is not None:
            self.brakes.refund(run.counted_action)
            run.counted_action = None

    def recall_reason(self, run: LadderRun) -> str:
        """Return why the step in progress would not begin now, or ''."""
        intent = run.intent
        if run.climb.done[-1].do == "tell":
            return ""
        if run.recall_reason:
            return run.recall_reason
        if intent.condition_met in ("clearing", "no"):
            return "the condition is not met any more"
        mutes = self.brakes.mutes(intent.source)
        return next(iter((*intent.holds, *_keep_sentences(intent), *mutes)), "")

    def cancel_reason(self, intent: ActionIntent, newest: ActionIntent | None, step: LadderStep
                      ) -> str:
        """Return why the step may not be ordered after all, or ''. While its node prepared the
        preview, somebody may have silenced the alert, asked to keep the task or stopped all
        actions."""
        if newest is None or newest.condition_met != "yes":
            return "the condition is not met any more"
        if newest.mode != intent.mode:
            return "its rule's mode was changed in the meantime"
        mutes = (*newest.mutes, *self.brakes.mutes(intent.source))
        if step.do == "tell" or mutes:
            return "; ".join(mutes)
        return "; ".join(newest.holds or _keep_sentences(newest))

    def holds_of(self, run: LadderRun) -> list[str]:
        """Return why the ladder does not go on, apart from the wait between steps."""
        observation = self.observe(run.intent, run.climb, self.clock.now())
        stopped = [run.climb.why] if run.climb.state == "stopped" else []
        return [*dict.fromkeys((*stopped, *observation.holds, *observation.mutes,
                                *_keep_sentences(run.intent)))]


def _keep_sentences(intent: ActionIntent) -> tuple[str, ...]:
    keep = intent.keep
    return () if keep is None or time.time() >= keep.until else (keep.sentence,)
