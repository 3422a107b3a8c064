"""Advance all ladders once a second. Every action goes through the brakes, a fresh preview, the
signer and the agent; there is no other way."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import gevent
from msgspec.structs import replace

from gpudeck.ladder import LadderClimb, begin, look

from ..actions.lifecycle import CommandRecord
from ..audit.recorder import AuditRecorder
from ..runtime.dispatcher import Dispatcher
from .brakes import BrakeService, BrakesReset
from .confirmations import LadderConfirmations
from .dispatch import ActionDispatcher
from .intent_sources import IntentSources, Source
from .intents import ActionIntent
from .ladder_guards import LadderGuards
from .ladder_outcomes import LadderOutcomes
from .ladder_runs import Key, LadderClock, LadderRun, LadderRuns
from .ladder_state import goes_on
from .ladder_steps import LadderNotification, LadderStepRunner
from .quota_intents import SOURCE as QUOTAS
from .store import AutomationStore

RECALL_EVERY_S = 2.0
MAX_FAILURES = 3  # in a row
SAVED_FOR_S = 180.0  # a ladder of a quota that did not come back by then is over
TURN = 200  # ladders, until other greenlets get their turn


class LadderService:
    def __init__(self, sources: Iterable[Source], brakes: BrakeService,
                 dispatcher: ActionDispatcher, auditor: AuditRecorder, store: AutomationStore,
                 events: Dispatcher, notify_owner: Callable[[LadderNotification], None],
                 spawn: Callable[..., Any] = gevent.spawn,
                 mono: Callable[[], float] = time.monotonic) -> None:
        self.dispatcher = dispatcher
        self.clock = clock = LadderClock(mono)
        self.runs = LadderRuns(store, clock)
        self.outcomes = LadderOutcomes(self.runs, brakes, dispatcher, auditor, clock)
        self.guards = LadderGuards(brakes, dispatcher, self.outcomes, clock)
        self.confirmations = LadderConfirmations(self.runs, self.outcomes, self.guards, dispatcher,
                                                 clock)
        self._intents = IntentSources(sources)
        self._steps = LadderStepRunner(self._intents, self.runs, self.outcomes, self.guards, brakes,
                                       dispatcher, notify_owner)
        self._brakes = brakes
        self._spawn = spawn
        self._failures = 0  # in a row
        self._started_mono = mono()
        events.listen(BrakesReset, lambda _: self.runs.drop())

    def changed(self, record: CommandRecord) -> None:
        self.outcomes.command_changed(record)

    # -- once a second

    def step(self, _now: float, mono: float) -> None:
        """Ladders that stand still must be seen to: the breaker opens."""
        try:
            self._step(mono)
        except Exception as error:
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                self._brakes.trip("breaker", f"the ladder failed {self._failures} times in a row "
                                  f"({type(error).__name__}); the hub's log says where")
            raise
        self._failures = 0

    def _step(self, mono: float) -> None:
        self._brakes.tick()
        intents = self._intents.read()
        self._end_unwanted(intents)
        self.guards.begin_step()
        # The longest waiting come first, so that a budget does not go to the latest.
        for turn, intent in enumerate(sorted(intents.values(), key=lambda each: (
                each.since, each.key)), 1):
            self._advance(intent)
            if turn % TURN == 0:
                gevent.sleep(0)
        if mono - self._started_mono > SAVED_FOR_S:
            self.runs.forget_saved(QUOTAS)
        self.runs.save_if_due()

    def _end_unwanted(self, intents: dict[Key, ActionIntent]) -> None:
        for run in self.runs:
            if run.climb.state == "acting" and run.command_id is not None and (
                    record := self.dispatcher.find(run.command_id)) is not None:
                self.changed(record)  # the report of its change may have failed on the way
            if run.intent.key in intents:
                continue
            if run.climb.state == "acting":
                self._recall(run, "it is not wanted any more")
            else:
                self.runs.remove(run)
                self.runs.is_unsaved = self.runs.is_unsaved or bool(run.climb.done)

    def _advance(self, intent: ActionIntent) -> None:
        now = self.clock.now()
        run = self._run_of(intent, now)
        run.intent = intent
        if run.climb.state == "acting":
            if why := self.guards.recall_reason(run):
                self._recall(run, why)
            return
        after, step = look(run.climb, self.guards.observe(intent, run.climb, now), now)
        if step is not None and (why := self.guards.take(run, step)):
            run.climb = replace(run.climb, why=why)
            return
        before, run.climb = run.climb, after
        if step is None:
            has_moved = after.state != before.state and bool(after.done)
            self.runs.is_unsaved = self.runs.is_unsaved or has_moved
            return
        run.command_id, run.recalled_mono, self.runs.is_unsaved = None, None, True
        if run.counted is not None and (why := self.runs.save()):
            self._take_back(run, before, f"what is done cannot be noted: {why}")
            return
        self._spawn(self._steps.run, intent, step)

    def _run_of(self, intent: ActionIntent, now: float) -> LadderRun:
        run = self.runs.find(intent.key)
        if run is not None and run.intent.mode != intent.mode:
            if run.climb.state != "acting":
                run = None  # an owner who was told in a dry run was not told
            else:
                run.is_dropped = True
                if intent.mode == "dry_run" or run.intent.mode == "auto":
                    run.recall_reason = "its rule may not act by itself any more"
        if run is None:
            run = LadderRun(self._resumed(intent, now) or begin(
                intent.cause, intent.target, intent.rungs, now), intent)
            self.runs.add(run)
        return run

    def _resumed(self, intent: ActionIntent, now: float) -> LadderClimb | None:
        """Where it was when the hub restarted, if nothing has changed since."""
        was = self.runs.take_saved(intent)
        command_id = None if was is None else was.command_id
        record = None if command_id is None else self.dispatcher.find(command_id)
        return goes_on(was, intent, record, now)

    def _take_back(self, run: LadderRun, before: LadderClimb, why: str) -> None:
        """Do not begin: after a restart nobody would know that it had begun."""
        self._brakes.trip("breaker", why)
        self.guards.give_back(run)
        run.climb = replace(before, why=why[:1_024])

    def _recall(self, run: LadderRun, why: str) -> None:
        """Again until the outcome is known: a message is lost if its node has just left."""
        mono = self.clock.mono()
        if run.command_id is not None and (
                run.recalled_mono is None or mono - run.recalled_mono >= RECALL_EVERY_S):
            run.recalled_mono = mono
            self.dispatcher.recall(run.intent.node_id, run.command_id, why)
