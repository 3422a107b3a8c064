"""The fleet: what agents say and what time does to it."""

import random

import numpy as np
import pytest

from dashboard.fleet.fleet import (
    SILENT_AFTER_S,
    SUSPECT_AFTER_S,
    Fleet,
    FrameOutcome,
    GpuStatus,
    out_of_range,
)
from dashboard.fleet.gpu_table import NO_TASK, SEVERAL, UNKNOWN_OWNER
from gpudeck.contract.wire import Inventory, Tasks, Use, WireError
from gpudeck.measures.metrics import COLUMN, Absence
from tests.unit.fleets import MONO, NOW, add_node, facts, frame, hello, tasks

UTIL = COLUMN["util_pct"]


def statuses(fleet: Fleet, mono: float = MONO) -> list[GpuStatus]:
    return [GpuStatus(code) for code in fleet.statuses(mono)]


def test_a_frame_lands_on_the_slots_of_its_own_node() -> None:
    fleet, utils = Fleet(1), {}
    nodes = [add_node(fleet, f"n{at}", gpus=random.randint(1, 4)) for at in range(20)]
    random.shuffle(nodes)
    for node in nodes:
        assert node.listing is not None
        numbers = [random.uniform(0, 100) for _ in node.listing.order]
        utils[node.hello.node_id] = numbers
        assert fleet.frame(node, frame([{"util_pct": u} for u in numbers]), NOW, MONO) is (
            FrameOutcome.APPLIED)
    for slot, uuid in enumerate(fleet.uuids):
        _, node_id, index = uuid.split("-")
        assert fleet.values[slot, UTIL] == utils[node_id][int(index)]


@pytest.mark.parametrize(("age_s", "show"), [
    (0.0, GpuStatus.OK), (4.9, GpuStatus.OK), (5.1, GpuStatus.STALE), (3_600.0, GpuStatus.STALE)])
def test_a_sample_ages_by_when_it_was_taken_not_when_it_came(age_s: float, show: GpuStatus) -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    fleet.frame(node, frame([{}, {}], taken_at=NOW - age_s), NOW, MONO)
    assert statuses(fleet) == [show, show]


def test_a_wrong_agent_clock_is_corrected_by_the_probe() -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    node.set_clock(NOW + 7_200 + 0.1, MONO - 0.2, NOW, MONO)
    fleet.frame(node, frame([{}, {}], taken_at=NOW + 7_199), NOW, MONO)
    assert statuses(fleet) == [GpuStatus.OK, GpuStatus.OK]
    assert node.clock_offset_s == pytest.approx(7_200.2)
    assert fleet.sampled_at[0] == pytest.approx(NOW - 1.2)


def test_before_the_probe_a_clock_ahead_does_not_keep_a_sample_fresh() -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    fleet.frame(node, frame([{}, {}], taken_at=NOW + 3_600), NOW, MONO)
    assert statuses(fleet, MONO + 5.1) == [GpuStatus.STALE, GpuStatus.STALE]


def test_the_future_is_refused() -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    node.set_clock(NOW, MONO, NOW, MONO)
    assert fleet.frame(node, frame([{"util_pct": 1.0}] * 2, taken_at=NOW + 6), NOW, MONO) is (
        FrameOutcome.FUTURE)
    assert np.isnan(fleet.values[0, UTIL])
    assert node.outcomes[FrameOutcome.FUTURE] == 1


def test_a_late_frame_does_not_move_live_values_back() -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    fleet.frame(node, frame([{"util_pct": 90.0}] * 2, seq=7), NOW, MONO)
    assert fleet.frame(node, frame([{"util_pct": 10.0}] * 2, seq=6), NOW, MONO) is FrameOutcome.LATE
    assert fleet.values[0, UTIL] == 90.0


def test_a_value_outside_its_range_becomes_unknown_and_is_counted() -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    fleet.frame(node, frame([{"util_pct": 101.0, "temp_c": 40.0}, {"temp_c": -1e6}]), NOW, MONO)
    assert fleet.absent[0, UTIL] == Absence.UNKNOWN
    assert fleet.absent[0, COLUMN["temp_c"]] == Absence.PRESENT
    assert fleet.absent[1, COLUMN["temp_c"]] == Absence.UNKNOWN
    assert out_of_range(fleet, node) == 2


def test_the_last_value_is_kept_beside_the_present_one() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=1)
    fleet.frame(node, frame([{"util_pct": 33.0}], seq=1), NOW, MONO)
    fleet.frame(node, frame([{"util_pct": Absence.LOST}], seq=2, states=["lost"]), NOW, MONO)
    assert fleet.values[0, UTIL] == 33.0
    assert fleet.absent[0, UTIL] == Absence.LOST
    assert statuses(fleet) == [GpuStatus.LOST]


def test_slots_keep_their_gpu() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=3)
    other = add_node(fleet, "n2", gpus=2)
    swapped = (facts("n1", 2), facts("n1", 0), facts("n1", 9))
    fleet.inventory(node, Inventory(2, swapped))
    assert fleet.uuids == ["GPU-n1-0", "GPU-n1-1", "GPU-n1-2", "GPU-n2-0", "GPU-n2-1", "GPU-n1-9"]
    fleet.frame(node, frame([{"util_pct": float(at)} for at in range(3)], generation=2), NOW, MONO)
    fleet.frame(other, frame([{}, {}]), NOW, MONO)
    assert fleet.values[[2, 0, 5], UTIL].tolist() == [0.0, 1.0, 2.0]
    assert statuses(fleet) == [GpuStatus.OK, GpuStatus.RETIRED, GpuStatus.OK, GpuStatus.OK,
                               GpuStatus.OK, GpuStatus.OK]


def test_a_frame_is_read_by_its_own_generation() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=2)
    fleet.inventory(node, Inventory(2, (facts("n1", 1), facts("n1", 0))))
    fleet.frame(node, frame([{"util_pct": 10.0}, {"util_pct": 20.0}], generation=1), NOW, MONO)
    assert fleet.values[:2, UTIL].tolist() == [10.0, 20.0]
    fleet.frame(node, frame([{"util_pct": 10.0}, {"util_pct": 20.0}], seq=2, generation=2),
                NOW, MONO)
    assert fleet.values[:2, UTIL].tolist() == [20.0, 10.0]


@pytest.mark.parametrize("bad", [frame([{}], generation=1), frame([{}, {}], generation=3)])
def test_a_frame_that_no_inventory_explains_is_counted(bad: object) -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=2)
    assert fleet.frame(node, bad, NOW, MONO) is FrameOutcome.UNREADABLE  # type: ignore[arg-type]


def test_the_same_gpu_twice_is_refused() -> None:
    fleet = Fleet(1)
    with pytest.raises(WireError):
        fleet.inventory(fleet.hello(hello(), NOW, MONO), Inventory(1, (facts("n1", 0),) * 2))


def test_growing_keeps_every_number() -> None:
    fleet, random_state = Fleet(1), np.random.default_rng(random.getrandbits(32))
    for at in range(300):
        node = add_node(fleet, f"n{at}", gpus=1)
        fleet.frame(node, frame([{"util_pct": float(at % 101)}]), NOW, MONO)
    picks = random_state.integers(0, 300, 50)
    assert [fleet.values[pick, UTIL] for pick in picks] == [float(pick % 101) for pick in picks]


SILENCE = [  # seconds unheard, connected -> state
    (0.0, True, "live"), (SUSPECT_AFTER_S - 0.1, True, "live"), (SUSPECT_AFTER_S, True, "suspect"),
    (SILENT_AFTER_S - 0.1, True, "suspect"), (SILENT_AFTER_S, True, "silent"),
    (0.0, False, "suspect"), (SILENT_AFTER_S, False, "silent")]


@pytest.mark.parametrize(("unheard_s", "connected", "state"), SILENCE)
def test_a_node_falls_silent_by_the_monotonic_clock(
    unheard_s: float, connected: bool, state: str
) -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    fleet.frame(node, frame([{}, {}]), NOW, MONO)
    if not connected:
        node.disconnect()
        assert node.state == "suspect"
    fleet.tick(MONO + unheard_s)
    assert node.state == state
    offline = state == "silent"
    assert (statuses(fleet, MONO + unheard_s)[0] is GpuStatus.OFFLINE) == offline


def test_a_pause_of_our_own_is_given_back() -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    fleet.forgive(90.0)
    assert fleet.tick(MONO + 90.0) == []
    assert node.state == "live"


def test_owners_by_slot() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=4)
    assert fleet.owner[:4].tolist() == [UNKNOWN_OWNER] * 4  # nothing told yet: not "no task"
    on = tasks(("a", 0, "alice"), ("b", 1, "alice"), ("c", 1, "bob"), ("d", 2, None))
    fleet.frame(node, frame([{}] * 4, tasks=on), NOW, MONO)
    assert fleet.owner[:4].tolist() == [fleet.owners.index("alice"), SEVERAL, UNKNOWN_OWNER,
                                        NO_TASK]


def test_tasks_begin_and_end() -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    fleet.frame(node, frame([{}] * 2, seq=1, tasks=tasks(("a", 0, "alice"))), NOW, MONO)
    more = tasks(("b", 1, "bob"))
    changed = Tasks(False, more.began, (Use("a", 0, None, None), *more.uses))
    fleet.frame(node, frame([{}] * 2, seq=2, tasks=changed), NOW, MONO)
    assert sorted(node.tasks) == ["a", "b"]
    fleet.frame(node, frame([{}] * 2, seq=3, tasks=None), NOW, MONO)
    assert sorted(node.tasks) == ["a", "b"]
    fleet.frame(node, frame([{}] * 2, seq=4, tasks=Tasks(False, (), more.uses)), NOW, MONO)
    assert sorted(node.tasks) == ["b"]
    fleet.hello(hello(boot_id="another boot"), NOW, MONO)
    assert node.tasks == {}


def test_what_comes_from_disk_is_stale_at_once() -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    fleet.frame(node, frame([{"util_pct": 5.0}, {}], taken_at=NOW - 1), NOW, 0.0)
    fleet.recovered(NOW + 2, MONO)
    assert statuses(fleet) == [GpuStatus.STALE, GpuStatus.STALE]
    assert fleet.values[0, UTIL] == 5.0
    assert node.state == "suspect"
    assert fleet.tick(MONO + SILENT_AFTER_S) == [("n1", "silent")]


@pytest.mark.parametrize("state", ["stale", "lost"])
def test_news_of_a_gpu_that_was_not_read_is_no_sample_of_it(state: str) -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    fleet.frame(node, frame([{"util_pct": 50.0}, {"util_pct": 60.0}]), NOW, MONO)
    later = frame([{"util_pct": Absence.STALE}, {"util_pct": 61.0}], seq=2, taken_at=NOW + 9,
                  states=[state, "ok"])
    fleet.frame(node, later, NOW + 9, MONO + 9)
    assert fleet.sampled_at[:2].tolist() == [NOW, NOW + 9]
    assert fleet.sampled_mono[:2].tolist() == [MONO, MONO + 9]
