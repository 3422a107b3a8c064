"""Filter language, tested over the GPUs and tasks of one machine. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.filters import (
    MAX_LENGTH,
    OPERATIONS,
    FilterError,
    FilterParser,
    contains,
    equals,
)
from gpudeck.measures.metrics import HARMFUL_THROTTLE, Metric

from .model import Item


@dataclass(frozen=True, slots=True)
class FilteredGpu:
    """GPU, all tasks on it, and the one of these that is tested; None: the GPU itself."""

    gpu: Item
    on: Sequence[Item]
    is_split: bool
    task: Item | None = None


Truth = bool | None  # None: not known
Test = Callable[[FilteredGpu], Truth]


def matching(gpus: Sequence[Item], tasks: Sequence[Item], text: str
             ) -> tuple[set[str], list[Item]]:
    """Return UUIDs, and tasks with a GPU that matches. Raises CommandError."""
    if len(text) > MAX_LENGTH:
        raise CommandError(f"a filter has at most {MAX_LENGTH} characters", ExitCode.USAGE)
    try:
        parser = MachineFilterParser(text)
        test = parser.whole() if parser.tokens else _always
    except FilterError as error:
        raise CommandError(f"filter, at {error.at}: {error.sentence}", ExitCode.USAGE) from error
    on: dict[str, list[Item]] = {}
    for task in tasks:
        for use in task["gpus"]:
            on.setdefault(use["uuid"], []).append(task)
    parents = {gpu["facts"].get("parent_uuid") for gpu in gpus}
    rows = {gpu["uuid"]: FilteredGpu(gpu, on.get(gpu["uuid"], []), gpu["uuid"] in parents)
            for gpu in gpus}
    uuids = {uuid for uuid, row in rows.items() if test(row) is True}
    return uuids, [task for task in tasks if any(
        test(FilteredGpu(row.gpu, row.on, row.is_split, task)) is True
        for use in task["gpus"] if (row := rows.get(use["uuid"])) is not None)]


def _always(_: FilteredGpu) -> Truth:
    return True


class MachineFilterParser(FilterParser[Test]):
    """Parser of a filter into tests of one GPU."""

    def combined(self, mark: str, left: Test, right: Test, at: int) -> Test:
        decides = mark == "|"

        def combination(row: FilteredGpu) -> Truth:
            truths = left(row), right(row)
            if decides in truths:
                return decides
            return None if None in truths else not decides

        return combination

    def inverted(self, test: Test) -> Test:
        return lambda row: None if (truth := test(row)) is None else not truth

    def compared(self, metric: Metric, op: str, number: float, is_share: bool) -> Test:
        def test(row: FilteredGpu) -> Truth:
            value = row.gpu["values"].get(metric.key) if row.gpu["state"] == "ok" else None
            if value is not None and is_share:
                full = metric.full or row.gpu["facts"].get(metric.full_fact)
                value = value / full if full else None
            return None if value is None else bool(OPERATIONS[op](value, number))

        return test

    def field(self, name: str, word: str) -> Test:
        return lambda row: _FIELDS[name](row, word)

    def bare(self, text: str) -> Test:
        word = text.lower()

        def test(row: FilteredGpu) -> Truth:
            if _node(row, word) or _model(row, word) or contains(row.gpu["uuid"].lower(), word):
                return True
            tasks = row.on if row.task is None else [row.task]
            users = [task["user"] for task in tasks]
            if any(contains(user.lower(), word) for user in users if user is not None) or (
                    row.task is not None and _task(row, word)):
                return True
            return None if None in users else False

        return test


def _node(row: FilteredGpu, word: str) -> Truth:
    return contains(str(row.gpu.get("host") or row.gpu["node"]).lower(), word)


def _model(row: FilteredGpu, word: str) -> Truth:
    return contains(row.gpu["name"].lower(), word)


def _user(row: FilteredGpu, word: str) -> Truth:
    users = [task["user"] for task in (row.on if row.task is None else [row.task])]
    if any(user is not None and equals(user.lower(), word) for user in users):
        return True
    return None if None in users else False


def _gpu(row: FilteredGpu, word: str) -> Truth:
    if word.isascii() and word.isdigit() and len(word) < 6:
        return bool(row.gpu["index"] == int(word))
    uuid = row.gpu["uuid"].lower()
    if "*" in word:
        return equals(uuid, word) or equals(uuid[4:], word)
    return row.gpu.get("place") == word or uuid.startswith((word, "gpu-" + word, "mig-" + word))


def _task(row: FilteredGpu, word: str) -> Truth:
    tasks = row.on if row.task is None else [row.task]
    if any(equals(task["id"].lower(), word) or contains((task["command"] or "").lower(), word)
           for task in tasks):
        return True
    return None if any(task["command"] is None for task in tasks) else False


def _state(row: FilteredGpu, word: str) -> Truth:
    if word not in ("free", "busy", *_MARKED):
        return bool(row.gpu["state"] == word)
    if row.gpu["state"] != "ok" or row.is_split:
        return None
    if word == "free":
        return bool(row.gpu["is_free"])
    return _MARKED[word](row) if word in _MARKED else bool(row.on)


def _is_throttled(row: FilteredGpu) -> Truth:
    bits = row.gpu["values"].get("throttle_bits")
    return None if bits is None else int(bits) & HARMFUL_THROTTLE != 0


_MARKED: dict[str, Callable[[FilteredGpu], Truth]] = {
    "wasted": lambda row: row.gpu.get("wasted_s") is not None, "throttled": _is_throttled,
    "paused": lambda row: bool(row.on) and all(task["state"] == "paused" for task in row.on)}


_FIELDS: dict[str, Callable[[FilteredGpu, str], Truth]] = {
    "site": lambda _row, _word: None,  # a machine does not know of which site it is
    "node": _node, "model": _model, "user": _user, "gpu": _gpu, "task": _task, "state": _state}
