"""Which mode a Rule may have next, and what that takes (docs/rules-that-act.md). Pure.

observe -> dry_run -> confirm -> auto; any edit of what it means goes back to dry_run at most.
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
    """A version of a Rule that was put in force, by whom and when."""

    rule: Rule
    by: str
    at: float


class RehearsalEvidence(Protocol):
    """A backtest of one version over a stored span, whose report somebody has approved."""

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
    """`puts`: of this Rule, newest first. `names`: by which the asker is known, the person behind
    a program too. `needs_second`: a site with one admin has switched that off."""

    rule: Rule  # that is in force
    wanted: Mode
    expires: str
    puts: Sequence[RuleRevision]
    rehearsals: Iterable[RehearsalEvidence]
    names: frozenset[str]
    needs_second: bool
    now: float
    proof_s: float = PROVEN_S  # of dry run, or of history


def refusal(case: PromotionRequest) -> str | None:
    """Why not, and what to do; None: it may."""
    was = case.rule.mode
    if case.wanted == was and case.expires == case.rule.expires:
        return None
    if case.wanted != was and case.wanted not in MODES[was]:
        return f"a rule goes from {was} to {' or '.join(MODES[was])}, not to {case.wanted}"
    if case.wanted != "observe" and not case.rule.ladder:
        return f"{case.wanted} needs a ladder: there is nothing to do"
    return _auto_refusal(case) if case.wanted == "auto" else None


def _auto_refusal(case: PromotionRequest) -> str | None:
    by = author(case.puts)
    if case.needs_second and by in case.names:
        return ("a rule may act automatically only after another admin than its author allows it "
                "(a site with one admin sets second_person = off)")
    if (wrong := _expiry_flaw(case.expires, case.now)) is not None:
        return wrong
    tried_s = dry_run_s(case.puts, case.now)
    if tried_s >= case.proof_s or any(_proves(each, case, by) for each in case.rehearsals):
        return None
    proof, tried = _words(case.proof_s), _words(tried_s)
    another = "another admin than its author" if case.needs_second else "an admin"
    return (f"a rule may act automatically after {proof} of dry_run (it has {tried}), or with a "
            f"rehearsal of this version over {proof} that {another} has approved")


def _words(span_s: float) -> str:
    number, unit = (span_s / DAY_S, "day") if span_s >= 2 * DAY_S else (span_s / 3_600, "hour")
    text = f"{number:.1f}".removesuffix(".0")
    return f"{text} {unit}" if text == "1" else f"{text} {unit}s"


def _proves(rehearsal: RehearsalEvidence, case: PromotionRequest, author_name: str) -> bool:
    approved_by = rehearsal.approved_by
    return (rehearsal.rule_version == version(case.rule)
            and rehearsal.end - rehearsal.start >= case.proof_s and rehearsal.end <= case.now
            and approved_by is not None and not (case.needs_second and approved_by == author_name))


def _expiry_flaw(expires: str, now: float) -> str | None:
    ends_at = ends(expires)
    if ends_at is None or not now < ends_at <= now + AUTO_MOST_S:
        return ("a rule that acts automatically must expire: give the day in `expires`, such as "
                f"{datetime.fromtimestamp(now + 90 * DAY_S, UTC):%Y-%m-%d}, at most "
                f"{AUTO_MOST_S / DAY_S:.0f} days ahead")
    return None


def ends(expires: str) -> float | None:
    """The end of that day, UTC."""
    try:
        day = datetime.strptime(expires, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return day.timestamp() + DAY_S


def author(puts: Sequence[RuleRevision]) -> str:
    """Who gave it the meaning that it has."""
    same = _same(puts)
    return same[-1].by if same else ""


def dry_run_s(puts: Sequence[RuleRevision], now: float) -> float:
    """For how long this meaning has been tried without a break."""
    tried = []
    for put in _same(puts):
        if put.rule.mode == "observe":
            break
        tried.append(put)
    return max(0.0, now - tried[-1].at) if tried else 0.0


def _same(puts: Sequence[RuleRevision]) -> list[RuleRevision]:
    found: list[RuleRevision] = []
    for put in puts:
        if found and version(put.rule) != version(found[0].rule):
            break
        found.append(put)
    return found


def as_put(before: Rule | None, wanted: Rule) -> Rule:
    """An edit of what it means takes back what was proven of it; who is new begins with that."""
    if before is not None and version(before) == version(wanted):
        return wanted
    return replace(wanted, mode="dry_run") if wanted.mode in ACTING else wanted


def effective(rule: Rule, now: float) -> Mode:
    """A rule whose day has come acts no more by itself."""
    ends_at = ends(rule.expires)
    if rule.mode == "auto" and (ends_at is None or now >= ends_at):
        return "dry_run"
    return rule.mode
