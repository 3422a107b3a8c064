"""Advance all ladders once a second. Every action goes through the brakes, a fresh preview, the
signer and the agent; there is no other way."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import gevent
from msgspec.structs import replace

from gpudeck.contract.action_table import ON_RUNG
from gpudeck.contract.actions import COMMAND_LASTS_S, ActionParams, CommandActor, Preview, Refusal
from gpudeck.contract.ladder import LadderClimb, LadderStep, OutcomeKind, begin, look

from ..actions.commander import new_id
from ..actions.events import CommandChanged
from ..actions.lifecycle import CommandRecord
from ..actions.views import mem_of
from ..audit.recorder import AuditRecorder
from ..errors import AuditWriteError
from ..runtime.dispatcher import Dispatcher
from .brakes import BrakeService, BrakesReset
from .dispatch import ActionDispatcher
from .intents import LASTING, ActionIntent, Source, asker_of, preview_flaw
from .ladder_guards import LadderGuards
from .ladder_runs import Key, LadderClock, LadderRun, LadderRuns
from .ladder_state import QUOTAS, continued_climb
from .store import AutomationStore

log = logging.getLogger("gpudeck.automation")

Outcome = tuple[OutcomeKind, str]
NOTHING = "nothing in this alert waits for a person"
RECALL_EVERY_S = 2.0
MAX_FAILURES = 3  # in a row
SAVED_FOR_S = 180.0  # a quota's ladder that has not come back by then is over
TURN = 200  # ladders, before other greenlets get their turn


class LadderService:
    """`notify_owner` gets the text for an owner, whether or not they have a terminal or a task. It
    is called, not sent as an event: if it raises, the step has failed, and no harsher step follows
    a warning that nobody got."""

    def __init__(self, sources: Iterable[Source], brakes: BrakeService,
                 dispatcher: ActionDispatcher, auditor: AuditRecorder, store: AutomationStore,
                 events: Dispatcher, notify_owner: Callable[[ActionIntent, str], None],
                 spawn: Callable[..., Any] = gevent.spawn,
                 mono: Callable[[], float] = time.monotonic) -> None:
        self.dispatcher = dispatcher
        self.clock = clock = LadderClock(mono)
        self.runs = LadderRuns(store, clock, brakes, dispatcher, auditor)
        self.guards = LadderGuards(brakes, dispatcher, self.runs, clock)
        self._sources = tuple(sources)
        self._newest: dict[Key, ActionIntent] = {}
        self._brakes = brakes
        self._notify_owner = notify_owner
        self._spawn = spawn
        self._failures = 0  # in a row
        self._started_mono = mono()
        events.listen(BrakesReset, lambda _: self.runs.drop())
        events.listen(CommandChanged, lambda event: self.runs.command_changed(event.record))

    # -- a person confirms the next step

    def waiting(self, alert_id: str) -> tuple[LadderRun, LadderStep, LadderClimb] | str:
        """Return the step that a person may confirm now, with the climb after it; or why there is
        none."""
        run = next((candidate for candidate in self.runs
                    if candidate.intent.alert_id == alert_id), None)
        if run is None or run.intent.mode != "confirm":
            return NOTHING
        if run.climb.state == "acting":
            return run.climb.why
        now = self.clock.now()
        self.guards.find_busy()
        observation = self.guards.observe(run.intent, run.climb, now, is_confirmed=True)
        after, step = look(run.climb, observation, now)
        if step is None or step.do == "tell":
            return after.why or NOTHING
        return run, step, after

    def confirm(self, alert_id: str, order: Callable[[ActionIntent, LadderStep], CommandRecord]
                ) -> CommandRecord | str:
        """Carry out a step that a person confirms. `order` takes the same path as all orders by
        people, and may raise."""
        waiting_step = self.waiting(alert_id)
        if isinstance(waiting_step, str):
            return waiting_step
        run, step, after = waiting_step
        if why := self.guards.reserve(run, step):
            return why
        before, run.climb = run.climb, after
        run.command_id, run.recalled_mono = None, None
        try:
            record = order(run.intent, step)
        except BaseException:
            run.climb = before
            self.guards.refund(run)
            if run.is_dropped:
                self.runs.remove(run)
            raise
        run.command_id, self.runs.is_unsaved = record.id, True
        # Its node may have reported the outcome before the command was tracked.
        self.runs.command_changed(self.dispatcher.find(record.id) or record)
        return record

    # -- once a second

    def step(self, _now: float, mono: float) -> None:
        """Advance all ladders. If that keeps failing, somebody has to know: the breaker opens."""
        try:
            self._step(mono)
        except Exception as error:
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                self._brakes.trip("breaker", f"the ladder failed {self._failures} times in a "
                                  f"row ({type(error).__name__}); see the hub's log")
            raise
        self._failures = 0

    def _step(self, mono: float) -> None:
        self._brakes.tick()
        intents = self._read()
        self._end_unwanted(intents)
        self.guards.begin_step()
        # The longest waiting first, so that the budget does not go to the latest.
        for turn, intent in enumerate(sorted(intents.values(), key=lambda waiting_intent: (
                waiting_intent.since, waiting_intent.key)), 1):
            self._advance(intent)
            if turn % TURN == 0:
                gevent.sleep(0)
        if mono - self._started_mono > SAVED_FOR_S:
            self.runs.forget_saved(QUOTAS)
        self.runs.save_if_due()

    def _read(self) -> dict[Key, ActionIntent]:
        """Read what rules and quotas want now. A source that raises fails the whole reading: then
        nothing acts."""
        self._newest = {intent.key: intent for source in self._sources for intent in source()}
        return self._newest

    def _end_unwanted(self, intents: dict[Key, ActionIntent]) -> None:
        for run in self.runs:
            if run.climb.state == "acting" and run.command_id is not None and (
                    record := self.dispatcher.find(run.command_id)) is not None:
                # The report of its change may have failed on the way.
                self.runs.command_changed(record)
            if run.intent.key in intents:
                continue
            if run.climb.state == "acting":
                self._recall(run, "it is no longer requested")
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
        if step is not None and (why := self.guards.reserve(run, step)):
            run.climb = replace(run.climb, why=why)
            return
        before, run.climb = run.climb, after
        if step is None:
            has_moved = after.state != before.state and bool(after.done)
            self.runs.is_unsaved = self.runs.is_unsaved or has_moved
            return
        run.command_id, run.recalled_mono, self.runs.is_unsaved = None, None, True
        if run.counted_action is not None and (why := self.runs.save()):
            self._take_back(run, before, f"actions cannot be recorded: {why}")
            return
        self._spawn(self._carry_out, intent, step)

    def _run_of(self, intent: ActionIntent, now: float) -> LadderRun:
        run = self.runs.find(intent.key)
        if run is not None and run.intent.mode != intent.mode:
            if run.climb.state != "acting":
                run = None  # a notification in a dry run was none
            else:
                run.is_dropped = True
                if intent.mode == "dry_run" or run.intent.mode == "auto":
                    run.recall_reason = "its rule may not act automatically any more"
        if run is None:
            run = LadderRun(self._resume(intent, now) or begin(
                intent.cause, intent.target, intent.rungs, now, intent.skips_refused), intent)
            self.runs.add(run)
        return run

    def _resume(self, intent: ActionIntent, now: float) -> LadderClimb | None:
        """Return the climb from before the restart of the hub, if nothing has changed since."""
        saved = self.runs.take_saved(intent)
        command_id = None if saved is None else saved.command_id
        record = None if command_id is None else self.dispatcher.find(command_id)
        return continued_climb(saved, intent, record, now)

    def _take_back(self, run: LadderRun, before: LadderClimb, why: str) -> None:
        """Do not begin a step: after a restart nobody would know that it had begun."""
        self._brakes.trip("breaker", why)
        self.guards.refund(run)
        run.climb = replace(before, why=why[:1_024])

    def _recall(self, run: LadderRun, why: str) -> None:
        """Recall a command again and again until its outcome is known: a message is lost if its
        node has just disconnected."""
        mono = self.clock.mono()
        if run.command_id is not None and (
                run.recalled_mono is None or mono - run.recalled_mono >= RECALL_EVERY_S):
            run.recalled_mono = mono
            self.dispatcher.recall(run.intent.node_id, run.command_id, why)

    # -- one step: notify, or preview and order

    def _carry_out(self, intent: ActionIntent, step: LadderStep) -> None:
        outcome: Outcome | None
        try:
            outcome = (self._notify if step.do == "tell" else self._act)(intent, step)
        except AuditWriteError as error:
            self._brakes.trip("breaker", f"an action of {intent.source} cannot be recorded: "
                                         f"{error}")
            outcome = "put_off", str(error)
        except Exception:
            log.exception("step_failed cause=%r target=%r", intent.cause, intent.target)
            outcome = "failed", "the hub failed while doing this; see its log"
        if outcome is not None:
            self.runs.settle(intent.key, *outcome)

    def _notify(self, intent: ActionIntent, step: LadderStep) -> Outcome | None:
        text = _text(intent, step)
        if intent.mode == "dry_run":
            return self._record_dry_run(intent, step, "nobody was notified", None)
        if (refusal := self.dispatcher.fence_refusal(intent.node_id)) is not None:
            return "put_off", refusal.sentence
        run = self.runs.find(intent.key)
        if run is None or run.climb.put_off == 0:  # once, however often the node is tried
            self._notify_owner(intent, text)
        if not intent.task_ids:
            return "done", "its owner is notified by mail"
        return self._send(intent, step, ActionParams(text=text))

    def _act(self, intent: ActionIntent, step: LadderStep) -> Outcome | None:
        if not intent.task_ids:
            return "refused", "it has no task on a GPU to act on"
        return self._send(intent, step, ActionParams())

    def _send(self, intent: ActionIntent, step: LadderStep, params: ActionParams
              ) -> Outcome | None:
        preview = self.dispatcher.preview(
            intent.node_id, intent.task_ids[0], ON_RUNG[step.do], params)
        refusal = preview if isinstance(preview, Refusal) else (
            preview_flaw(intent, step.do, preview))
        if intent.mode == "dry_run":
            return self._record_dry_run(intent, step, "nothing was sent", refusal)
        if refusal is not None:
            return ("refused" if refusal.code in LASTING else "put_off"), refusal.sentence
        assert isinstance(preview, Preview)
        if why := self._cancel_reason(intent, step):
            return "put_off", why
        self._order(intent, step, preview, params)
        return None

    def _record_dry_run(self, intent: ActionIntent, step: LadderStep, effect: str,
                        refusal: Refusal | None) -> Outcome:
        """Record what a step would have hit in a dry run."""
        why = "" if refusal is None else f"; it would have been refused: {refusal.sentence}"
        target = f"{intent.owner or 'somebody'} on {intent.host}"
        self.runs.note(intent, f"would {step.do}",
                       f"would {step.do} {target}; dry run: {effect}{why}")
        if refusal is not None and refusal.code in LASTING:
            return "refused", f"dry run: {effect}{why}"
        return ("done" if refusal is None else "put_off"), f"dry run: {effect}{why}"

    def _cancel_reason(self, intent: ActionIntent, step: LadderStep) -> str:
        if step.do != "tell":
            self._read()
        is_running = self.runs.find(intent.key) is not None
        newest = self._newest.get(intent.key) if is_running else None
        return self.guards.cancel_reason(intent, newest, step)

    def _order(self, intent: ActionIntent, step: LadderStep, preview: Preview,
               params: ActionParams) -> None:
        run = self.runs.find(intent.key)
        assert run is not None, "it was there when the change was checked"
        now, action = time.time(), ON_RUNG[step.do]
        record = CommandRecord(
            new_id(now), action, intent.node_id, intent.host,
            CommandActor("rule", asker_of(intent)), intent.sentence,
            now, now, now + COMMAND_LASTS_S, params, task_id=intent.task_ids[0],
            task_ids=intent.task_ids, job_id=preview.job_id, owner=preview.owner,
            bystanders=len(preview.bystanders),
            command=next((victim.command for victim in preview.victims if victim.command), None),
            mem_used_bytes=mem_of(preview))
        run.command_id, self.runs.is_unsaved = record.id, True
        self.runs.command_changed(self.dispatcher.order(record, preview, intent.condition, detail={
            "cause": intent.cause, "alert": intent.alert_id, "step": step.number,
            "rung": step.rung}))


def _text(intent: ActionIntent, step: LadderStep) -> str:
    after = next((rung for rung in intent.rungs[step.rung + 1:] if rung.do != "tell"), None)
    comes = "" if after is None or intent.mode == "dry_run" else (
        f" If nothing changes, gpudeck will {after.do} it; to prevent that, run gpudeck keep.")
    return f"{intent.sentence}.{comes}"[:1_024]
