"""The ladders in progress, in memory and on disk, and the outcomes of their steps."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpudeck.contract.ladder import LadderClimb, OutcomeKind, settle

from ..actions.lifecycle import CommandRecord
from ..audit.recorder import AuditRecorder
from .brake_limits import CountedAction
from .brakes import BrakeService
from .dispatch import ActionDispatcher
from .intents import ActionIntent, alarm, outcome_of
from .ladder_state import Place, SavedLadderClimb, place_of, restored, saved_state
from .store import CANNOT_STORE, AutomationStore

log = logging.getLogger("gpudeck.automation")

SAVE_EVERY_S = 30.0
Key = tuple[str, str]  # cause and target


class LadderClock:
    """Reads like UTC and never steps."""

    def __init__(self, mono: Callable[[], float]) -> None:
        self.mono = mono
        self._base = time.time() - mono()

    def now(self) -> float:
        return self._base + self.mono()

    def utc(self, at: float) -> float:
        return at - self.now() + time.time()


@dataclass(slots=True)
class LadderRun:
    climb: LadderClimb
    intent: ActionIntent
    command_id: str | None = None  # of the current step
    counted_action: CountedAction | None = None  # refunded if the step touched nothing
    recalled_mono: float | None = None  # of the last recall
    recall_reason: str = ""  # recall the current step even if its condition still holds
    is_dropped: bool = False  # ends with the current step


class LadderRuns:
    def __init__(self, store: AutomationStore, clock: LadderClock, brakes: BrakeService,
                 dispatcher: ActionDispatcher, auditor: AuditRecorder) -> None:
        self._store = store
        self._clock = clock
        self._brakes = brakes
        self._dispatcher = dispatcher
        self._auditor = auditor
        self._runs: dict[Key, LadderRun] = {}
        self._ended_mono: dict[str, float] = {}  # of each node's last action
        self._before: dict[Place, SavedLadderClimb] = restored(store.climbs(), time.time())
        self.is_unsaved = False
        self._save_error = ""
        self._saved_mono = 0.0

    # -- queries

    def __iter__(self) -> Iterator[LadderRun]:
        """Iterate over a copy: a run may be removed in the meantime."""
        return iter([*self._runs.values()])

    def find(self, key: Key) -> LadderRun | None:
        return self._runs.get(key)

    def of(self, source: str) -> dict[Key, LadderRun]:
        return {key: run for key, run in self._runs.items() if run.intent.source == source}

    # -- changes

    def add(self, run: LadderRun) -> None:
        self._runs[run.intent.key] = run

    def remove(self, run: LadderRun) -> None:
        if self._runs.get(run.intent.key) is run:
            del self._runs[run.intent.key]

    def drop(self) -> None:
        """Forget everything except steps in progress, whose outcome is still awaited."""
        self._before.clear()
        self.is_unsaved = True
        for run in self:
            if run.climb.state == "acting":
                run.is_dropped = True
            else:
                self.remove(run)

    # -- outcomes

    def command_changed(self, record: CommandRecord) -> None:
        """Note a change of any command, not only of those of ladders."""
        if (why := alarm(record)) is not None:
            self._brakes.trip("breaker", why)
        run = next((candidate for candidate in self if candidate.command_id == record.id), None)
        outcome = outcome_of(record)
        if run is not None and outcome is not None:
            self.settle(run.intent.key, *outcome)

    def settle(self, key: Key, kind: OutcomeKind, sentence: str) -> None:
        run = self.find(key)
        if run is None or run.climb.state != "acting":
            return
        is_as_before = kind in ("refused", "put_off") or (
            kind == "failed" and run.climb.done[-1].do == "suspend")
        if run.counted_action is not None and is_as_before:
            self._brakes.refund(run.counted_action)
        elif run.counted_action is not None:
            self._ended_mono[run.intent.node_id] = self._clock.mono()
        run.climb = settle(run.climb, kind, sentence, self._clock.now())
        run.command_id, run.counted_action, self.is_unsaved = None, None, True
        if run.climb.state == "stopped":
            self.note(run.intent, "stopped", run.climb.why)
        if run.is_dropped:
            self.remove(run)

    def busy(self) -> set[str]:
        """Return nodes with an action in flight: until its outcome and one later sample are
        here."""
        for node_id, ended_mono in list(self._ended_mono.items()):
            sampled = self._dispatcher.sampled_mono(node_id)
            if sampled is not None and sampled > ended_mono:
                del self._ended_mono[node_id]
        return {*self._ended_mono, *self._dispatcher.busy_nodes(), *(
            run.intent.node_id for run in self
            if run.climb.state == "acting" and run.intent.mode != "dry_run"
            and run.climb.done[-1].do != "tell")}

    def note(self, intent: ActionIntent, action: str, sentence: str) -> None:
        self._auditor.note("ladder", {
            "actor": intent.cause, "actor_kind": "rule", "action": action, "outcome": "done",
            "node": intent.node_id, "host": intent.host, "owner": intent.owner,
            "task_id": intent.task_ids[0] if intent.task_ids else None, "sentence": sentence,
            "detail": {"alert": intent.alert_id, "because": intent.sentence, "mode": intent.mode}})

    # -- across a restart

    def take_saved(self, intent: ActionIntent) -> SavedLadderClimb | None:
        """Return, once, where this ladder was before the hub restarted."""
        return self._before.pop(place_of(intent), None)

    def forget_saved(self, source: str) -> None:
        """Forget saved ladders of a source, on disk too: the next start must not take them for
        current."""
        current = {place: saved for place, saved in self._before.items() if saved.source != source}
        self.is_unsaved = self.is_unsaved or len(current) < len(self._before)
        self._before = current

    def save_if_due(self) -> None:
        is_due = self._clock.mono() - self._saved_mono >= SAVE_EVERY_S
        if self.is_unsaved or (is_due and (self._runs or self._before)):
            self.save()

    def save(self) -> str:
        """Save all ladders, and return why it failed, or ''."""
        self._saved_mono = self._clock.mono()
        try:
            self._store.put_climbs(saved_state(
                ((run.climb, run.intent, run.command_id) for run in self),
                self._before.values(), time.time()))
        except CANNOT_STORE as error:
            if str(error) != self._save_error:
                log.warning("climbs_not_kept why=%r", str(error))
            self.is_unsaved, self._save_error = True, str(error)
            return self._save_error
        self.is_unsaved, self._save_error = False, ""
        return ""
