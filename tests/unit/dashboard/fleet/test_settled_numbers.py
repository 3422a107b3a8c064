"""Numbers of Frames wait until somebody reads them: a fleet that is read after every message and
one that is read at the end are the same."""

import random

import numpy as np
import pytest

from dashboard.fleet.effects import MessageReceived, RevokeNode
from dashboard.fleet.fleet import GpuStatus, out_of_range
from dashboard.fleet.frame_table import MOST_WAITING, FrameTable, SettledColumn
from dashboard.fleet.state_machine import FleetStateMachine
from gpudeck.contract.wire import GPU_STATES, Frame, FromAgent, Inventory, encode
from gpudeck.measures.metrics import COLUMN, COLUMNS, SLOW_COLUMN, Absence
from tests.unit.fleets import MONO, NOW, Row, facts, frame, hello, tasks

NODES, GPUS, MESSAGES = 5, 3, 400
READ_LATER = ("values", "absent", "sampled_at", "sampled_mono", "reported")
KEYS = [metric.key for metric in COLUMNS[:6]]


def row(dice: random.Random, keys: list[str]) -> Row:
    """Return numbers of a GPU: some absent, and now and then one that no GPU can have."""
    return {key: dice.choice([dice.uniform(0, 100), dice.uniform(0, 100), -1e15,
                              Absence.UNKNOWN, Absence.LOST, Absence.UNSUPPORTED])
            for key in dice.sample(keys, dice.randrange(1, len(keys)))}


def message_of(dice: random.Random, node_id: str, seq: int, now: float) -> FromAgent:
    """Return what an agent may send: a Frame, as a rule, that may be late, of the future, or of an
    inventory that never came."""
    if dice.random() < 0.08:
        order = dice.sample(range(GPUS + 1), GPUS)
        return Inventory(dice.randrange(1, 4), tuple(facts(node_id, index) for index in order))
    report: Frame = frame(
        [row(dice, KEYS) for _ in range(GPUS if dice.random() < 0.95 else GPUS - 1)],
        seq=max(1, seq - dice.choice([0, 0, 0, 0, 3])),
        taken_at=now + dice.choice([0.0, 0.0, -2.0, 9.0]), generation=dice.choice([1, 1, 2, 7]),
        tasks=dice.choice([None, tasks((f"t{seq}", 0, "alice")), tasks()]),
        slow=None if dice.random() < 0.8 else [row(dice, [*SLOW_COLUMN][:4])] * GPUS)
    if len(report.states) == GPUS:
        report = frame_with(report, bytes(dice.choice([0, 0, 0, *range(len(GPU_STATES))])
                                      for _ in range(GPUS)))
    return report


def frame_with(report: Frame, states: bytes) -> Frame:
    return Frame(report.seq, report.taken_at, report.interval_s, report.generation, report.values,
                 report.absent, states, report.tasks, report.slow)


class Twins:
    """Two state machines that are sent the same; the first is read after every message."""

    def __init__(self) -> None:
        self.machines = FleetStateMachine("hub", 1), FleetStateMachine("hub", 1)
        self.links = 0

    def send(self, link: str, message: FromAgent, now: float) -> None:
        self.do(MessageReceived(link, message, encode(message)), now)

    def do(self, event: MessageReceived | RevokeNode, now: float) -> None:
        read, unread = self.machines
        answers = [machine.handle(event, now, now - NOW + MONO) for machine in (read, unread)]
        read.fleet.settle()
        assert answers[0] == answers[1]

    def join(self, node_id: str, stream: str, now: float) -> str:
        self.links += 1
        link = f"link{self.links}"
        self.send(link, hello(node_id, stream), now)
        self.send(link, Inventory(1, tuple(facts(node_id, at) for at in range(GPUS))), now)
        return link


def assert_same(read: FleetStateMachine, unread: FleetStateMachine) -> None:
    one, other = read.fleet, unread.fleet
    size = len(one)
    for name in READ_LATER:
        assert np.array_equal(getattr(one, name)[:size], getattr(other, name)[:size],
                              equal_nan=True), name
    assert np.array_equal(one.slow.values[:size], other.slow.values[:size], equal_nan=True)
    for node_id, node in one.nodes.items():
        twin = other.nodes[node_id]
        assert (node.newest, node.frame_at, node.outcomes, node.tasks, out_of_range(one, node)) == (
            twin.newest, twin.frame_at, twin.outcomes, twin.tasks, out_of_range(other, twin))


@pytest.mark.parametrize("seed", [random.randrange(10**6) for _ in range(6)])
def test_when_it_is_read_changes_nothing(seed: int) -> None:
    dice, twins, now = random.Random(seed), Twins(), NOW
    links = {f"n{at}": twins.join(f"n{at}", "s1", now) for at in range(NODES)}
    seqs = dict.fromkeys(links, 0)
    for number in range(MESSAGES):
        now += dice.choice([0.0, 0.01, 0.4])
        node_id = dice.choice([*links])
        seqs[node_id] += 1
        if dice.random() < 0.02:
            links[node_id] = twins.join(node_id, f"s{number}", now)
            seqs[node_id] = 1
        twins.send(links[node_id], message_of(dice, node_id, seqs[node_id], now), now)
        if number == MESSAGES * 3 // 4:
            twins.do(RevokeNode(node_id), now)
            del links[node_id]
    assert sum(node.lies for node in twins.machines[0].fleet.nodes.values()) > 0
    assert_same(*twins.machines)


def test_all_that_frames_write_waits_and_nothing_else() -> None:
    settled = {name for name, value in vars(FrameTable).items() if isinstance(value, SettledColumn)}
    assert settled == {*READ_LATER}


def test_what_nobody_reads_is_bounded() -> None:
    twins = Twins()
    for at in range(MOST_WAITING + 2):
        link = twins.join(f"n{at}", "s1", NOW)
        twins.send(link, frame([{"util_pct": 7.0}] * GPUS), NOW)
    unread = twins.machines[1].fleet
    assert 0 < len(vars(unread)["_waiting"]) <= MOST_WAITING
    assert (unread.values[:, COLUMN["util_pct"]] == 7.0).sum() == GPUS * (MOST_WAITING + 2)
    assert (unread.statuses(MONO) == GpuStatus.OK).all()
