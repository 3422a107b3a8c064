"""A person confirms the next step of a ladder."""

from collections.abc import Callable
from dataclasses import dataclass

from gpudeck.ladder import LadderStep, look

from ..actions.lifecycle import CommandRecord
from .dispatch import ActionDispatcher
from .intents import ActionIntent
from .ladder_guards import LadderGuards
from .ladder_outcomes import LadderOutcomes
from .ladder_runs import LadderClock, LadderRun, LadderRuns

NOTHING = "nothing of this alert waits for a person"


@dataclass(frozen=True, slots=True)
class LadderConfirmations:
    runs: LadderRuns
    outcomes: LadderOutcomes
    guards: LadderGuards
    dispatcher: ActionDispatcher
    clock: LadderClock

    def waiting(self, alert_id: str) -> tuple[LadderRun, LadderStep] | str:
        """The step that a person may confirm now, or why there is none."""
        run = next((each for each in self.runs if each.intent.alert_id == alert_id), None)
        if run is None or run.intent.mode != "confirm":
            return NOTHING
        if run.climb.state == "acting":
            return run.climb.why
        now = self.clock.now()
        self.guards.find_busy()
        seen = self.guards.observe(run.intent, run.climb, now, is_confirmed=True)
        after, step = look(run.climb, seen, now)
        if step is None or step.do == "tell":
            return after.why or NOTHING
        return run, step

    def confirm(self, alert_id: str, order: Callable[[ActionIntent, LadderStep], CommandRecord]
                ) -> CommandRecord | str:
        """`order` goes the way of all orders by people, and may raise."""
        found = self.waiting(alert_id)
        if isinstance(found, str):
            return found
        run, step = found
        before, now = run.climb, self.clock.now()
        seen = self.guards.observe(run.intent, before, now, is_confirmed=True)
        if why := self.guards.take(run, step):
            return why
        run.climb, _ = look(before, seen, now)
        run.command_id, run.recalled_mono = None, None
        try:
            record = order(run.intent, step)
        except BaseException:
            run.climb = before
            self.guards.give_back(run)
            if run.is_dropped:
                self.runs.remove(run)
            raise
        self.outcomes.track(run, record.id)
        # Its node may have reported the outcome before the command was tracked.
        self.outcomes.command_changed(self.dispatcher.find(record.id) or record)
        return record
