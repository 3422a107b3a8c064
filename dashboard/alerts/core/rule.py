"""A rule: what it watches on which targets, for how long, and what it does about it.

Rules are written as YAML, by hand or by the form, and read here; `check` reports every mistake at
once. MODES says which mode may follow which.
"""

import difflib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
import numpy as np
from msgspec import Meta, Struct

from gpudeck.contract.ladder import Do, RuleDo, order_flaw
from gpudeck.language.filters import FilterError

from ...fleet.filters import Filter
from ...fleet.filters import parse as parse_filter
from .numbers import NAMES
from .rule_signal import (
    MINUTE_FUNCTIONS,
    RuleSignal,
    RuleSyntaxError,
    RuleThreshold,
    SignalTerm,
    parse,
    parse_condition,
    parse_limit,
    parse_span,
)

Of = Literal["gpu", "task", "job", "node", "owner", "fleet"]
Mode = Literal["observe", "dry_run", "confirm", "auto"]
Severity = Literal["info", "warn", "crit"]
NoData = Literal["alert", "ok", "hold"]
WhenRefused = Literal["stop", "skip"]

# What a Rule may become next; any edit of its meaning goes back to dry_run at most.
MODES: dict[Mode, tuple[Mode, ...]] = {
    "observe": ("dry_run",),
    "dry_run": ("observe", "confirm", "auto"),
    "confirm": ("observe", "dry_run", "auto"),
    "auto": ("observe", "dry_run", "confirm"),
}
WHOLE_FLEET = "*"
LADDER_FOR_S = 30  # the shortest hold of a Rule that acts
END_AFTER_S = 60
CORDON_WITHIN_S = 3_600
CLOSED_FROM_S = 300  # from this hold on, rules read closed minutes, live as in rehearsal
AUTO_MOST_S = 180 * 86_400
MAX_STEPS = 6
SPAN_MOST_S = 90 * 86_400  # as long as minutes are kept: beyond it nothing can be rehearsed

ACTED_ON: frozenset[Of] = frozenset(("task", "job"))

T = TypeVar("T")
RuleId = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
Text = Annotated[str, Meta(max_length=400)]
Long = Annotated[str, Meta(max_length=4_000)]


class RuleStep(Struct, frozen=True, forbid_unknown_fields=True):
    """`after`: since the step before it, or since the alert began to fire."""

    do: RuleDo
    after: Text = "0s"


class RuleBudget(Struct, frozen=True, forbid_unknown_fields=True):
    acts: Annotated[int, Meta(ge=1, le=100)] = 5
    within: Text = "10m"


class Rule(Struct, frozen=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    id: RuleId
    title: Text
    signal: Text
    fire: Text
    of: Of = "gpu"
    scope: Text = ""
    where: Annotated[tuple[Text, ...], Meta(max_length=6)] = ()
    clear: Text = ""
    for_: Text = "0s"
    keep_firing_for: Text = "0s"
    no_data: NoData = "alert"
    severity: Severity = "warn"
    min_coverage: Annotated[float, Meta(gt=0, le=1)] = 0.8
    max_gap: Text = ""  # three periods
    ladder: Annotated[tuple[RuleStep, ...], Meta(max_length=MAX_STEPS)] = ()
    mode: Mode = "observe"
    cooldown: Text = "10m"
    budget: RuleBudget = RuleBudget()
    group_by: Annotated[tuple[Literal["rule", "node", "owner", "gpu"], ...], Meta(max_length=4)] = (
        "rule", "node")
    inhibited_by: Annotated[tuple[RuleId, ...], Meta(max_length=16)] = ()
    owner: Text = ""
    runbook: Long = ""
    expires: Text = ""  # the day until which `auto` holds: 2027-01-31
    when_refused: WhenRefused = "stop"  # the ladder at a rung, or skip that rung
    cordon: bool = False  # the GPU, in `auto`


def _one_of(kind: Any) -> str:
    *most, last = get_args(kind)
    return f"{', '.join(most)} or {last}"


# What may change without making it another Rule.
WORDS = frozenset(("title", "runbook", "owner", "mode", "expires", "severity", "group_by"))


# Fields added after the first versions, whose hashes are in records: left out at their default,
# so that those hashes stay the same.
LATER = (("when_refused", "stop"), ("cordon", False))


def version(rule: Rule) -> str:
    meaning = {key: value for key, value in msgspec.to_builtins(rule).items()
               if key not in WORDS and (key, value) not in LATER}
    return hashlib.sha256(msgspec.json.encode(meaning, order="sorted")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A Rule that can be evaluated."""

    rule: Rule
    version: str
    scope: Filter | None  # None: the whole fleet
    signal: RuleSignal
    fire: RuleThreshold
    clear: RuleThreshold
    where: tuple[tuple[RuleSignal, RuleThreshold], ...]
    for_s: int
    keep_s: int
    max_gap_s: int
    cooldown_s: int
    budget_s: int
    steps: tuple[tuple[Do, int], ...]
    closed_from_s: int = CLOSED_FROM_S

    @property
    def terms(self) -> tuple[SignalTerm, ...]:
        """Terms of its signal, and of its further conditions."""
        return (*self.signal.terms, *(term for signal, _ in self.where for term in signal.terms))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(term.name for term in self.terms)

    @property
    def has_ladder(self) -> bool:
        return bool(self.steps)

    @property
    def is_of_past(self) -> bool:
        """Return whether what it looks for happens once: whoever forgets that sees it no more."""
        return self.signal.memory_s is not None or any(
            term.how == "increase" for term in self.terms)

    @property
    def is_by_minutes(self) -> bool:
        """Return whether it reads closed minutes, so that rehearsal and life are the same
        computation."""
        return self.for_s >= self.closed_from_s or any(
            term.how in MINUTE_FUNCTIONS for term in self.terms)

    @property
    def period_s(self) -> int:
        return 60 if self.is_by_minutes else 1

    @property
    def gap_s(self) -> int:
        return self.max_gap_s or 3 * self.period_s


@dataclass(frozen=True, slots=True)
class RuleProblem:
    field: str
    message: str
    at: int | None = None  # in that field's text

    def __str__(self) -> str:
        where = "" if self.at is None else f", character {self.at + 1}"
        return f"{self.field}{where}: {self.message}"


class InvalidRuleError(ValueError):
    def __init__(self, problems: list[RuleProblem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def invalid(field: str, message: str, at: int | None = None) -> InvalidRuleError:
    return InvalidRuleError([RuleProblem(field, message, at)])


REQUIRED = {"id": "x", "title": "x", "signal": "x", "fire": "x"}  # each with a placeholder
# What a field must be, for one of another type.
HOW = {
    "id": "1 to 64 of a-z 0-9 and -, beginning with a letter or a digit",
    "of": f"write {_one_of(Of)}", "no_data": f"write {_one_of(NoData)}",
    "severity": f"write {_one_of(Severity)}", "mode": f"write {_one_of(Mode)}",
    "when_refused": f"write {_one_of(WhenRefused)}",
    **dict.fromkeys(("for", "keep_firing_for", "max_gap", "cooldown"),
                    "a span of time, such as 30s, 5m or 2h"),
    "min_coverage": "a share above 0 and up to 1, such as 0.8",
    "where": "a list of 6 conditions at most, such as ['mem_used_bytes >= 1GiB']",
    "ladder": f"a list of {MAX_STEPS} steps at most, such as {{do: tell, after: 10m}}; do is "
              f"{_one_of(RuleDo)}",
    "budget": "such as {acts: 5, within: 10m}; acts is 1 to 100",
    "group_by": "a list of rule, node, owner or gpu",
    "inhibited_by": "a list of 16 ids of rules at most",
    "runbook": "a text of 4,000 characters at most",
    "cordon": "true or false",
}


def read(data: Any) -> Rule:
    """Read a rule from what YAML or JSON holds. Raises InvalidRuleError with everything that cannot
    be read."""
    if not isinstance(data, dict):
        raise invalid("rule", f"is a {type(data).__name__}, not a table of fields")
    fields = _as_texts(data)
    problems = [RuleProblem(name[:64], f"there is no such field; {_near(name, FIELDS)}")
                for name in fields if name not in FIELDS]
    problems += [RuleProblem(name, "is needed") for name in REQUIRED if name not in fields]
    fields = {name: value for name, value in fields.items() if name in FIELDS}
    while True:
        try:
            rule = msgspec.convert(REQUIRED | fields, Rule)
            break
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$.")
            field = path.rstrip("`")
            name = re.split(r"[.\[]", field)[0]
            if name not in fields:
                raise InvalidRuleError([*problems, RuleProblem("rule", message)]) from None
            problems.append(RuleProblem(field, HOW.get(name, "a text of 400 characters at most")))
            del fields[name]
    if problems:
        raise InvalidRuleError(problems)
    return rule


FIELDS = tuple("for" if name == "for_" else name for name in Rule.__struct_fields__)


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"


def _as_texts(data: dict[Any, Any]) -> dict[str, Any]:
    """Turn a bare number into text where a comparison or a span is expected."""
    return {str(key): str(value) if key in ("expires", "fire", "clear", "for")
            and isinstance(value, int | float) else value for key, value in data.items()}


def check(rule: Rule) -> CompiledRule:
    """Compile a rule. Raises InvalidRuleError with every mistake in it."""
    return _RuleCompiler(rule).ready()


class _RuleCompiler:
    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._problems: list[RuleProblem] = []

    def ready(self) -> CompiledRule:
        rule = self._rule
        names = NAMES[rule.of]
        signal = self._try("signal", lambda: parse(rule.signal, names))
        unit = None if signal is None else signal.part.unit
        fire = self._try("fire", lambda: parse_limit(rule.fire, unit))
        clear = self._try("clear", lambda: parse_limit(
            rule.clear or default_clear(fire, unit), unit)) if fire else None
        where = tuple(self._conditions(names))
        scope = self._scope()
        spans = {name: self._span(name, text) for name, text in (
            ("for", rule.for_), ("keep_firing_for", rule.keep_firing_for),
            ("max_gap", rule.max_gap or "0s"), ("cooldown", rule.cooldown))}
        steps = tuple(self._steps())
        within_s = self._span("budget", rule.budget.within)
        if within_s > BUDGET_MOST_S or within_s < 1:
            self._problems.append(RuleProblem("budget", "is counted within 1s to 1d"))
        self._problems += _problems_of(rule, fire, clear, spans["for"], steps)
        self._problems += _cordon_refused(rule, spans["for"], within_s)
        if self._problems or signal is None or fire is None or clear is None:
            raise InvalidRuleError(self._problems)
        return CompiledRule(rule, version(rule), scope, signal, fire, clear, where, spans["for"],
                            spans["keep_firing_for"], spans["max_gap"], spans["cooldown"], within_s,
                            steps)

    def _try(self, field: str, read_it: Callable[[], T]) -> T | None:
        try:
            return read_it()
        except (RuleSyntaxError, FilterError) as error:
            self._problems.append(RuleProblem(field, str(error), error.at))
            return None

    def _span(self, field: str, text: str) -> int:
        span_s = self._try(field, lambda: parse_span(text)) or 0
        if span_s > SPAN_MOST_S:
            self._problems.append(RuleProblem(field, f"is at most {SPAN_MOST_S // 86_400}d"))
        return span_s

    def _scope(self) -> Filter | None:
        scope = self._rule.scope.strip()
        if scope == WHOLE_FLEET:
            return None
        if not scope:
            self._problems.append(RuleProblem(
                "scope", "is empty: write a filter, or '*' for the whole fleet"))
            return None
        return self._try("scope", lambda: parse_filter(scope))

    def _conditions(self, names: Mapping[str, str]) -> Iterator[tuple[RuleSignal, RuleThreshold]]:
        for number, text in enumerate(self._rule.where):
            condition = self._try(f"where[{number}]", partial(parse_condition, text, names))
            if condition is not None:
                yield condition

    def _steps(self) -> Iterator[tuple[Do, int]]:
        for number, step in enumerate(self._rule.ladder):
            yield step.do, self._span(f"ladder[{number}]", step.after)


def default_clear(fire: RuleThreshold, unit: str | None) -> str:
    """Return a limit further back than the one that fires, so that noise around it makes one alert
    and not many."""
    margin = {"°C": 3.0, "%": 5.0}.get(unit or "-", abs(fire.number) * 0.05)
    match fire.op:
        case ">" | ">=":
            return f"< {_plain(fire.number - margin)}"
        case "<" | "<=":
            return f"> {_plain(fire.number + margin)}"
        case "=":
            return f"!= {_plain(fire.number)}"
        case _:
            return f"= {_plain(fire.number)}"


def _plain(number: float) -> str:
    """Return a number without an exponent, to the last digit."""
    return format(Decimal(repr(number)).normalize() + 0, "f")


def _problems_of(rule: Rule, fire: RuleThreshold | None, clear: RuleThreshold | None, for_s: int,
                 steps: tuple[tuple[Do, int], ...]) -> Iterator[RuleProblem]:
    yield from _words_refused(rule)
    if fire is not None and clear is not None and _overlap(fire, clear):
        yield RuleProblem("clear", f"'{clear.text}' is true where '{fire.text}' fires: the alert "
                                   "would never clear")
    if rule.of == "fleet" and rule.scope.strip() not in ("", WHOLE_FLEET):
        yield RuleProblem("scope", "a part of the fleet is not the fleet: write '*'")
    acts = [do for do, _ in steps if do != "tell"]
    if steps and for_s < LADDER_FOR_S:
        yield RuleProblem("for", f"a rule with a ladder holds at least {LADDER_FOR_S}s before its "
                                 "first step")
    if acts and rule.of not in ACTED_ON:
        yield RuleProblem("ladder", f"{acts[0]} applies to tasks and jobs, but this rule is about "
                                    f"a {rule.of}: write 'of: task', or leave only 'tell'")
    if acts and steps[0][0] != "tell":
        yield RuleProblem("ladder", "tell the owner first: begins with 'do: tell'")
    if acts and any(after_s < END_AFTER_S for do, after_s in steps if do == "end"):
        yield RuleProblem("ladder", f"'end' comes at least {END_AFTER_S}s after the previous "
                                    "step")
    if flaw := order_flaw([do for do, _ in steps]):
        yield RuleProblem("ladder", flaw)
    if rule.mode == "auto" and acts and not rule.expires:
        yield RuleProblem("expires", "a rule that acts automatically must expire within 180 days, "
                                     "such as 2027-01-31")
    if rule.mode != "observe" and not steps:
        yield RuleProblem("mode", f"{rule.mode} needs a ladder: there is nothing to do")


def _cordon_refused(rule: Rule, for_s: int, within_s: int) -> Iterator[RuleProblem]:
    if not rule.cordon:
        return
    if rule.of != "gpu":
        yield RuleProblem("cordon", f"takes a GPU out of service, but this rule is about a "
                                    f"{rule.of}: write 'of: gpu'")
    if for_s < LADDER_FOR_S:
        yield RuleProblem("for", f"a rule that cordons holds at least {LADDER_FOR_S}s first")
    if within_s < CORDON_WITHIN_S:
        yield RuleProblem("budget", "a rule that cordons says how many in an hour or longer, such "
                                    "as {acts: 2, within: 1h}")
    if rule.mode == "auto" and not rule.expires:
        yield RuleProblem("expires", "a rule that acts automatically must expire within 180 days, "
                                     "such as 2027-01-31")


def _words_refused(rule: Rule) -> Iterator[RuleProblem]:
    if not rule.title.strip():
        yield RuleProblem("title", "is needed: a few words for alerts and notifications")
    if rule.expires and not _is_day(rule.expires):
        yield RuleProblem("expires", f"{rule.expires[:40]!r} is not a date such as 2027-01-31")
    if rule.id in rule.inhibited_by:
        yield RuleProblem("inhibited_by", "a rule cannot be suppressed by itself")


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _overlap(fire: RuleThreshold, clear: RuleThreshold) -> bool:
    """Return whether both can hold. Limits are single comparisons, so trying both numbers and
    points around them is enough."""
    points = np.array([number + offset for number in (fire.number, clear.number)
                       for offset in (-1e-9 - abs(number) * 1e-9, 0.0, 1e-9 + abs(number) * 1e-9)]
                      + [-1e300, 1e300])
    return bool((fire.holds(points) & clear.holds(points)).any())


BUDGET_MOST_S = 86_400.0  # no budget looks further back
