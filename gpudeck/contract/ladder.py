"""The ladder: from notifying an Owner to ending a Task, for Rules and Quotas alike. Pure.

A Climb is one cause at one target. Each observation says what holds now; the result is the new
Climb and at most one Step to do. `now` is of a clock that never steps: with one that does, a rung
could come due because somebody set the time.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct
from msgspec.structs import replace

from gpudeck.contract.message_limits import Number, Seconds, Text, Word

Do = Literal["tell", "limit", "pause", "suspend", "end"]
RuleDo = Literal["tell", "limit", "pause", "end"]  # of rules: only a pre-emption suspends
DOES: tuple[Do, ...] = get_args(Do)  # from mild to severe
# Is the condition met? `clearing`: not at this moment, but it may be again. `no`: it is over.
# `unknown`: there is no telling now.
So = Literal["yes", "clearing", "no", "gone", "unknown"]
ClimbState = Literal["waiting", "acting", "settling", "resting", "finished", "over", "stopped"]
# Possible next states; the picture in docs/rules.md is drawn from this. While a step is acting,
# nothing but its outcome counts: a second one could hit what the first has just changed.
LIFE: dict[ClimbState, tuple[ClimbState, ...]] = {
    "waiting": ("acting", "resting", "over", "stopped"),
    "acting": ("settling", "waiting", "stopped"),
    "settling": ("waiting", "resting", "finished", "over"),
    "resting": ("waiting", "over"),
    "finished": ("over",),
    "over": (),
    "stopped": ("over",),
}
# Outcomes of a step. `put_off`: nothing was touched, and a retry may succeed. `refused`: nothing
# was touched, and no retry would succeed. `failed`: something was done, or that is not known.
OutcomeKind = Literal["done", "put_off", "refused", "failed"]

FRESH_S = 10.0  # an older sample says nothing about now
AGAIN_AFTER_S = 60.0
PUT_OFF_MOST = 10
MAX_RUNGS = 8
MAX_DONE = 64


class LadderRung(Struct, frozen=True, forbid_unknown_fields=True):
    """A rung. `after_s`: since the outcome of the rung before, or since the condition was met."""

    do: Do
    after_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0


class LadderStep(Struct, frozen=True):
    """A step to do since `at`; `number` counts them within a Climb and is never used twice.
    `ended_at` None: its outcome is not known yet."""

    number: Number
    rung: Number
    do: Do
    at: Seconds
    ended_at: Seconds | None = None
    outcome: OutcomeKind | None = None
    sentence: Text = ""


class LadderClimb(Struct, frozen=True):
    cause: Text  # with its version: another version is another Climb
    target: Text  # by an identifier that is never reused
    rungs: Annotated[tuple[LadderRung, ...], Meta(min_length=1, max_length=MAX_RUNGS)]
    since: Seconds
    due_at: Seconds  # of the next rung
    state: ClimbState = "waiting"
    rung: Number = 0  # the next one
    number: Number = 0  # of Steps so far
    put_off: Number = 0  # of this rung, in a row
    done: Annotated[tuple[LadderStep, ...], Meta(max_length=MAX_DONE)] = ()
    why: Text = ""  # why it waits, rests or has stopped
    skips_refused: bool = False  # goes on to the next rung, at its time, past one that is refused

    @property
    def next_rung(self) -> LadderRung | None:
        return self.rungs[self.rung] if self.rung < len(self.rungs) else None

    @property
    def is_open(self) -> bool:
        """True while something may still be done."""
        return self.state in ("waiting", "acting", "settling", "resting")


class LadderObservation(Struct, frozen=True):
    """Observation of a target at this moment. `sample_age_s` None: there is no sample. `holds`: why
    nothing may be done, each for people; `mutes`: why not even the owner may be notified. Fields
    that hold a step back have no default: what was not asked must not permit."""

    condition: So
    sample_age_s: float | None
    holds: tuple[str, ...]
    mutes: tuple[str, ...]
    kept_until: float | None
    keep_sentence: str  # by whom and why, for people


def begin(cause: Word, target: Word, rungs: Sequence[LadderRung], now: float,
          skips_refused: bool = False) -> LadderClimb:
    return LadderClimb(cause, target, tuple(rungs), now, now + rungs[0].after_s,
                       skips_refused=skips_refused)


def resumed(was: LadderClimb, now: float) -> LadderClimb:
    """Continue a Climb after a restart: no rung twice and none left out, and a waiting one waits
    its whole time again. A rung that harms and whose outcome nobody saw is not tried again."""
    fresh = begin(was.cause, was.target, was.rungs, now, was.skips_refused)
    climb = replace(fresh, rung=was.rung, number=was.number, put_off=was.put_off, done=was.done)
    rung = climb.next_rung
    if was.state == "stopped":
        return replace(climb, state="stopped", why=was.why)
    if rung is None:
        return replace(climb, state="finished", why="all steps were done")
    if was.state == "acting" and rung.do != "tell":
        return replace(climb, state="stopped", why=f"'{rung.do}' was in progress when the hub "
                       "stopped; the audit log has its outcome, and it is not retried")
    return replace(climb, due_at=now + rung.after_s,
                   why="the hub was restarted; the ladder continues at its present step")


def look(climb: LadderClimb, sight: LadderObservation, now: float) -> tuple[LadderClimb,
                                                                            LadderStep | None]:
    """Advance a Climb, once a second or so. The caller does the Step, and reports its outcome by
    `settle`."""
    if climb.state == "acting" or climb.state == "over":
        return climb, None
    if sight.condition in ("no", "gone"):
        why = ("the target is gone" if sight.condition == "gone" else
               "the condition is not met any more")
        return _to(climb, "over", why), None
    if climb.state in ("finished", "stopped"):
        return climb, None
    if sight.condition == "clearing":
        return _rest(climb), None
    if climb.state == "resting":
        return _restart(climb, sight, now), None
    why = _unsure(sight)
    if why:
        return replace(climb, why=why), None
    if climb.state == "settling":
        climb = _settled(climb, now - (sight.sample_age_s or 0.0), now)
    if climb.state != "waiting":
        return climb, None
    return _climb(climb, sight, now)


def _rest(climb: LadderClimb) -> LadderClimb:
    why = ("the condition is not met at the moment; if it returns, the ladder starts at its first "
           "step")
    return climb if climb.state == "resting" else _to(climb, "resting", why)


def _restart(climb: LadderClimb, sight: LadderObservation, now: float) -> LadderClimb:
    if sight.condition == "unknown":
        return climb
    return replace(_to(climb, "waiting", "it came back"), rung=0, put_off=0, since=now,
                   due_at=now + climb.rungs[0].after_s)


def _unsure(sight: LadderObservation) -> str:
    if sight.condition == "unknown":
        return "whether the condition is still met is not known"
    if sight.sample_age_s is None or not 0 <= sight.sample_age_s <= FRESH_S:
        return f"the newest sample is not from the last {FRESH_S:.0f} s"
    return ""


def _settled(climb: LadderClimb, sampled_at: float, now: float) -> LadderClimb:
    """Go on after the outcome of a step, once there is a sample from after it."""
    ended_at = climb.done[-1].ended_at or 0.0
    if sampled_at <= ended_at:
        return replace(climb, why="waiting for a sample from after the previous step")
    rung = climb.next_rung
    if rung is None:
        return _to(climb, "finished", "all steps were done")
    return replace(_to(climb, "waiting"), due_at=max(climb.due_at, ended_at + rung.after_s))


def _climb(climb: LadderClimb, sight: LadderObservation, now: float) -> tuple[LadderClimb,
                                                                              LadderStep | None]:
    rung = climb.next_rung
    assert rung is not None, climb
    why = _hold_reason(climb, rung, sight, now)
    if why:
        return replace(climb, why=why), None
    step = LadderStep(climb.number + 1, climb.rung, rung.do, now)
    return replace(_to(climb, "acting", f"waiting for the outcome of '{rung.do}'"),
                   number=step.number, done=(*climb.done, step)[-MAX_DONE:]), step


def _hold_reason(climb: LadderClimb, rung: LadderRung, sight: LadderObservation, now: float) -> str:
    if now < climb.due_at:
        since = "the previous step" if climb.done else "it started"
        return f"'{rung.do}' comes {rung.after_s:.0f} s after {since}"
    if rung.do == "tell":
        return "; ".join(sight.mutes)[:1_024]
    if sight.holds:
        return "; ".join(sight.holds)[:1_024]
    if sight.kept_until is not None and now < sight.kept_until:
        return sight.keep_sentence or "its owner asked to keep it"
    return ""


def settle(climb: LadderClimb, kind: OutcomeKind, sentence: str, now: float) -> LadderClimb:
    """Record the outcome of the Step that is acting."""
    assert climb.state == "acting", climb.state
    last = replace(climb.done[-1], ended_at=now, outcome=kind, sentence=sentence[:1_024])
    climb = replace(climb, done=(*climb.done[:-1], last))
    match kind:
        case "done":
            return replace(_to(climb, "settling"), rung=climb.rung + 1, put_off=0)
        case "put_off" if climb.put_off + 1 < PUT_OFF_MOST:
            return replace(_to(climb, "waiting", sentence), put_off=climb.put_off + 1,
                           due_at=now + AGAIN_AFTER_S)
        case "put_off":
            return _to(climb, "stopped", f"put off {PUT_OFF_MOST} times, the last time: {sentence}")
        # Suspended or not at all: what could not be is as it was before.
        case "refused" | "failed" if (
                climb.skips_refused and (kind == "refused" or last.do == "suspend")
                and goes_past([rung.do for rung in climb.rungs], climb.rung)):
            return replace(_to(climb, "settling", sentence), rung=climb.rung + 1, put_off=0)
        case "refused" | "failed":
            return _to(climb, "stopped", sentence)


def order_flaw(dos: Sequence[Do], choices: Sequence[Do] = get_args(RuleDo)) -> str:
    """Return what is wrong where a rung is milder than one before it; "": none is."""
    ranks = [DOES.index(do) for do in dos]
    return "" if ranks == sorted(ranks) else (
        f"must go from mild to severe: {', '.join(choices)}")


def goes_past(dos: Sequence[Do], rung: int) -> bool:
    """Return whether a refused rung may be skipped: nothing harsher follows a warning that nobody
    got."""
    return dos[rung] != "tell" and rung + 1 < len(dos)


def _to(climb: LadderClimb, state: ClimbState, why: str = "") -> LadderClimb:
    assert state in LIFE[climb.state], (climb.state, state)
    return replace(climb, state=state, why=why[:1_024])
