"""Signals of rules: a small fixed grammar over numbers that come once a second.

    signal := part (("+" | "-") part)*
    part   := one (("*" | "/") one)*
    one    := NUMBER | NAME | HOW "(" NAME "," SPAN ")" | "(" signal ")"
              | "time_until" "(" NAME "," SHARE ")"
    HOW    := avg | min | max | rate | increase | growth | anomaly
    SPAN   := 30s | 5m | 2h | 1d        SHARE := 95%

and their limits: `>= 85`, `< 5%`, `> 1GiB`, `> 10/h`. Nothing is evaluated as code. A missing
number makes the whole signal missing.
"""

import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpudeck.language import times
from gpudeck.language.expressions import ExpressionError, ExpressionParser, Token
from gpudeck.language.filters import FACTORS, OPERATIONS

from ...insight.core.growth import SPAN_S, seconds_until

Floats = npt.NDArray[np.float64]
How = Literal["last", "avg", "min", "max", "rate", "increase", "growth", "anomaly"]
End = Literal["min", "mean", "max"]
FUNCTIONS: tuple[How, ...] = ("avg", "min", "max", "rate", "increase", "growth", "anomaly")
MINUTE_FUNCTIONS: frozenset[How] = frozenset(("growth", "anomaly"))  # they compare closed minutes
MINUTES_SPAN_LEAST_S = 720  # a minute in each block
TIME_UNTIL = "time_until"

MEMORY = "mem_used_bytes"
MAX_LENGTH = 400
MAX_TERMS = 8
MAX_DEPTH = 8
SPAN_MOST_S = 86_400
PER = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

TOKEN = re.compile(r"\s*(?:(?P<span>\d+(?:s|min|m|h|d)\b)|(?P<share>\d+\.?\d*\s*%)"
                   r"|(?P<number>\d+\.?\d*|\.\d+)"
                   r"|(?P<name>[a-z][a-z0-9_]*)|(?P<mark>[-+*/(),]))", re.IGNORECASE)
LIMIT = re.compile(r"\s*(?P<op><=|>=|<|>|==|=|!=)\s*(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))\s*"
                   r"(?P<unit>[a-z°%/]*)\s*", re.IGNORECASE)
# Units in which a limit may be written, by the unit of the value it limits; "" also for a share.
UNITS: dict[str, dict[str, float]] = FACTORS | {
    "": {"%": 0.01}, "%": {"%": 1.0}, "s": times.SPANS_S}


class RuleSyntaxError(ExpressionError):
    """Something that a rule may not say."""


@dataclass(frozen=True, slots=True)
class SignalTerm:
    """One number of a target, read over a span of time."""

    how: How
    name: str
    span_s: int = 0

    def __str__(self) -> str:
        return self.name if self.how == "last" else f"{self.how}({self.name}, {self.span_s}s)"


def end_of(how: How) -> End:
    """Return which of the three numbers of a closed minute a function reads."""
    return "min" if how == "min" else "max" if how in ("max", "rate", "increase") else "mean"


Look = Callable[[SignalTerm], Floats]  # NaN: not there
Compute = Callable[[Look], Floats]


@dataclass(frozen=True, slots=True)
class SignalExpression:
    """What a piece of a signal computes, and its unit; None: a unit without a name."""

    compute: Compute
    unit: str | None


@dataclass(frozen=True, slots=True)
class RuleSignal:
    text: str
    terms: tuple[SignalTerm, ...]
    part: SignalExpression

    def values(self, look: Look) -> Floats:
        """Return the values; NaN where a number is missing, or where it divides by zero."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            values = self.part.compute(look)
        return np.where(np.isfinite(values), values, np.nan)

    @property
    def span_s(self) -> int:
        return max((term.span_s for term in self.terms), default=0)

    @property
    def memory_s(self) -> int | None:
        """Return for how long a change is seen where a number is compared with its own highest or
        lowest of a span; None: the signal compares none."""
        now = {term.name for term in self.terms if term.how == "last"}
        return max((term.span_s for term in self.terms
                    if term.how in ("min", "max") and term.name in now), default=None)


@dataclass(frozen=True, slots=True)
class RuleThreshold:
    op: str
    number: float
    text: str

    def holds(self, values: Floats) -> npt.NDArray[np.bool_]:
        """Compare the values with the limit; False where a value is missing."""
        holds = np.asarray(OPERATIONS[self.op](values, self.number), bool)
        return holds & ~np.isnan(values) if self.op == "!=" else holds


def parse_limit(text: str, unit: str | None) -> RuleThreshold:
    """Read a limit. `unit`: that of the value it limits."""
    match = LIMIT.fullmatch(text)
    if match is None:
        example = "such as '>= 85', '< 5%' or '> 10/h'"
        raise RuleSyntaxError(f"{text!r} is not a comparison, {example}" if text.strip()
                              else f"enter a comparison, {example}")
    number = float(match["number"]) * _factor(match["unit"].lower(), unit, match.start("unit"))
    if not math.isfinite(number):
        raise RuleSyntaxError(f"{match['number']} is too large", match.start("number"))
    return RuleThreshold({"==": "="}.get(match["op"], match["op"]), number, " ".join(text.split()))


def _factor(symbol: str, unit: str | None, at: int) -> float:
    if not symbol:
        return 1.0
    base, _, per = symbol.rpartition("/")
    if unit is not None and unit.endswith("/s"):  # a rate
        factors = {"": 1.0} | UNITS[unit[:-2]]
        if "/" in symbol and per in PER and base in factors:
            return factors[base] / PER[per]
    if unit is not None and unit.endswith("/s") and unit not in UNITS:
        raise RuleSyntaxError("this is a rate: write it as for example '> 10/h', not in "
                              f"{symbol!r}", at)
    factors = UNITS.get(unit or "", {}) if unit is not None else {}
    if symbol not in factors:
        fits = ", ".join(sorted(factors)) or "a plain number"
        raise RuleSyntaxError(f"the compared value is not measured in {symbol!r}; {fits} fits", at)
    return factors[symbol]


def parse_span(text: str) -> int:
    """Read a span in whole seconds."""
    try:
        span_s = times.parse_span(text)
    except ValueError as error:
        raise RuleSyntaxError(str(error)) from None
    if not span_s.is_integer():
        raise RuleSyntaxError(f"{text[:40]!r} is not a number of whole seconds")
    return int(span_s)


def parse(text: str, names: Mapping[str, str]) -> RuleSignal:
    """Read a signal. `names`: the numbers that a target of this kind has, with their units."""
    if len(text) > MAX_LENGTH:
        raise RuleSyntaxError(f"a signal has at most {MAX_LENGTH} characters", MAX_LENGTH)
    parser = SignalParser(text, names)
    part = parser.whole()
    if not parser.terms:
        raise RuleSyntaxError("this is a constant: a signal needs something that is measured")
    return RuleSignal(" ".join(text.split()), tuple(dict.fromkeys(parser.terms)), part)


class SignalParser(ExpressionParser[SignalExpression]):
    PATTERN, LEVELS, MAX_DEPTH, ERROR = TOKEN, ("+-", "*/"), MAX_DEPTH, RuleSyntaxError

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        super().__init__(text)
        self._names = names
        self.terms: list[SignalTerm] = []

    def token(self, kind: str, text: str, at: int) -> Token:
        return Token(kind, text.lower(), at)

    def unclosed(self, opened: Token) -> RuleSyntaxError:
        return self._missing(")")

    def left_over(self, token: Token) -> RuleSyntaxError:
        return RuleSyntaxError(f"{token.text!r} is not expected here", token.at)

    def _missing(self, mark: str) -> RuleSyntaxError:
        return RuleSyntaxError(f"{mark!r} is missing", self.at())

    def _expect(self, mark: str) -> None:
        if self.take(mark) is None:
            raise self._missing(mark)

    def combined(self, mark: str, left: SignalExpression, right: SignalExpression, at: int
                 ) -> SignalExpression:
        unit = left.unit
        if mark in "*/":
            unit = _unit_of(mark, left, right)
        elif None not in (left.unit, right.unit) and left.unit != right.unit:
            raise RuleSyntaxError(f"{left.unit or 'a plain number'} and "
                                  f"{right.unit or 'a plain number'} cannot be combined", at)
        combine = COMBINE[mark]
        return SignalExpression(lambda look: combine(left.compute(look), right.compute(look)), unit)

    def term(self, token: Token, depth: int) -> SignalExpression:
        self.skip()
        if token.kind == "number":
            value = np.array(float(token.text))
            return SignalExpression(lambda look: value, None)
        if token.kind != "name":
            raise RuleSyntaxError(f"a name or a number is expected, not {token.text!r}", token.at)
        return self._measured(token)

    def _measured(self, token: Token) -> SignalExpression:
        if len(self.terms) >= MAX_TERMS:
            raise RuleSyntaxError(f"more than {MAX_TERMS} measured numbers", token.at)
        if self.take("(") is None:
            return self._look(SignalTerm("last", self._metric_name(token)))
        if token.text == TIME_UNTIL:
            return self._time_until(token)
        how = next((how for how in FUNCTIONS if how == token.text), None)
        if how is None:
            raise RuleSyntaxError(f"there is no {token.text!r}; known: "
                                  f"{', '.join((*FUNCTIONS, TIME_UNTIL))}", token.at)
        name = self.peek()
        if name is None or name.kind != "name":
            raise RuleSyntaxError(f"{how} of what? Write {how}(util_pct, 5m)",
                                  self.end if name is None else name.at)
        self.skip()
        self._expect(",")
        term = SignalTerm(how, self._metric_name(name), self._span())
        self._expect(")")
        self._refuse(term, name)
        return self._look(term)

    def _refuse(self, term: SignalTerm, name: Token) -> None:
        """Refuse functions that compare blocks of minutes where they have nothing to compare."""
        if term.how == "growth" and self._names[term.name] != "B":
            raise RuleSyntaxError("growth is of memory, such as mem_used_bytes", name.at)
        if term.how in MINUTE_FUNCTIONS and term.span_s < MINUTES_SPAN_LEAST_S:
            raise RuleSyntaxError(f"{term.how} looks back over at least 12m", name.at)

    def _time_until(self, token: Token) -> SignalExpression:
        """Read the time until the memory of its fullest GPU is used up to this share, at the
        growth of the last 48 minutes."""
        name, names = self.peek(), self._names
        if name is None or name.text != MEMORY or MEMORY not in names:
            raise RuleSyntaxError(f"write {TIME_UNTIL}({MEMORY}, 95%), of a gpu, task or job",
                                  token.at)
        self.skip()
        self._expect(",")
        share = self.peek()
        if share is None or share.kind != "share" or not 0 < float(share.text[:-1]) <= 100:
            raise RuleSyntaxError("a share of the board's memory is missing, such as 95%",
                                  self.end if share is None else share.at)
        self.skip()
        self._expect(")")
        limit = float(share.text[:-1]) / 100
        grows = self._look(SignalTerm("growth", MEMORY, SPAN_S)).compute
        used_bytes, *shares = (self._look(SignalTerm("last", number)).compute for number in (
            MEMORY, *(("gpu_mem_share", "mem_share") if "gpu_mem_share" in names
                         else ("mem_total_bytes",))))

        def room(look: Look) -> Floats:
            if len(shares) == 1:
                return limit * shares[0](look) - used_bytes(look)
            return (limit - shares[0](look)) * used_bytes(look) / shares[1](look)

        return SignalExpression(lambda look: seconds_until(room(look), grows(look)), "s")

    def _metric_name(self, token: Token) -> str:
        if token.text in self._names:
            return token.text
        near = difflib.get_close_matches(token.text, list(self._names), n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(self._names))}"
        raise RuleSyntaxError(f"unknown metric {token.text!r}; {hint}", token.at)

    def _span(self) -> int:
        token = self.peek()
        if token is None or token.kind != "span":
            raise RuleSyntaxError("a span of time is missing, such as 5m",
                                  self.end if token is None else token.at)
        self.skip()
        span_s = parse_span(token.text)
        if not 2 <= span_s <= SPAN_MOST_S:
            raise RuleSyntaxError("a span is between 2s and 1d", token.at)
        return span_s

    def _look(self, term: SignalTerm) -> SignalExpression:
        self.terms.append(term)
        unit = self._names[term.name]
        units = {"rate": f"{unit}/s", "growth": f"{unit}/s", "anomaly": ""}
        return SignalExpression(lambda look: look(term), units.get(term.how, unit))


COMBINE: dict[str, Callable[[Floats, Floats], Floats]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def _unit_of(mark: str, left: SignalExpression, right: SignalExpression) -> str | None:
    """Return the unit of a product or a quotient. A constant has none and keeps that of the other
    operand; a value divided by one of the same unit is a share."""
    if mark == "/" and left.unit is not None and left.unit == right.unit:
        return ""
    if right.unit is None:
        return left.unit
    return right.unit if left.unit is None and mark == "*" else None


CONDITION = re.compile(r"(?P<signal>[^<>=!]+)(?P<limit>[<>=!].*)", re.DOTALL)


def parse_condition(text: str, names: Mapping[str, str]) -> tuple[RuleSignal, RuleThreshold]:
    """Read a condition such as `mem_used_bytes >= 1GiB`."""
    match = CONDITION.fullmatch(text)
    if match is None:
        raise RuleSyntaxError(f"{text!r} is not a condition; write for example 'age_s > 2h'")
    signal = parse(match["signal"], names)
    try:
        return signal, parse_limit(match["limit"], signal.part.unit)
    except RuleSyntaxError as error:
        raise RuleSyntaxError(str(error), match.start("limit") + error.at) from None
