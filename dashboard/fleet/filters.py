"""The filter language: `util<5 & mem>50% & user:alice`, over a whole fleet at once.

    any   := all (("|" | "or") all)*
    all   := one (("&" | "and" | nothing) one)*
    one   := ("!" | "not") one | "(" any ")" | NAME OP NUMBER [UNIT] | FIELD ":" WORD | WORD

Three-valued: what compares a value that is not there is neither true nor false, and never a match,
negated or not.
"""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpudeck.metrics import Metric
from gpudeck.wire import Task

from .filter_columns import FilterError, FilterInput, Mask, TaskGpuPairs, Test, ThreeValuedMask
from .filter_metrics import CODED_OPS, NAMES, NUMBER, SHORT, UNITS, amount, code, compare, short
from .fleet import Fleet, GpuStatus
from .gpu_table import UNKNOWN_OWNER
from .visibility import ALL_READ, CommandLineVisibility

__all__ = ["MAX_LENGTH", "Filter", "FilterError", "Mask", "TaskGpuPairs", "parse"]

MAX_LENGTH = 1_000
MAX_DEPTH = 32
MAX_TERMS = 128
CODED = frozenset(name for name, metric in NAMES.items() if metric.words is not None)

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
        """Of Tasks: `user:` and `task:` mean the Task itself and not its neighbours on the Gpu, so
        that who selects all of alice's has nobody else's among them. All else is of its Gpu."""
        return self.test(FilterInput(fleet, fleet.shown(mono), mono, reads, uses)).yes


# -- words

TOKEN = re.compile(r"""
    \s*(?: (?P<quoted>"[^"]*"|'[^']*')
         | (?P<op><=|>=|!=|==|=|<|>|:)
         | (?P<mark>[()&|!])
         | (?P<word>[^\s()&|!<>=:"']+) )
""", re.VERBOSE)


@dataclass(frozen=True, slots=True)
class FilterToken:
    kind: str
    text: str
    at: int


def tokens(text: str) -> list[FilterToken]:
    found: list[FilterToken] = []
    at = 0
    while at < len(text.rstrip()):
        match = TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            what = "the quote is not closed" if text[at] in "\"'" else f"what is {text[at]!r}?"
            raise FilterError(what, at)
        kind = match.lastgroup or ""
        found.append(_token(kind, match.group(kind), match.start(kind)))
        at = match.end()
    return found


def _token(kind: str, text: str, at: int) -> FilterToken:
    if kind == "quoted":
        return FilterToken("quoted", text[1:-1], at)
    if kind == "mark" or (kind == "word" and text.lower() in MARKS):
        return FilterToken("mark", MARKS.get(text.lower(), text), at)
    return FilterToken(kind, text, at)


MARKS = {"and": "&", "or": "|", "not": "!"}


def parse(text: str) -> Filter | None:
    """None: an empty filter, which matches all."""
    if len(text) > MAX_LENGTH:
        raise FilterError(f"a filter has at most {MAX_LENGTH} characters", MAX_LENGTH)
    words = tokens(text)
    if not words:
        return None
    return Filter(text, _FilterParser(words, len(text)).whole())


class _FilterParser:
    def __init__(self, words: list[FilterToken], end: int) -> None:
        self._words = words
        self._end = end
        self._next = 0
        self._terms = 0

    def whole(self) -> Test:
        test = self._any(0)
        left = self._peek()
        if left is not None:
            raise FilterError("this ) closes nothing", left.at)
        return test

    def _peek(self) -> FilterToken | None:
        return self._words[self._next] if self._next < len(self._words) else None

    def _take(self, mark: str) -> bool:
        token = self._peek()
        if token is None or token.kind != "mark" or token.text != mark:
            return False
        self._next += 1
        return True

    def _any(self, depth: int) -> Test:
        test = self._all(depth)
        while self._take("|"):
            test = _either(test, self._all(depth))
        return test

    def _all(self, depth: int) -> Test:
        test = self._one(depth)
        while self._take("&") or self._begins():
            test = _both(test, self._one(depth))
        return test

    def _begins(self) -> bool:
        token = self._peek()
        return token is not None and (token.kind in ("word", "quoted") or token.text in "(!")

    def _one(self, depth: int) -> Test:
        token = self._peek()
        if token is None:
            raise FilterError("something is missing at the end", self._end)
        if depth >= MAX_DEPTH:
            raise FilterError(f"more than {MAX_DEPTH} levels deep", token.at)
        if self._take("!"):
            return _negated(self._one(depth + 1))
        if self._take("("):
            test = self._any(depth + 1)
            if not self._take(")"):
                raise FilterError("this ( is not closed", token.at)
            return test
        if token.kind not in ("word", "quoted"):
            raise FilterError(f"a condition is expected before {token.text!r}", token.at)
        return self._term(token)

    def _term(self, name: FilterToken) -> Test:
        self._next += 1
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise FilterError(f"more than {MAX_TERMS} conditions", name.at)
        op = self._peek()
        if op is None or op.kind != "op" or name.kind == "quoted":
            return _bare(name.text)
        self._next += 1
        value = self._peek()
        if value is None or value.kind not in ("word", "quoted"):
            raise FilterError(f"a value is missing after {op.text!r}", op.at + len(op.text))
        self._next += 1
        is_coded = name.text.lower() in CODED
        if op.text == ":" and not is_coded:
            return _field(name, value)
        return _spread(self._comparison(name, op, value))

    def _comparison(self, name: FilterToken, op: FilterToken, value: FilterToken) -> Test:
        metric = NAMES.get(name.text.lower())
        if metric is None:
            raise FilterError(_unknown(name.text, NAMES, FIELDS, "metric"), name.at)
        if metric.words is not None and not NUMBER.fullmatch(value.text):
            return _coded(metric, op, value)
        unit = self._peek()
        joined = value.text
        if unit is not None and unit.kind == "word" and unit.text.lower() in UNITS:
            joined += unit.text
            self._next += 1
        return compare(metric, op.text, *amount(metric, joined, value.at))


def _coded(metric: Metric, op: FilterToken, value: FilterToken) -> Test:
    if op.text not in CODED_OPS:
        raise FilterError(f"{short(metric)} is a word or a code: compare it with = or !=", op.at)
    return compare(metric, op.text, code(metric, value.text, value.at), False)


def _both(left: Test, right: Test) -> Test:
    return lambda scene: left(scene) & right(scene)


def _either(left: Test, right: Test) -> Test:
    return lambda scene: left(scene) | right(scene)


def _negated(test: Test) -> Test:
    return lambda scene: ~test(scene)


def _spread(test: Test) -> Test:
    """What is so of a Gpu is so for each Task on it."""
    def spread(scene: FilterInput) -> ThreeValuedMask:
        truth = test(scene)
        if scene.uses is None:
            return truth
        return ThreeValuedMask(truth.yes[scene.uses.slots], truth.no[scene.uses.slots])

    return spread


def _unknown(word: str, wanted: dict[str, Metric], other: dict[str, "FieldTest"], what: str) -> str:
    near = difflib.get_close_matches(word.lower(), [*wanted, *other], n=1, cutoff=0.6)
    if word.lower() in other:
        return f"{word!r} is compared with a colon: {word}:…"
    if word.lower() in wanted:
        return f"{word!r} is compared with < or >: {word}>…"
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(SHORT))}"
    return f"there is no {what} {word!r}; {hint}"


# -- words about a Gpu

FieldTest = Callable[[FilterInput, str], ThreeValuedMask]


def _certain(yes: Mask) -> ThreeValuedMask:
    return ThreeValuedMask(yes, ~yes)


def _by_node(scene: FilterInput, word: str) -> ThreeValuedMask:
    nodes = scene.fleet.nodes
    hits = [word in node_id.lower() or word in nodes[node_id].hello.host.lower()
            for node_id in scene.fleet.node_ids]
    return _certain(np.array(hits, bool)[scene.fleet.node_at[: len(scene.fleet)]])


def _by_model(scene: FilterInput, word: str) -> ThreeValuedMask:
    hits = np.array([word in model.lower() for model in scene.fleet.models], bool)
    return _certain(hits[scene.fleet.model_at[: len(scene.fleet)]])


def _by_user(scene: FilterInput, word: str, exact: bool = True) -> ThreeValuedMask:
    wanted = {number for number, name in enumerate(scene.fleet.owners)
              if (name.lower() == word if exact else word in name.lower())}
    users = scene.fleet.users
    size = len(users)
    known = np.fromiter((on_gpu is not None and UNKNOWN_OWNER not in on_gpu for on_gpu in users),
                        bool, size)
    hit = np.fromiter((on_gpu is not None and not wanted.isdisjoint(on_gpu) for on_gpu in users),
                      bool, size)
    return ThreeValuedMask(hit, known & ~hit)


def _by_gpu(scene: FilterInput, word: str) -> ThreeValuedMask:
    size = len(scene.fleet)
    if word.isascii() and word.isdigit() and len(word) < 6:
        return _certain(scene.fleet.index[:size] == int(word))
    if re.fullmatch(r"\d+(/\d+){1,2}", word):
        return _certain(np.fromiter((facts.place == word for facts in scene.fleet.facts), bool,
                                    size))
    return _certain(np.fromiter(
        (uuid.lower().startswith((word, "gpu-" + word, "mig-" + word))
         for uuid in scene.fleet.uuids), bool, size))


def _by_task(scene: FilterInput, word: str) -> ThreeValuedMask:
    """In a task's command, or its whole id."""
    size = len(scene.fleet)
    hit = np.zeros(size, bool)
    known = np.fromiter((on_gpu is not None for on_gpu in scene.fleet.users), bool, size)
    for node in scene.fleet.nodes.values():
        if node.listing is None:
            continue
        for use in node.uses:
            task = node.tasks.get(use.task_id)
            slot = node.listing.order[use.gpu]
            if use.task_id.lower() == word or (task is not None and _has(scene, task, word)):
                hit[slot] = True
            elif task is None or task.command is None or not scene.reads.has_whole(task):
                known[slot] = False
    return ThreeValuedMask(hit, known & ~hit)


def _has(scene: FilterInput, task: Task, word: str) -> bool:
    """In as much of the command as the asker may read; of the rest nothing is known."""
    return word in (scene.reads.command(task) or "").lower()


def _by_state(scene: FilterInput, word: str) -> ThreeValuedMask:
    if word in ("free", "busy"):
        return _by_use(scene, word)
    return _certain(scene.show == STATES[word])


def _by_use(scene: FilterInput, word: str) -> ThreeValuedMask:
    """Free: works, and nobody is on it. Of a Gpu that does not answer neither is known; a board
    that is split by MIG is neither, its instances are."""
    fleet, size = scene.fleet, len(scene.fleet)
    told = np.fromiter((on_gpu is not None for on_gpu in fleet.users), bool, size)
    known = told & (scene.show == GpuStatus.OK) & ~fleet.is_split()
    free = known & (fleet.task_count[:size] == 0)
    truth = ThreeValuedMask(free, known & ~free)
    return truth if word == "free" else ~truth


STATES = {"ok": GpuStatus.OK, "stale": GpuStatus.STALE, "lost": GpuStatus.LOST,
          "offline": GpuStatus.OFFLINE}
STATE_WORDS = (*STATES, "free", "busy")
FIELDS: dict[str, FieldTest] = {
    "node": _by_node, "model": _by_model, "user": _by_user, "gpu": _by_gpu, "task": _by_task,
    "state": _by_state,
}


def _field(name: FilterToken, value: FilterToken) -> Test:
    field = name.text.lower()
    word = value.text.lower()
    if field not in FIELDS:
        raise FilterError(_unknown(name.text, {}, FIELDS, "field") if field not in NAMES else
                          f"{name.text!r} is compared with < or >: {name.text}>…", name.at)
    if field == "state" and word not in STATE_WORDS:
        near = difflib.get_close_matches(word, STATE_WORDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(STATE_WORDS)}"
        raise FilterError(f"there is no state {value.text!r}; {hint}", value.at)
    of_gpu, of_task = FIELDS[field], TASK_FIELDS.get(field)
    spread = _spread(lambda scene: of_gpu(scene, word))
    if of_task is None:
        return spread
    return lambda scene: spread(scene) if scene.uses is None else of_task(scene, scene.uses, word)


# -- words about a Task

def _task_by_user(_scene: FilterInput, uses: TaskGpuPairs, word: str,
                  exact: bool = True) -> ThreeValuedMask:
    names = [None if task.user is None else task.user.lower() for task in uses.tasks]
    hit = np.array([name is not None and (name == word if exact else word in name)
                    for name in names], bool)
    return ThreeValuedMask(hit, np.array([name is not None for name in names], bool) & ~hit)


def _task_by_words(scene: FilterInput, uses: TaskGpuPairs, word: str) -> ThreeValuedMask:
    hit = np.array([task.id.lower() == word or _has(scene, task, word) for task in uses.tasks],
                   bool)
    known = np.array([task.command is not None and scene.reads.has_whole(task)
                      for task in uses.tasks], bool)
    return ThreeValuedMask(hit, known & ~hit)


TASK_FIELDS: dict[str, Callable[[FilterInput, TaskGpuPairs, str], ThreeValuedMask]] = {
    "user": _task_by_user, "task": _task_by_words}


def _bare(text: str) -> Test:
    """A word alone: in the node's name, the model, a user's name, or the UUID."""
    word = text.lower()

    def of_gpu(scene: FilterInput) -> ThreeValuedMask:
        in_uuid = _certain(np.fromiter((word in uuid.lower() for uuid in scene.fleet.uuids), bool,
                                       len(scene.fleet)))
        return _by_node(scene, word) | _by_model(scene, word) | in_uuid

    place = _spread(of_gpu)

    def test(scene: FilterInput) -> ThreeValuedMask:
        if scene.uses is None:
            return place(scene) | _by_user(scene, word, exact=False)
        return (place(scene) | _task_by_user(scene, scene.uses, word, exact=False)
                | _task_by_words(scene, scene.uses, word))

    return test
