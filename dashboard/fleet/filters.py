"""The filter language, tested over a whole fleet at once."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from gpudeck.contract.wire import Task
from gpudeck.language.filters import MAX_LENGTH, FilterError, FilterParser, contains, equals
from gpudeck.measures.metrics import HARMFUL_THROTTLE, Absence, Metric

from .available_gpus import available
from .filter_metrics import FilterInput, Mask, TaskGpuPairs, Test, ThreeValuedMask, compare
from .fleet import Fleet, GpuStatus
from .gpu_table import SEVERAL, UNKNOWN_OWNER
from .visibility import ALL_READ, CommandLineVisibility
from .wasted_gpus import wasted

__all__ = ["MAX_LENGTH", "Filter", "FilterError", "Mask", "TaskGpuPairs", "parse"]


@dataclass(frozen=True, slots=True)
class Filter:
    text: str
    test: Test

    def matches(self, fleet: Fleet, mono: float, reads: CommandLineVisibility = ALL_READ) -> Mask:
        """Test the whole fleet. A filter must not answer more than its asker may read."""
        return self.test(FilterInput(fleet, fleet.statuses(mono), mono, reads)).yes

    def matches_uses(self, fleet: Fleet, mono: float, uses: TaskGpuPairs,
                     reads: CommandLineVisibility = ALL_READ) -> Mask:
        """Test Tasks: `user:` and `task:` mean the Task itself and not its neighbours on the GPU,
        so that selecting all of alice's includes nobody else's. The rest is about its GPU."""
        return self.test(FilterInput(fleet, fleet.statuses(mono), mono, reads, uses)).yes


def parse(text: str) -> Filter | None:
    """Parse a filter; None: it is empty, and matches all."""
    if len(text) > MAX_LENGTH:
        raise FilterError(f"a filter has at most {MAX_LENGTH} characters", MAX_LENGTH)
    parser = FleetFilterParser(text)
    return Filter(text, parser.whole()) if parser.tokens else None


class FleetFilterParser(FilterParser[Test]):
    """Parser of filters into tests over a whole fleet."""

    def combined(self, mark: str, left: Test, right: Test, at: int) -> Test:
        if mark == "|":
            return lambda data: left(data) | right(data)
        return lambda data: left(data) & right(data)

    def inverted(self, test: Test) -> Test:
        return lambda data: ~test(data)

    def compared(self, metric: Metric, op: str, number: float, is_share: bool) -> Test:
        return _spread(compare(metric, op, number, is_share))

    def field(self, name: str, word: str) -> Test:
        return _field(name, word)

    def bare(self, text: str) -> Test:
        return _bare(text)


def _spread(test: Test) -> Test:
    """Apply a condition on a GPU to each Task on it."""
    def spread(data: FilterInput) -> ThreeValuedMask:
        truth = test(data)
        if data.uses is None:
            return truth
        return ThreeValuedMask(truth.yes[data.uses.slots], truth.no[data.uses.slots])

    return spread


# -- words about a GPU

FieldTest = Callable[[FilterInput, str], ThreeValuedMask]


def _certain(yes: Mask) -> ThreeValuedMask:
    return ThreeValuedMask(yes, ~yes)


def _by_node(data: FilterInput, word: str) -> ThreeValuedMask:
    nodes = data.fleet.all_nodes
    hits = _mask(contains(node_id.lower(), word)
                 or contains(nodes[node_id].hello.host.lower(), word)
                 for node_id in data.fleet.node_ids)
    return _certain(hits[data.fleet.node_at[: len(data.fleet)]])


def _by_site(data: FilterInput, word: str) -> ThreeValuedMask:
    fleet = data.fleet
    hits = _mask(equals((fleet.cluster if (site := fleet.all_nodes[node_id].site) is None
                         else site.name).lower(), word) for node_id in fleet.node_ids)
    return _certain(hits[fleet.node_at[: len(fleet)]])


def _by_model(data: FilterInput, word: str) -> ThreeValuedMask:
    hits = _mask(contains(model.lower(), word) for model in data.fleet.models)
    return _certain(hits[data.fleet.model_at[: len(data.fleet)]])


def _mask(hits: Iterable[bool]) -> Mask:
    return np.array([*hits], bool)


def _ternary(hit: Mask, is_known: Mask) -> ThreeValuedMask:
    return ThreeValuedMask(hit, is_known & ~hit)


def _by_user(data: FilterInput, word: str, exact: bool = True) -> ThreeValuedMask:
    numbers = {number for number, name in enumerate(data.fleet.owners)
               if _is_user(name, word, exact)}
    fleet, owner = data.fleet, data.fleet.owner[: len(data.fleet)]
    hit, is_known = np.isin(owner, [*numbers]), owner != UNKNOWN_OWNER
    for slot in np.flatnonzero(owner == SEVERAL).tolist():
        users = fleet.users[slot] or (UNKNOWN_OWNER,)
        hit[slot], is_known[slot] = not numbers.isdisjoint(users), UNKNOWN_OWNER not in users
    return _ternary(hit, is_known)


def _is_user(name: str, word: str, exact: bool) -> bool:
    return (equals if exact else contains)(name.lower(), word)


def _by_gpu(data: FilterInput, word: str) -> ThreeValuedMask:
    if word.isascii() and word.isdigit() and len(word) < 6:
        return _certain(data.fleet.index[:len(data.fleet)] == int(word))
    if re.fullmatch(r"\d+(/\d+){1,2}", word):
        return _certain(_mask(facts.place == word for facts in data.fleet.facts))
    return _certain(_mask(_is_uuid(uuid.lower(), word) for uuid in data.fleet.uuids))


def _is_uuid(uuid: str, word: str) -> bool:
    if "*" in word:
        return any(equals(name, word) for name in (uuid, uuid[4:], uuid.rpartition(":")[2]))
    return uuid.startswith((word, "gpu-" + word, "mig-" + word)) or (
        uuid.rpartition(":")[2].startswith((word, "gpu-" + word)))


def _by_task(data: FilterInput, word: str) -> ThreeValuedMask:
    """Match a task's command, or its whole id."""
    hit = np.zeros(len(data.fleet), bool)
    is_known = data.fleet.are_users_known[: len(data.fleet)] & ~data.fleet.viewed[: len(data.fleet)]
    for node in data.fleet.nodes.values():
        if node.listing is None:
            continue
        for use in node.uses:
            task = node.tasks.get(use.task_id)
            slot = node.listing.order[use.gpu]
            if equals(use.task_id.lower(), word) or (task is not None and _has(data, task, word)):
                hit[slot] = True
            elif task is None or task.command is None or not data.reads.of_user(task.user):
                is_known[slot] = False
    return _ternary(hit, is_known)


def _has(data: FilterInput, task: Task, word: str) -> bool:
    """Search as much of the command as the asker may read; of the rest nothing is known."""
    return contains((data.reads.line(task.user, task.command) or "").lower(), word)


def _by_state(data: FilterInput, word: str) -> ThreeValuedMask:
    if word in ("free", "busy"):
        return _by_use(data, word)
    if word in MARKED:
        return _certain(MARKED[word](data))
    return _certain(data.show == STATES[word])


def _by_use(data: FilterInput, word: str) -> ThreeValuedMask:
    """Free: it is available. Busy: it works, and a task is on it. Neither is known of a GPU that
    does not answer; a board that is split by MIG is neither, its instances are."""
    fleet, size = data.fleet, len(data.fleet)
    are_users_known = fleet.are_users_known[:size]
    is_known = are_users_known & (data.show == GpuStatus.OK) & ~fleet.is_split()
    return _ternary(is_known & (available(fleet, data.show, data.mono) if word == "free"
                                else fleet.task_count[:size] > 0), is_known)


def _throttled(data: FilterInput) -> Mask:
    bits = data.fleet.column("throttle_bits", data.mono)
    harmful = np.nan_to_num(bits.values).astype(np.int64) & HARMFUL_THROTTLE
    mask: Mask = (data.show == GpuStatus.OK) & (bits.absent == Absence.PRESENT) & (harmful != 0)
    return mask


# As the Fleet page counts and marks them.
MARKED: dict[str, Callable[[FilterInput], Mask]] = {
    "wasted": lambda data: wasted(data.fleet, data.show, data.mono),
    "paused": lambda data: (data.show == GpuStatus.OK) & data.fleet.is_paused[:len(data.fleet)],
    "throttled": _throttled,
}
STATES = {status.name.lower(): status for status in GpuStatus if status != GpuStatus.RETIRED}
FIELDS: dict[str, FieldTest] = {
    "node": _by_node, "model": _by_model, "user": _by_user, "gpu": _by_gpu, "task": _by_task,
    "state": _by_state, "site": _by_site,
}


def _field(field: str, word: str) -> Test:
    of_gpu, of_task = FIELDS[field], TASK_FIELDS.get(field)
    spread = _spread(lambda data: of_gpu(data, word))
    if of_task is None:
        return spread
    return lambda data: spread(data) if data.uses is None else of_task(data, data.uses, word)


# -- words about a Task

def _task_by_user(_data: FilterInput, uses: TaskGpuPairs, word: str,
                  exact: bool = True) -> ThreeValuedMask:
    names, at = uses.users
    return _ternary(_mask(name is not None and _is_user(name, word, exact) for name in names)[at],
                    _mask(name is not None for name in names)[at])


def _task_by_words(data: FilterInput, uses: TaskGpuPairs, word: str) -> ThreeValuedMask:
    return _ternary(_mask(equals(task.id.lower(), word) or _has(data, task, word)
                          for task in uses.tasks),
                    _mask(task.command is not None and data.reads.of_user(task.user)
                          for task in uses.tasks))


TASK_FIELDS: dict[str, Callable[[FilterInput, TaskGpuPairs, str], ThreeValuedMask]] = {
    "user": _task_by_user, "task": _task_by_words}


def _bare(text: str) -> Test:
    """Match a word alone: in the node's name, the model, a user's name, or the UUID."""
    word = text.lower()

    def of_gpu(data: FilterInput) -> ThreeValuedMask:
        in_uuid = _certain(_mask(contains(uuid.lower(), word) for uuid in data.fleet.uuids))
        return _by_node(data, word) | _by_model(data, word) | in_uuid

    place = _spread(of_gpu)

    def test(data: FilterInput) -> ThreeValuedMask:
        if data.uses is None:
            return place(data) | _by_user(data, word, exact=False)
        return (place(data) | _task_by_user(data, data.uses, word, exact=False)
                | _task_by_words(data, data.uses, word))

    return test
