"""Promotion of rules: which mode may come next, and what that requires (docs/rules-that-act.md). Pure.

observe -> dry_run -> confirm -> auto; any edit of its meaning goes back to dry_run at most.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from msgspec.structs import replace

from .rule import AUTO_MOST_S, MODES, Mode, Rule, version

DAY_S = 86_400.0
PROVEN_S = 7 * DAY_S
ACTING: tuple[Mode, ...] = ("confirm", "auto")


@dataclass(frozen=True, slots=True)
class RuleRevision:
    """A version of a rule that was put in force, by whom and when."""

    rule: Rule
    by: str
    at: float


class RehearsalEvidence(Protocol):
    """A rehearsal of one version over a stored span, whose report somebody has approved."""

    @property
    def rule_version(self) -> str: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def by(self) -> str: ...
    @property
    def approved_by(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class PromotionRequest:
    """A request for another mode or expiry. `puts`: of this rule, newest first. `names`: names of
    the caller, including the person behind a program. `needs_second`: False if a site with one
    admin has switched that off."""

    rule: Rule  # the one in force
    mode: Mode
    expires: str
    puts: Sequence[RuleRevision]
    rehearsals: Iterable[RehearsalEvidence]
    names: frozenset[str]
    needs_second: bool
    now: float
    proof_s: float = PROVEN_S  # of dry run, or of history


def refusal(request: PromotionRequest) -> str | None:
    """Return why the request is refused, and what to do; None if it is not."""
    was = request.rule.mode
    if request.mode == was and request.expires == request.rule.expires:
        return None
    if request.mode != was and request.mode not in MODES[was]:
        return f"a rule goes from {was} to {' or '.join(MODES[was])}, not to {request.mode}"
    if request.mode != "observe" and not request.rule.ladder:
        return f"{request.mode} needs a ladder: there is nothing to do"
    return _auto_refusal(request) if request.mode == "auto" else None


def _auto_refusal(request: PromotionRequest) -> str | None:
    by = author(request.puts)
    if request.needs_second and by in request.names:
        return ("a rule may act automatically only after another admin than its author allows it "
                "(a site with one admin sets second_person = off)")
    if (wrong := _expiry_flaw(request.expires, request.now)) is not None:
        return wrong
    tried_s = dry_run_s(request.puts, request.now)
    if tried_s >= request.proof_s or any(
            _proves(rehearsal, request, by) for rehearsal in request.rehearsals):
        return None
    proof, tried_text = _words(request.proof_s), _words(tried_s)
    approver = "another admin than its author" if request.needs_second else "an admin"
    return (f"a rule may act automatically after {proof} of dry_run (it has {tried_text}), or with "
            f"a rehearsal of this version over {proof} that {approver} has approved")


def _words(span_s: float) -> str:
    number, unit = (span_s / DAY_S, "day") if span_s >= 2 * DAY_S else (span_s / 3_600, "hour")
    text = f"{number:.1f}".removesuffix(".0")
    return f"{text} {unit}" if text == "1" else f"{text} {unit}s"


def _proves(rehearsal: RehearsalEvidence, request: PromotionRequest, author_name: str) -> bool:
    approved_by = rehearsal.approved_by
    return (rehearsal.rule_version == version(request.rule)
            and rehearsal.end - rehearsal.start >= request.proof_s and rehearsal.end <= request.now
            and approved_by is not None
            and not (request.needs_second and approved_by == author_name))


def _expiry_flaw(expires: str, now: float) -> str | None:
    ends_at = ends(expires)
    if ends_at is None or not now < ends_at <= now + AUTO_MOST_S:
        return ("a rule that acts automatically must expire: give the day in `expires`, such as "
                f"{datetime.fromtimestamp(now + 90 * DAY_S, UTC):%Y-%m-%d}, at most "
                f"{AUTO_MOST_S / DAY_S:.0f} days ahead")
    return None


def ends(expires: str) -> float | None:
    """Return the end of that day, UTC; None if it is not a day."""
    try:
        day = datetime.strptime(expires, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return day.timestamp() + DAY_S


def author(puts: Sequence[RuleRevision]) -> str:
    """Return the name of the person who gave the rule its present meaning."""
    same = _same(puts)
    return same[-1].by if same else ""


def dry_run_s(puts: Sequence[RuleRevision], now: float) -> float:
    """Return for how many seconds this meaning has been tried without a break."""
    trial = []
    for put in _same(puts):
        if put.rule.mode == "observe":
            break
        trial.append(put)
    return max(0.0, now - trial[-1].at) if trial else 0.0


def _same(puts: Sequence[RuleRevision]) -> list[RuleRevision]:
    revisions: list[RuleRevision] = []
    for put in puts:
        if revisions and version(put.rule) != version(revisions[0].rule):
            break
        revisions.append(put)
    return revisions


def as_put(before: Rule | None, revised: Rule) -> Rule:
    """Return the rule to put in force: an edit of its meaning voids what was proven of it, as for a
    new rule."""
    if before is not None and version(before) == version(revised):
        return revised
    return replace(revised, mode="dry_run") if revised.mode in ACTING else revised


def effective(rule: Rule, now: float) -> Mode:
    """Return the mode in effect: a rule past its expiry day no longer acts by itself."""
    ends_at = ends(rule.expires)
    if rule.mode == "auto" and (ends_at is None or now >= ends_at):
        return "dry_run"
    return rule.mode
