"""The filter language: `util<5 & mem>50% & user:alice`, over a whole fleet at once.

    any   := all (("|" | "or") all)*
    all   := one (("&" | "and" | nothing) one)*
    one   := ("!" | "not") one | "(" any ")" | NAME OP NUMBER [UNIT] | FIELD ":" WORD | WORD

Three-valued: what compares a value that is not there is neither true nor false, and never a match,
negated or not.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from gpudeck.metrics import Absence, Metric
from gpudeck.wire import Task

from ..runtime.expressions import ExpressionParser, Token
from . import filter_metrics as metrics
from .colour_scales import HARMFUL_THROTTLE
from .filter_metrics import FilterError, FilterInput, Mask, TaskGpuPairs, Test, ThreeValuedMask
from .fleet import Fleet, GpuStatus
from .gpu_table import UNKNOWN_OWNER
from .visibility import ALL_READ, CommandLineVisibility
from .wasted_gpus import wasted

__all__ = ["MAX_LENGTH", "Filter", "FilterError", "Mask", "TaskGpuPairs", "parse"]

MAX_LENGTH = 1_000
MAX_DEPTH = 32
MAX_TERMS = 128
CODED = frozenset(name for name, metric in metrics.NAMES.items() if metric.words is not None)

@dataclass(frozen=True, slots=True)
class Filter:
    text: str
    test: Test

    def matches(self, fleet: Fleet, mono: float, reads: CommandLineVisibility = ALL_READ) -> Mask:
        """Over the whole fleet. A filter is a question, so it must not answer more than its asker
        may read."""
        return self.test(FilterInput(fleet, fleet.shown(mono), mono, reads)).yes

    def matches_uses(self, fleet: Fleet, mono: float, uses: TaskGpuPairs,
                     reads: CommandLineVisibility = ALL_READ) -> Mask:
        """Of Tasks: `user:` and `task:` mean the Task itself and not its neighbours on the GPU, so
        that who selects all of alice's has nobody else's among them. All else is of its GPU."""
        return self.test(FilterInput(fleet, fleet.shown(mono), mono, reads, uses)).yes


# -- words

TOKEN = re.compile(r"""
    \s*(?: (?P<quoted>"[^"]*"|'[^']*')
         | (?P<open>["'])
         | (?P<op><=|>=|!=|==|=|<|>|:)
         | (?P<mark>[()&|!])
         | (?P<word>[^\s()&|!<>=:"']+) )
""", re.VERBOSE)
MARKS = {"and": "&", "or": "|", "not": "!"}


def parse(text: str) -> Filter | None:
    """None: an empty filter, which matches all."""
    if len(text) > MAX_LENGTH:
        raise FilterError(f"a filter has at most {MAX_LENGTH} characters", MAX_LENGTH)
    parser = FilterParser(text)
    return Filter(text, parser.whole()) if parser.tokens else None


class FilterParser(ExpressionParser[Test]):
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
        """Two conditions side by side are both meant."""
        return super().operator(level) or ("&" if level == 1 and self._begins() else None)

    def _begins(self) -> bool:
        token = self.peek()
        return token is not None and (token.kind in ("word", "quoted") or token.text in "(!")

    def combined(self, mark: str, left: Test, right: Test, at: int) -> Test:
        if mark == "|":
            return lambda data: left(data) | right(data)
        return lambda data: left(data) & right(data)

    def term(self, token: Token, depth: int) -> Test:
        if self.take("!"):
            negated = self.one(depth + 1)
            return lambda data: ~negated(data)
        if token.kind not in ("word", "quoted"):
            raise FilterError(f"a condition is expected before {token.text!r}", token.at)
        return self._condition(token)

    def _condition(self, name: Token) -> Test:
        self.skip()
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise FilterError(f"more than {MAX_TERMS} conditions", name.at)
        op = self.peek()
        if op is None or op.kind != "op" or name.kind == "quoted":
            return _bare(name.text)
        self.skip()
        value = self.peek()
        if value is None or value.kind not in ("word", "quoted"):
            raise FilterError(f"a value is missing after {op.text!r}", op.at + len(op.text))
        self.skip()
        is_coded = name.text.lower() in CODED
        if op.text == ":" and not is_coded:
            return _field(name, value)
        return _spread(self._comparison(name, op, value))

    def _comparison(self, name: Token, op: Token, value: Token) -> Test:
        metric = metrics.NAMES.get(name.text.lower())
        if metric is None:
            raise FilterError(_unknown(name.text, metrics.NAMES, FIELDS, "metric"), name.at)
        if metric.words is not None and not metrics.NUMBER.fullmatch(value.text):
            return _coded(metric, op, value)
        unit = self.peek()
        joined = value.text
        if unit is not None and unit.kind == "word" and unit.text.lower() in metrics.UNITS:
            joined += unit.text
            self.skip()
        return metrics.compare(metric, op.text, *metrics.amount(metric, joined, value.at))


def _coded(metric: Metric, op: Token, value: Token) -> Test:
    if op.text not in metrics.CODED_OPS:
        raise FilterError(
            f"{metrics.short(metric)} is a word or a code: compare it with = or !=", op.at)
    return metrics.compare(metric, op.text, metrics.code(metric, value.text, value.at), False)


def _spread(test: Test) -> Test:
    """What is so of a GPU is so for each Task on it."""
    def spread(data: FilterInput) -> ThreeValuedMask:
        truth = test(data)
        if data.uses is None:
            return truth
        return ThreeValuedMask(truth.yes[data.uses.slots], truth.no[data.uses.slots])

    return spread


def _unknown(word: str, wanted: dict[str, Metric], other: dict[str, "FieldTest"], what: str) -> str:
    near = difflib.get_close_matches(word.lower(), [*wanted, *other], n=1, cutoff=0.6)
    if word.lower() in other:
        return f"{word!r} is compared with a colon: {word}:…"
    if word.lower() in wanted:
        return f"{word!r} is compared with < or >: {word}>…"
    known = ", ".join(sorted(metrics.SHORT))
    hint = f"did you mean {near[0]!r}?" if near else f"known: {known}"
    return f"there is no {what} {word!r}; {hint}"


# -- words about a GPU

FieldTest = Callable[[FilterInput, str], ThreeValuedMask]


def _certain(yes: Mask) -> ThreeValuedMask:
    return ThreeValuedMask(yes, ~yes)


def _by_node(data: FilterInput, word: str) -> ThreeValuedMask:
    nodes = data.fleet.nodes
    hits = _mask(word in node_id.lower() or word in nodes[node_id].hello.host.lower()
                 for node_id in data.fleet.node_ids)
    return _certain(hits[data.fleet.node_at[: len(data.fleet)]])


def _by_model(data: FilterInput, word: str) -> ThreeValuedMask:
    hits = _mask(word in model.lower() for model in data.fleet.models)
    return _certain(hits[data.fleet.model_at[: len(data.fleet)]])


def _mask(hits: Iterable[bool]) -> Mask:
    return np.array([*hits], bool)


def _known(hit: Mask, known: Mask) -> ThreeValuedMask:
    return ThreeValuedMask(hit, known & ~hit)


def _by_user(data: FilterInput, word: str, exact: bool = True) -> ThreeValuedMask:
    wanted = {number for number, name in enumerate(data.fleet.owners)
              if _is_user(name, word, exact)}
    users = data.fleet.users
    return _known(_mask(on_gpu is not None and not wanted.isdisjoint(on_gpu) for on_gpu in users),
                  _mask(on_gpu is not None and UNKNOWN_OWNER not in on_gpu for on_gpu in users))


def _is_user(name: str, word: str, exact: bool) -> bool:
    return name.lower() == word if exact else word in name.lower()


def _by_gpu(data: FilterInput, word: str) -> ThreeValuedMask:
    if word.isascii() and word.isdigit() and len(word) < 6:
        return _certain(data.fleet.index[:len(data.fleet)] == int(word))
    if re.fullmatch(r"\d+(/\d+){1,2}", word):
        return _certain(_mask(facts.place == word for facts in data.fleet.facts))
    return _certain(_mask(uuid.lower().startswith((word, "gpu-" + word, "mig-" + word))
                          for uuid in data.fleet.uuids))


def _by_task(data: FilterInput, word: str) -> ThreeValuedMask:
    """In a task's command, or its whole id."""
    hit = np.zeros(len(data.fleet), bool)
    known = _mask(on_gpu is not None for on_gpu in data.fleet.users)
    for node in data.fleet.nodes.values():
        if node.listing is None:
            continue
        for use in node.uses:
            task = node.tasks.get(use.task_id)
            slot = node.listing.order[use.gpu]
            if use.task_id.lower() == word or (task is not None and _has(data, task, word)):
                hit[slot] = True
            elif task is None or task.command is None or not data.reads.of_user(task.user):
                known[slot] = False
    return _known(hit, known)


def _has(data: FilterInput, task: Task, word: str) -> bool:
    """In as much of the command as the asker may read; of the rest nothing is known."""
    return word in (data.reads.line(task.user, task.command) or "").lower()


def _by_state(data: FilterInput, word: str) -> ThreeValuedMask:
    if word in ("free", "busy"):
        return _by_use(data, word)
    if word in MARKED:
        return _certain(MARKED[word](data))
    return _certain(data.show == STATES[word])


def _by_use(data: FilterInput, word: str) -> ThreeValuedMask:
    """Free: works, and nobody is on it or holds it. Busy: works, and somebody is. Of a GPU that
    does not answer neither is known; a board that is split by MIG is neither, its instances are."""
    fleet, size = data.fleet, len(data.fleet)
    told = _mask(on_gpu is not None for on_gpu in fleet.users)
    known = told & (data.show == GpuStatus.OK) & ~fleet.is_split()
    return _known(known & (fleet.free() if word == "free" else fleet.task_count[:size] > 0), known)


def _throttled(data: FilterInput) -> Mask:
    bits = data.fleet.column("throttle_bits", data.mono)
    harmful = np.nan_to_num(bits.values).astype(np.int64) & HARMFUL_THROTTLE
    found: Mask = (data.show == GpuStatus.OK) & (bits.absent == Absence.PRESENT) & (harmful != 0)
    return found


# As the Fleet page counts and marks them.
MARKED: dict[str, Callable[[FilterInput], Mask]] = {
    "wasted": lambda data: wasted(data.fleet, data.show, data.mono),
    "paused": lambda data: (data.show == GpuStatus.OK) & data.fleet.is_paused[:len(data.fleet)],
    "throttled": _throttled,
}
STATES = {status.name.lower(): status for status in GpuStatus if status != GpuStatus.RETIRED}
STATE_WORDS = (*STATES, "free", "busy", *MARKED)
FIELDS: dict[str, FieldTest] = {
    "node": _by_node, "model": _by_model, "user": _by_user, "gpu": _by_gpu, "task": _by_task,
    "state": _by_state,
}


def _field(name: Token, value: Token) -> Test:
    field = name.text.lower()
    word = value.text.lower()
    if field not in FIELDS:
        raise FilterError(f"{name.text!r} is compared with < or >: {name.text}>…"
                          if field in metrics.NAMES else
                          _unknown(name.text, {}, FIELDS, "field"), name.at)
    if field == "state" and word not in STATE_WORDS:
        near = difflib.get_close_matches(word, STATE_WORDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(STATE_WORDS)}"
        raise FilterError(f"there is no state {value.text!r}; {hint}", value.at)
    of_gpu, of_task = FIELDS[field], TASK_FIELDS.get(field)
    spread = _spread(lambda data: of_gpu(data, word))
    if of_task is None:
        return spread
    return lambda data: spread(data) if data.uses is None else of_task(data, data.uses, word)


# -- words about a Task

def _task_by_user(_data: FilterInput, uses: TaskGpuPairs, word: str,
                  exact: bool = True) -> ThreeValuedMask:
    names = [task.user for task in uses.tasks]
    return _known(_mask(name is not None and _is_user(name, word, exact) for name in names),
                  _mask(name is not None for name in names))


def _task_by_words(data: FilterInput, uses: TaskGpuPairs, word: str) -> ThreeValuedMask:
    return _known(_mask(task.id.lower() == word or _has(data, task, word) for task in uses.tasks),
                  _mask(task.command is not None and data.reads.of_user(task.user)
                        for task in uses.tasks))


TASK_FIELDS: dict[str, Callable[[FilterInput, TaskGpuPairs, str], ThreeValuedMask]] = {
    "user": _task_by_user, "task": _task_by_words}


def _bare(text: str) -> Test:
    """A word alone: in the node's name, the model, a user's name, or the UUID."""
    word = text.lower()

    def of_gpu(data: FilterInput) -> ThreeValuedMask:
        in_uuid = _certain(_mask(word in uuid.lower() for uuid in data.fleet.uuids))
        return _by_node(data, word) | _by_model(data, word) | in_uuid

    place = _spread(of_gpu)

    def test(data: FilterInput) -> ThreeValuedMask:
        if data.uses is None:
            return place(data) | _by_user(data, word, exact=False)
        return (place(data) | _task_by_user(data, data.uses, word, exact=False)
                | _task_by_words(data, data.uses, word))

    return test
