"""Steps every climb once a second and does what comes due: through the brakes, a fresh preview, the
signer and the agent, and by no way beside them. Where Wants come from, it does not ask."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import gevent
from msgspec.structs import replace

from gpudeck.actions import COMMAND_LASTS_S, ActionParams, CommandActor, Preview, Refusal
from gpudeck.ladder import (
    LadderClimb,
    LadderObservation,
    LadderStep,
    OutcomeKind,
    begin,
    look,
    settle,
)

from ..actions.commander import new_id
from ..actions.lifecycle import CommandRecord
from ..actions.views import mem_of
from ..audit.recorder import AuditRecorder
from ..errors import AuditWriteError
from .brake_limits import BrakeRequest, CountedAction
from .brakes import BrakeService
from .dispatch import ActionDispatcher
from .intents import ACTION, LASTING, WAITS, ActionIntent, alarm, outcome_of, preview_flaw
from .ladder_state import Place, SavedLadderClimb, goes_on, left, place_of
from .ladder_state import kept as kept_of
from .quota_intents import SOURCE as QUOTAS
from .store import AutomationStore, CannotStore

log = logging.getLogger("gpudeck.ladders")

EVERY_S = 1.0
KEEP_EVERY_S = 30.0
RECALL_EVERY_S = 2.0
FAILS_MOST = 3  # steps in a row
LEFT_FOR_S = 180.0  # whoever was over a quota and is not by then, is not any more
TURN = 200  # climbs, until others have theirs
TELLS_PER_STEP = 20
Key = tuple[str, str]
Source = Callable[[], Iterable[ActionIntent]]


@dataclass(frozen=True, slots=True)
class LadderNotification:
    """An Owner is to be told, whether or not they have a terminal or a task."""

    want: ActionIntent
    text: str
    at: float


@dataclass(slots=True)
class LadderRun:
    climb: LadderClimb
    want: ActionIntent
    command_id: str | None = None  # of the step that is acting
    spent: CountedAction | None = None  # for it; given back where nothing was touched
    recalled_mono: float | None = None  # when that was last called back
    back: str = ""  # why it is called back, whatever is so by now
    is_dropped: bool = False  # nothing comes after the step that is acting


@dataclass(slots=True)
class LadderService:
    """`sources`: each says all that it wants now. `on_notice`: who tells Owners."""

    brakes: BrakeService
    hands: ActionDispatcher
    auditor: AuditRecorder
    store: AutomationStore
    sources: list[Source] = field(default_factory=list)
    on_notice: list[Callable[[LadderNotification], None]] = field(default_factory=list)
    spawn: Callable[..., Any] = gevent.spawn
    mono: Callable[[], float] = time.monotonic
    _climbs: dict[Key, LadderRun] = field(default_factory=dict)
    _asked: dict[str, Key] = field(default_factory=dict)  # by command
    _landed: dict[str, float] = field(default_factory=dict)  # by node: when its last act ended
    _wants: dict[Key, ActionIntent] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)  # as of this step
    _tells: int = 0  # in this step
    _base: float = 0.0
    _left: dict[Place,
                SavedLadderClimb] = field(default_factory=dict)  # of before the hub was started
    _is_new: bool = False  # something of it is not on the disk
    _said: str = ""  # of the disk's trouble
    _kept_mono: float = 0.0
    _fails: int = 0  # in a row
    _began_mono: float = 0.0

    def __post_init__(self) -> None:
        # Climbs are timed by a clock that reads like UTC and never steps.
        self._base = time.time() - self.mono()
        self._began_mono = self.mono()
        self._left = left(self.store.climbs(), time.time())
        self.brakes.on_reset.append(self.drop)

    def now(self) -> float:
        return self._base + self.mono()

    def run(self) -> None:
        while True:
            gevent.sleep(EVERY_S)
            self.try_step()

    def try_step(self) -> None:
        """The ladder must not take the hub with it; one that stands still has to be seen to."""
        try:
            self.step()
        except Exception as error:
            log.exception("ladders_failed")
            self._fails += 1
            if self._fails >= FAILS_MOST:
                self.brakes.trip("breaker", f"the ladder failed {self._fails} times in a row "
                                 f"({type(error).__name__}); the hub's log says where")
        else:
            self._fails = 0

    # -- once a second

    def step(self) -> None:
        self.brakes.tick()
        wants = self._wants = self._ask_all()
        self._part(wants)
        self._busy, self._tells = self.busy(), 0
        # Those who wait longest come first, so that a budget is not for who came last.
        for turn, want in enumerate(sorted(wants.values(), key=lambda each: (
                each.since, each.key)), 1):
            self._climb(want)
            if turn % TURN == 0:
                gevent.sleep(0)
        if self.mono() - self._began_mono > LEFT_FOR_S:
            self._forget_quotas()
        has_any = bool(self._climbs or self._left)
        if self._is_new or (has_any and self.mono() - self._kept_mono >= KEEP_EVERY_S):
            self._keep()

    def _forget_quotas(self) -> None:
        """On the disk, too: the next start must not find them as if they were of now."""
        left_now = {place: was for place, was in self._left.items() if was.source != QUOTAS}
        self._is_new = self._is_new or len(left_now) < len(self._left)
        self._left = left_now

    def _keep(self) -> str:
        """How far each is, for who comes after a restart; why not, or nothing."""
        self._kept_mono = self.mono()
        try:
            self.store.put_climbs(kept_of(
                ((kept.climb, kept.want, kept.command_id) for kept in self._climbs.values()),
                self._left.values(), time.time()))
        except CannotStore as error:
            if str(error) != self._said:
                log.warning("climbs_not_kept why=%r", str(error))
            self._is_new, self._said = True, str(error)
            return self._said
        self._is_new, self._said = False, ""
        return ""

    def _ask_all(self) -> dict[Key, ActionIntent]:
        return {want.key: want for source in self.sources for want in source()}

    def _part(self, wants: dict[Key, ActionIntent]) -> None:
        """From those of whom nothing is wanted any more; what is under way is called back."""
        for key, kept in list(self._climbs.items()):
            if kept.climb.state == "acting" and kept.command_id is not None and (
                    record := self.hands.find(kept.command_id)) is not None:
                self.changed(record)  # whoever was to tell of it may have failed on the way
            if key in wants:
                continue
            if kept.climb.state == "acting":
                self._recall(kept, "it is not wanted any more")
            else:
                self._climbs.pop(key, None)
                self._is_new = self._is_new or bool(kept.climb.done)

    def _climb(self, want: ActionIntent) -> None:
        now = self.now()
        kept = self._climbs.get(want.key)
        if kept is not None and kept.want.mode != want.mode and kept.climb.state != "acting":
            kept = None  # who was told in a rehearsal was not told
        if kept is None:
            climb = self._before(want, now) or begin(want.cause, want.target, want.rungs, now)
            kept = LadderRun(climb, want)
            self._climbs[want.key] = kept
        elif kept.want.mode != want.mode:
            kept.is_dropped = True
            if want.mode == "dry_run" or kept.want.mode == "auto":
                kept.back = "its rule may not act by itself any more"
        kept.want = want
        if kept.climb.state == "acting":
            self._call_back(kept, now)
            return
        after, step = look(kept.climb, self._sight(want, kept.climb, now), now)
        if step is not None and (why := self._braked(kept, step)):
            kept.climb = replace(kept.climb, why=why)
            return
        before, kept.climb = kept.climb, after
        if step is None:
            self._is_new = self._is_new or (after.state != before.state and bool(after.done))
            return
        kept.command_id, kept.recalled_mono, self._is_new = None, None, True
        if kept.spent is not None and (why := self._keep()):
            self._take_back(kept, before, f"what is done cannot be noted: {why}")
            return
        self.spawn(self._do, want, step)

    def _take_back(self, kept: LadderRun, before: LadderClimb, why: str) -> None:
        """It has not begun: after a restart nobody would know that it had."""
        self.brakes.trip("breaker", why)
        if kept.spent is not None:
            self.brakes.give_back(kept.spent)
        kept.climb, kept.spent = replace(before, why=why[:1_024]), None

    def _before(self, want: ActionIntent, now: float) -> LadderClimb | None:
        """Where it was when the hub was started anew, if it still is."""
        was = self._left.pop(place_of(want), None)
        record = None if was is None or was.command_id is None else self.hands.find(was.command_id)
        return goes_on(was, want, record, now)

    def _sight(self, want: ActionIntent, climb: LadderClimb, now: float,
               is_confirmed: bool = False) -> LadderObservation:
        mutes = (*want.mutes, *(held.sentence for held in self.brakes.mutes(want.source)))
        holds, rung = want.holds, climb.next_rung
        if rung is not None and rung.do != "tell" and now >= climb.due_at:
            holds = (*holds, *self._brake_holds(want))
            if want.mode == "confirm" and not is_confirmed:
                holds = (*holds, WAITS)
        until = None if want.kept_until is None else now + (want.kept_until - time.time())
        return LadderObservation(want.so, want.sample_age_s, holds, mutes, until, want.kept)

    def _brake_holds(self, want: ActionIntent) -> list[str]:
        """Of a rule not the fleet's bound: who hits it must be seen to hit it, and opens the
        breaker. Quotas wait for it."""
        if want.mode == "dry_run":
            return [held.sentence for held in self.brakes.mutes(want.source)]
        return [held.sentence for held in self.brakes.holds(self._ask(want))
                if held.brake != "fleet" or want.source == QUOTAS]

    def _ask(self, want: ActionIntent) -> BrakeRequest:
        return BrakeRequest(want.source, want.node_id, want.acts, want.within_s, self.hands.nodes(),
                            frozenset(self._busy))

    def _braked(self, kept: LadderRun, step: LadderStep) -> str:
        want = kept.want
        if step.do == "tell":
            self._tells += 1
            return "" if self._tells <= TELLS_PER_STEP else "many are told before"
        if want.mode == "dry_run":
            return ""
        found = self.brakes.take(self._ask(want))
        if not isinstance(found, CountedAction):
            return found[0].sentence
        kept.spent = found
        self._busy.add(want.node_id)
        return ""

    def busy(self) -> set[str]:
        """Where something is in flight: until its outcome and one sample from after it."""
        for node_id, landed in list(self._landed.items()):
            sampled = self.hands.sampled_mono(node_id)
            if sampled is not None and sampled > landed:
                del self._landed[node_id]
        return {*self._landed, *self.hands.acting(), *(
            kept.want.node_id for kept in self._climbs.values()
            if kept.climb.state == "acting" and kept.want.mode != "dry_run"
            and kept.climb.done[-1].do != "tell")}

    def _call_back(self, kept: LadderRun, now: float) -> None:
        """What is under way, and would not be begun now."""
        want = kept.want
        if kept.climb.done[-1].do == "tell":
            return
        if kept.back:
            self._recall(kept, kept.back)
        elif want.so in ("clearing", "no"):
            self._recall(kept, "it is not so any more")
        elif want.holds:
            self._recall(kept, want.holds[0])
        elif want.kept_until is not None and time.time() < want.kept_until:
            self._recall(kept, want.kept or "its owner asked that it be kept")
        elif (found := self.brakes.mutes(want.source)):
            self._recall(kept, found[0].sentence)

    def _recall(self, kept: LadderRun, why: str) -> None:
        """Until its outcome is known: a message is lost where the node has just left."""
        mono = self.mono()
        if kept.command_id is not None and (
                kept.recalled_mono is None or mono - kept.recalled_mono >= RECALL_EVERY_S):
            kept.recalled_mono = mono
            self.hands.recall(kept.want.node_id, kept.command_id, why)

    # -- doing

    def _do(self, want: ActionIntent, step: LadderStep) -> None:
        try:
            outcome = self._tell(want, step) if step.do == "tell" else self._act(want, step)
        except AuditWriteError as error:
            self.brakes.trip("breaker", f"an act of {want.source} cannot be recorded: {error}")
            outcome = "put_off", str(error)
        except Exception:
            log.exception("step_failed cause=%r target=%r", want.cause, want.target)
            outcome = "failed", "the hub failed in the middle of it; its log says why"
        if outcome is not None:
            self._settle(want.key, *outcome)

    def _tell(self, want: ActionIntent, step: LadderStep) -> tuple[OutcomeKind, str] | None:
        text = self._text(want, step)
        if want.mode == "dry_run":
            return self._would(want, step, "nobody was told", None)
        if (fenced := self.hands.fenced(want.node_id)) is not None:
            return "put_off", fenced.sentence
        kept = self._climbs.get(want.key)
        if kept is None or kept.climb.put_off == 0:  # once, however often the node is tried
            for tell in self.on_notice:
                tell(LadderNotification(want, text, time.time()))
        if not want.task_ids:
            return "done", "its owner is told by notice"
        return self._send(want, step, ActionParams(text=text))

    def _text(self, want: ActionIntent, step: LadderStep) -> str:
        after = next((rung for rung in want.rungs[step.rung + 1:] if rung.do != "tell"), None)
        comes = "" if after is None or want.mode == "dry_run" else (
            f" If it stays so, gpudeck will {after.do} it; to keep it, say so: gpudeck keep.")
        return f"{want.sentence}.{comes}"[:1_024]

    def _act(self, want: ActionIntent, step: LadderStep) -> tuple[OutcomeKind, str] | None:
        if not want.task_ids:
            return "refused", "there is no task of it on a Gpu that could be acted on"
        return self._send(want, step, ActionParams())

    def _send(self, want: ActionIntent, step: LadderStep,
              params: ActionParams) -> tuple[OutcomeKind, str] | None:
        found = self.hands.look(want.node_id, want.task_ids[0], ACTION[step.do], params)
        refusal = found if isinstance(found, Refusal) else preview_flaw(want, step.do, found)
        if want.mode == "dry_run":
            return self._would(want, step, "nothing was sent", refusal)
        if refusal is not None:
            return ("refused" if refusal.code in LASTING else "put_off"), refusal.sentence
        assert isinstance(found, Preview)
        if why := self._changed(want, step):
            return "put_off", why
        self._order(want, step, found, params)
        return None

    def _would(self, want: ActionIntent, step: LadderStep, done: str, refusal: Refusal | None
               ) -> tuple[OutcomeKind, str]:
        """A rehearsal of it: whom it would have hit, and nothing else."""
        why = "" if refusal is None else f"; it would have been refused: {refusal.sentence}"
        whom = f"{want.owner or 'somebody'} on {want.host}"
        self._note(want, f"would {step.do}", f"would {step.do} {whom}; dry run: {done}{why}")
        if refusal is not None and refusal.code in LASTING:
            return "refused", f"dry run: {done}{why}"
        return ("done" if refusal is None else "put_off"), f"dry run: {done}{why}"

    def _changed(self, want: ActionIntent, step: LadderStep) -> str:
        """While its node was asked, somebody may have silenced it, kept it or stopped all."""
        if step.do != "tell":
            self._wants = self._ask_all()
        newest = self._wants.get(want.key)
        if want.key not in self._climbs or newest is None or newest.so != "yes":
            return "it is not so any more"
        if newest.mode != want.mode:
            return "what its rule may do was changed meanwhile"
        mutes = (*newest.mutes, *(held.sentence for held in self.brakes.mutes(want.source)))
        if step.do == "tell" or mutes:
            return "; ".join(mutes)
        if newest.holds:
            return "; ".join(newest.holds)
        if newest.kept_until is not None and time.time() < newest.kept_until:
            return newest.kept or "its owner asked that it be kept"
        return ""

    def _order(self, want: ActionIntent, step: LadderStep, preview: Preview,
               params: ActionParams) -> None:
        now, action = time.time(), ACTION[step.do]
        record = CommandRecord(
            new_id(now), action, want.node_id, want.host,
            CommandActor("rule", want.cause.partition(" ")[2] or want.cause), want.sentence, now,
            now,
            now + COMMAND_LASTS_S, params, task_id=want.task_ids[0], task_ids=want.task_ids,
            job_id=preview.job_id, owner=preview.owner, bystanders=len(preview.bystanders),
            command=next((each.command for each in preview.victims if each.command), None),
            mem_used_bytes=mem_of(preview))
        self._asked[record.id] = want.key
        self._climbs[want.key].command_id, self._is_new = record.id, True
        try:
            made = self.hands.order(record, preview, want.condition, detail={
                "cause": want.cause, "alert": want.alert_id, "step": step.number,
                "rung": step.rung})
        except BaseException:
            self._asked.pop(record.id, None)
            raise
        self.changed(made)

    def changed(self, record: CommandRecord) -> None:
        """Of any Command that there is."""
        if (why := alarm(record)) is not None:
            self.brakes.trip("breaker", why)
        key, outcome = self._asked.get(record.id), outcome_of(record)
        if key is not None and outcome is not None:
            del self._asked[record.id]
            self._settle(key, *outcome)

    def _settle(self, key: Key, kind: OutcomeKind, sentence: str) -> None:
        kept = self._climbs.get(key)
        if kept is None or kept.climb.state != "acting":
            return
        if kept.spent is not None and kind in ("refused", "put_off"):
            self.brakes.give_back(kept.spent)
        elif kept.spent is not None:
            self._landed[kept.want.node_id] = self.mono()
        kept.climb = settle(kept.climb, kind, sentence, self.now())
        kept.command_id, kept.spent, self._is_new = None, None, True
        if kept.climb.state == "stopped":
            self._note(kept.want, "stopped", kept.climb.why)
        if kept.is_dropped:
            del self._climbs[key]

    def _note(self, want: ActionIntent, action: str, sentence: str) -> None:
        self.auditor.note("ladder", {
            "actor": want.cause, "actor_kind": "rule", "action": action, "outcome": "done",
            "node": want.node_id, "host": want.host, "owner": want.owner,
            "task_id": want.task_ids[0] if want.task_ids else None, "sentence": sentence,
            "detail": {"alert": want.alert_id, "because": want.sentence, "mode": want.mode}})

    # -- by people

    def confirmable(self, alert_id: str) -> tuple[ActionIntent, LadderStep] | str:
        """What a person may let happen now, or why nothing."""
        kept = next((each for each in self._climbs.values() if each.want.alert_id == alert_id),
                    None)
        if kept is None or kept.want.mode != "confirm":
            return "nothing of this alert waits for a person"
        if kept.climb.state == "acting":
            return kept.climb.why
        now = self.now()
        self._busy = self.busy()
        sight = self._sight(kept.want, kept.climb, now, is_confirmed=True)
        after, step = look(kept.climb, sight, now)
        if step is None or step.do == "tell":
            return after.why or "nothing of this alert waits for a person"
        return kept.want, step

    def confirm(self, alert_id: str, order: Callable[[ActionIntent, LadderStep], CommandRecord]
                ) -> CommandRecord | str:
        """`order`: by the person, through the same door as their other orders; it may raise."""
        found = self.confirmable(alert_id)
        if isinstance(found, str):
            return found
        want, step = found
        kept, now = self._climbs[want.key], self.now()
        before, sight = kept.climb, self._sight(want, kept.climb, now, is_confirmed=True)
        if why := self._braked(kept, step):
            return why
        kept.climb, _ = look(before, sight, now)
        kept.command_id, kept.recalled_mono = None, None
        try:
            record = order(want, step)
        except BaseException:
            self._not_ordered(kept, before)
            raise
        self._asked[record.id] = want.key
        kept.command_id, self._is_new = record.id, True
        # Its node may have said how it went before anybody here waited for that.
        self.changed(self.hands.find(record.id) or record)
        return record

    def _not_ordered(self, kept: LadderRun, before: LadderClimb) -> None:
        kept.climb = before
        if kept.spent is not None:
            self.brakes.give_back(kept.spent)
            kept.spent = None
        if kept.is_dropped and self._climbs.get(kept.want.key) is kept:
            del self._climbs[kept.want.key]

    def drop(self) -> None:
        """After a reset nothing of before is done; what is under way is waited for."""
        self._left.clear()
        self._is_new = True
        for key, kept in list(self._climbs.items()):
            if kept.climb.state == "acting":
                kept.is_dropped = True
            else:
                del self._climbs[key]

    # -- what is known

    def find(self, key: Key) -> LadderRun | None:
        return self._climbs.get(key)

    def by_alert(self) -> dict[str, LadderRun]:
        return {kept.want.alert_id: kept for kept in self._climbs.values()}

    def of(self, source: str) -> dict[Key, LadderRun]:
        return {key: kept for key, kept in self._climbs.items() if kept.want.source == source}

    def holds_of(self, kept: LadderRun) -> list[str]:
        """Why it does not go on, beside the time that has to pass."""
        sight = self._sight(kept.want, kept.climb, self.now())
        waits = [kept.climb.why] if kept.climb.state == "stopped" else []
        kept_back = [sight.kept] if sight.kept_until is not None and (
            self.now() < sight.kept_until) else []
        return list(dict.fromkeys((*waits, *sight.holds, *sight.mutes, *kept_back)))

    def utc(self, at: float) -> float:
        return at - self.now() + time.time()
