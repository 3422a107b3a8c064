"""The filter language: `util<5 & mem>50% & user:alice`.

    any   := all (("|" | "or") all)*
    all   := one (("&" | "and" | nothing) one)*
    one   := ("!" | "not") one | "(" any ")" | NAME OP NUMBER [UNIT] | FIELD ":" WORD | WORD

Three-valued: a comparison with a missing value is neither true nor false, and never a match,
negated or not. The hub tests it over a whole fleet at once, a terminal over one machine. Pure.
"""

import difflib
import operator
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gpudeck.language.expressions import ExpressionError, ExpressionParser, Token
from gpudeck.language.sizes import UNITS as SIZE_UNITS
from gpudeck.measures.metrics import COLUMNS, SLOW, Metric

T = TypeVar("T")

MAX_LENGTH = 1_000
MAX_DEPTH = 32
MAX_TERMS = 128
FIELDS = ("node", "model", "user", "gpu", "task", "state", "site")
STATE_WORDS = ("ok", "stale", "lost", "offline", "error", "free", "busy", "wasted", "paused",
               "throttled")


class FilterError(ExpressionError):
    """Error in a filter."""


METRICS = (*COLUMNS, *SLOW)
SHORT = [metric.filter_name or metric.key for metric in COLUMNS] + [
    metric.filter_name for metric in SLOW if metric.filter_name is not None]
NAMES: dict[str, Metric] = {metric.key: metric for metric in METRICS} | {
    metric.filter_name: metric for metric in METRICS if metric.filter_name is not None}

_BYTES = {unit.lower(): float(size) for unit, size in SIZE_UNITS.items()}
FACTORS: dict[str, dict[str, float]] = {
    "%": {},
    "B": _BYTES,
    "B/s": {f"{unit}/s": factor for unit, factor in _BYTES.items()} | _BYTES,
    "°C": {"c": 1.0, "°c": 1.0},
    "W": {"w": 1.0, "kw": 1e3},
    "J": {"j": 1.0, "kj": 1e3, "mj": 1e6, "wh": 3.6e3, "kwh": 3.6e6},
    "MHz": {"mhz": 1.0, "ghz": 1e3},
    "lanes": {"lanes": 1.0},
    "rpm": {"rpm": 1.0},
    "": {},
}
# Allowed after a space too; a single letter would be a word there.
UNITS = {"%"} | {unit for factors in FACTORS.values() for unit in factors
                 if len(unit) > 1 or unit not in _BYTES}
NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)(.*)", re.IGNORECASE)

# Without a unit, memory is in percent of the board, as pages show it.
PERCENT_BY_DEFAULT = {"mem_used_bytes"}

# Operators that a coded metric allows.
CODED_OPS = ("=", "==", "!=", ":")


def amount(metric: Metric, text: str, at: int) -> tuple[float, bool]:
    """Return the number in the metric's own unit, or as a share of its full value."""
    match = NUMBER.fullmatch(text)
    if match is None:
        raise FilterError(f"{text!r} is not a number", at)
    number, unit, name = float(match[1]), match[2].lower(), short(metric)
    if unit == "%" and metric.unit != "%":
        if metric.full is None and metric.full_fact is None:
            raise FilterError(f"{name} has no full value to take a percentage of", at)
        return number / 100, True
    if unit in ("", "%"):
        is_share = metric.key in PERCENT_BY_DEFAULT
        return (number / 100 if is_share else number), is_share
    factors = FACTORS[metric.unit]
    if unit not in factors:
        units = ", ".join(factors) or "no unit"
        raise FilterError(f"{name} is not measured in {match[2]!r}; {units} or % fits",
                          at + match.start(2))
    return number * factors[unit], False


def short(metric: Metric) -> str:
    return metric.filter_name or metric.key


def code(metric: Metric, text: str, at: int) -> float:
    """Return the number behind a word of a coded metric: all of it, the part before its colon, or a
    beginning that only one of them has."""
    assert metric.words is not None
    words = {number: word.lower() for number, word in metric.words.items()}
    lowered = text.lower()
    whole = [number for number, word in words.items() if lowered in (word, word.partition(":")[0])]
    prefixed = [number for number, word in words.items() if word.startswith(lowered)]
    for numbers in (whole, prefixed):
        if len(numbers) == 1:
            return float(numbers[0])
    listed = ", ".join(repr(word.partition(":")[0]) for word in words.values())
    near = difflib.get_close_matches(lowered, list(words.values()), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {listed}"
    raise FilterError(f"{short(metric)} is never {text!r}; {hint}", at)


def contains(text: str, word: str) -> bool:
    """Return whether the word is in the text, or with `*` in it matches all of the text. Lower
    case."""
    return _fits(text, word) if "*" in word else word in text


def equals(text: str, word: str) -> bool:
    """Return whether the word is the text; `*` is anything. Lower case."""
    return _fits(text, word) if "*" in word else word == text


def _fits(text: str, pattern: str) -> bool:
    """Match in one pass, whatever the pattern."""
    first, *middle, last = pattern.split("*")
    at, end = len(first), len(text) - len(last)
    if end < at or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        place = text.find(part, at, end)
        if place < 0:
            return False
        at = place + len(part)
    return True


OPERATIONS: dict[str, Callable[[Any, float], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "=": operator.eq, "==": operator.eq, ":": operator.eq, "!=": operator.ne,
}


CODED = frozenset(name for name, metric in NAMES.items() if metric.words is not None)
TOKEN = re.compile(r"""
    \s*(?: (?P<quoted>"[^"]*"|'[^']*')
         | (?P<open>["'])
         | (?P<op><=|>=|!=|==|=|<|>|:)
         | (?P<mark>[()&|!])
         | (?P<word>[^\s()&|!<>=:"']+) )
""", re.VERBOSE)
MARKS = {"and": "&", "or": "|", "not": "!"}


class FilterParser(ExpressionParser[T]):
    """Parser of filters; a subclass says how a condition is tested."""

    PATTERN, LEVELS, MAX_DEPTH, ERROR = TOKEN, ("|", "&"), MAX_DEPTH, FilterError
    _terms = 0

    def token(self, kind: str, text: str, at: int) -> Token:
        match kind:
            case "open":
                raise FilterError("the quote is not closed", at)
            case "quoted":
                return Token("quoted", text[1:-1], at)
            case "word" if text.lower() in MARKS:
                return Token("mark", MARKS[text.lower()], at)
        return Token(kind, text, at)

    def unclosed(self, opened: Token) -> FilterError:
        return FilterError("this ( is not closed", opened.at)

    def left_over(self, token: Token) -> FilterError:
        return FilterError("this ) closes nothing", token.at)

    def operator(self, level: int) -> str | None:
        """Return the operator here; two conditions side by side must both be met."""
        return super().operator(level) or ("&" if level == 1 and self._begins() else None)

    def _begins(self) -> bool:
        token = self.peek()
        return token is not None and (token.kind in ("word", "quoted") or token.text in "(!")

    # -- tests

    @abstractmethod
    def inverted(self, test: T) -> T: ...

    @abstractmethod
    def compared(self, metric: Metric, op: str, number: float, is_share: bool) -> T: ...

    @abstractmethod
    def field(self, name: str, word: str) -> T:
        """Test a field. `name`: of FIELDS. `word`: in lower case, `*` in it is anything; of a
        state, one of STATE_WORDS."""

    @abstractmethod
    def bare(self, text: str) -> T:
        """Test a word alone: in the node's name, the model, a user's name, or the UUID."""

    # -- grammar

    def term(self, token: Token, depth: int) -> T:
        if self.take("!"):
            return self.inverted(self.one(depth + 1))
        if token.kind not in ("word", "quoted"):
            raise FilterError(f"a condition is expected before {token.text!r}", token.at)
        return self._condition(token)

    def _condition(self, name: Token) -> T:
        self.skip()
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise FilterError(f"more than {MAX_TERMS} conditions", name.at)
        op = self.peek()
        if op is None or op.kind != "op" or name.kind == "quoted":
            return self.bare(name.text)
        self.skip()
        value = self.peek()
        if value is None or value.kind not in ("word", "quoted"):
            raise FilterError(f"a value is missing after {op.text!r}", op.at + len(op.text))
        self.skip()
        is_coded = name.text.lower() in CODED
        if op.text == ":" and not is_coded:
            return self._field(name, value)
        return self._comparison(name, op, value)

    def _comparison(self, name: Token, op: Token, value: Token) -> T:
        metric = NAMES.get(name.text.lower())
        if metric is None:
            raise FilterError(_unknown(name.text, NAMES, FIELDS, "metric"), name.at)
        if metric.words is not None and not NUMBER.fullmatch(value.text):
            return self._coded(metric, op, value)
        unit = self.peek()
        quantity = value.text
        if unit is not None and unit.kind == "word" and unit.text.lower() in UNITS:
            quantity += unit.text
            self.skip()
        return self.compared(metric, op.text, *amount(metric, quantity, value.at))

    def _coded(self, metric: Metric, op: Token, value: Token) -> T:
        if op.text not in CODED_OPS:
            raise FilterError(
                f"{short(metric)} is a word or a code: compare it with = or !=", op.at)
        return self.compared(metric, op.text, code(metric, value.text, value.at), False)

    def _field(self, name: Token, value: Token) -> T:
        field, word = name.text.lower(), value.text.lower()
        if field not in FIELDS:
            raise FilterError(f"{name.text!r} is compared with < or >: {name.text}>…"
                              if field in NAMES else _unknown(name.text, (), FIELDS, "field"),
                              name.at)
        if field == "state" and word not in STATE_WORDS:
            near = difflib.get_close_matches(word, STATE_WORDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(STATE_WORDS)}"
            raise FilterError(f"there is no state {value.text!r}; {hint}", value.at)
        return self.field(field, word)


def _unknown(word: str, metrics: Iterable[str], other: Iterable[str], what: str) -> str:
    near = difflib.get_close_matches(word.lower(), [*metrics, *other], n=1, cutoff=0.6)
    if word.lower() in other:
        return f"{word!r} is compared with a colon: {word}:…"
    if word.lower() in metrics:
        return f"{word!r} is compared with < or >: {word}>…"
    names = ", ".join(sorted(SHORT))
    hint = f"did you mean {near[0]!r}?" if near else f"known: {names}"
    return f"there is no {what} {word!r}; {hint}"
