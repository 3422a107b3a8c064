"""Advance all ladders once a second. Every action goes through the brakes, a fresh preview, the
signer and the agent; there is no other way."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import gevent
from msgspec.structs import replace

from gpudeck.ladder import LadderClimb, LadderStep, begin, look

from ..actions.lifecycle import CommandRecord
from ..audit.recorder import AuditRecorder
from ..runtime.dispatcher import Dispatcher
from .brakes import BrakeService, BrakesReset
from .dispatch import ActionDispatcher
from .intents import ActionIntent, IntentSources, Source
from .ladder_guards import LadderGuards
from .ladder_runs import Key, LadderClock, LadderRun, LadderRuns
from .ladder_state import QUOTAS, goes_on
from .ladder_steps import LadderStepRunner
from .store import AutomationStore

NOTHING = "nothing of this alert waits for a person"
RECALL_EVERY_S = 2.0
MAX_FAILURES = 3  # in a row
SAVED_FOR_S = 180.0  # a ladder of a quota that did not come back by then is over
TURN = 200  # ladders, until other greenlets get their turn


class LadderService:
    def __init__(self, sources: Iterable[Source], brakes: BrakeService,
                 dispatcher: ActionDispatcher, auditor: AuditRecorder, store: AutomationStore,
                 events: Dispatcher, notify_owner: Callable[[ActionIntent, str], None],
                 spawn: Callable[..., Any] = gevent.spawn,
                 mono: Callable[[], float] = time.monotonic) -> None:
        self.dispatcher = dispatcher
        self.clock = clock = LadderClock(mono)
        self.runs = LadderRuns(store, clock, brakes, dispatcher, auditor)
        self.guards = LadderGuards(brakes, dispatcher, self.runs, clock)
        self._intents = IntentSources(sources)
        self._steps = LadderStepRunner(self._intents, self.runs, self.guards, brakes, dispatcher,
                                       notify_owner)
        self._brakes = brakes
        self._spawn = spawn
        self._failures = 0  # in a row
        self._started_mono = mono()
        events.listen(BrakesReset, lambda _: self.runs.drop())

    # -- a person confirms the next step

    def waiting(self, alert_id: str) -> tuple[LadderRun, LadderStep, LadderClimb] | str:
        """The step that a person may confirm now, with the climb after it; or why there is
        none."""
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
        return run, step, after

    def confirm(self, alert_id: str, order: Callable[[ActionIntent, LadderStep], CommandRecord]
                ) -> CommandRecord | str:
        """`order` goes the way of all orders by people, and may raise."""
        found = self.waiting(alert_id)
        if isinstance(found, str):
            return found
        run, step, after = found
        if why := self.guards.take(run, step):
            return why
        before, run.climb = run.climb, after
        run.command_id, run.recalled_mono = None, None
        try:
            record = order(run.intent, step)
        except BaseException:
            run.climb = before
            self.guards.give_back(run)
            if run.is_dropped:
                self.runs.remove(run)
            raise
        run.command_id, self.runs.is_unsaved = record.id, True
        # Its node may have reported the outcome before the command was tracked.
        self.runs.command_changed(self.dispatcher.find(record.id) or record)
        return record

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
                # The report of its change may have failed on the way.
                self.runs.command_changed(record)
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
