"""Assign the outcomes of commands to the ladder steps that ordered them."""

from dataclasses import dataclass, field

from gpudeck.ladder import OutcomeKind, settle

from ..actions.lifecycle import CommandRecord
from ..audit.recorder import AuditRecorder
from .brakes import BrakeService
from .dispatch import ActionDispatcher
from .intents import ActionIntent, alarm, outcome_of
from .ladder_runs import Key, LadderClock, LadderRun, LadderRuns


@dataclass(frozen=True, slots=True)
class LadderOutcomes:
    runs: LadderRuns
    brakes: BrakeService
    dispatcher: ActionDispatcher
    auditor: AuditRecorder
    clock: LadderClock
    _key_of: dict[str, Key] = field(default_factory=dict)  # by command
    _ended_mono: dict[str, float] = field(default_factory=dict)  # of each node's last action

    def track(self, run: LadderRun, command_id: str) -> None:
        self._key_of[command_id] = run.intent.key
        run.command_id, self.runs.is_unsaved = command_id, True

    def untrack(self, command_id: str) -> None:
        self._key_of.pop(command_id, None)

    def command_changed(self, record: CommandRecord) -> None:
        """Called for every command, not only those of ladders."""
        if (why := alarm(record)) is not None:
            self.brakes.trip("breaker", why)
        key, outcome = self._key_of.get(record.id), outcome_of(record)
        if key is not None and outcome is not None:
            del self._key_of[record.id]
            self.settle(key, *outcome)

    def settle(self, key: Key, kind: OutcomeKind, sentence: str) -> None:
        run = self.runs.find(key)
        if run is None or run.climb.state != "acting":
            return
        if run.counted is not None and kind in ("refused", "put_off"):
            self.brakes.give_back(run.counted)
        elif run.counted is not None:
            self._ended_mono[run.intent.node_id] = self.clock.mono()
        run.climb = settle(run.climb, kind, sentence, self.clock.now())
        run.command_id, run.counted, self.runs.is_unsaved = None, None, True
        if run.climb.state == "stopped":
            self.note(run.intent, "stopped", run.climb.why)
        if run.is_dropped:
            self.runs.remove(run)

    def busy(self) -> set[str]:
        """Nodes with an action in flight: until its outcome and one later sample are here."""
        for node_id, ended in list(self._ended_mono.items()):
            sampled = self.dispatcher.sampled_mono(node_id)
            if sampled is not None and sampled > ended:
                del self._ended_mono[node_id]
        return {*self._ended_mono, *self.dispatcher.acting(), *(
            run.intent.node_id for run in self.runs
            if run.climb.state == "acting" and run.intent.mode != "dry_run"
            and run.climb.done[-1].do != "tell")}

    def note(self, intent: ActionIntent, action: str, sentence: str) -> None:
        self.auditor.note("ladder", {
            "actor": intent.cause, "actor_kind": "rule", "action": action, "outcome": "done",
            "node": intent.node_id, "host": intent.host, "owner": intent.owner,
            "task_id": intent.task_ids[0] if intent.task_ids else None, "sentence": sentence,
            "detail": {"alert": intent.alert_id, "because": intent.sentence, "mode": intent.mode}})
