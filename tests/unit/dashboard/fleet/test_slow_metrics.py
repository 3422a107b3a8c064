"""Metrics that change seldom: kept, aged, filtered, shown; and never a number that is none."""

import random

import msgspec
import numpy as np
import pytest

from dashboard.fleet import views
from dashboard.fleet.colour_scales import LEVELS, NO_FULL
from dashboard.fleet.filters import FilterError, parse
from dashboard.fleet.fleet import Fleet, GpuStatus, out_of_range
from dashboard.fleet.frame_table import SLOW_LASTS_S
from dashboard.fleet.metric_table import MetricTable
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.fleet.visibility import EVERYTHING_SEEN, focus
from dashboard.nodes.checkpoint import encode_nodes, restore
from gpudeck.contract.wire import Inventory
from gpudeck.measures.metrics import SLOW, SLOW_COLUMN, Absence
from tests.unit.fleets import MONO, NOW, Row, add_node, facts, frame, hello

ALIVE = 4.0  # a live sample may be this old


def fleet_of(*slow: Row, mono: float = MONO, states: tuple[str, ...] = ()) -> Fleet:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=len(slow))
    fleet.frame(node, frame([{"util_pct": 1.0}] * len(slow), slow=slow, states=states), NOW, mono)
    return fleet


def send_live_frame(fleet: Fleet, mono: float, seq: int = 2) -> None:
    """Send a Frame without anything that changes seldom."""
    node = fleet.nodes["n1"]
    fleet.frame(node, frame([{"util_pct": 1.0}] * len(fleet), seq=seq), NOW, mono)


def view_of(fleet: Fleet, slot: int = 0, mono: float = MONO) -> views.GpuView:
    return views.gpu_view(fleet, slot, GpuStatus(fleet.statuses(mono)[slot]), 0, [], mono)


def cells(fleet: Fleet, key: str, mono: float = MONO) -> list[int]:
    visible = focus(fleet, EVERYTHING_SEEN)
    return list(views.cells(fleet, visible, key, None, NOW, mono)["cells"])


def matching_slots(fleet: Fleet, text: str, mono: float = MONO) -> list[int]:
    picked = parse(text)
    assert picked is not None
    return np.flatnonzero(picked.matches(fleet, mono)).tolist()


def test_zero_is_zero_and_unsupported_is_not() -> None:
    """Pitfalls 1 and 2: 0 errors is a number; a board without ECC has none."""
    fleet = fleet_of({"ecc_corrected": 0.0, "rows_pending": 0.0},
                     {"ecc_corrected": Absence.UNSUPPORTED, "rows_pending": Absence.DENIED})
    zero, without = view_of(fleet, 0), view_of(fleet, 1)
    assert (zero.values["ecc_corrected"], zero.values["rows_pending"]) == (0.0, 0.0)
    assert "ecc_corrected" not in zero.missing
    assert "ecc_corrected" not in without.values
    assert without.missing["ecc_corrected"] == "unsupported"
    assert without.missing["rows_pending"] == "denied"
    assert matching_slots(fleet, "ecc=0") == [0]
    assert matching_slots(fleet, "ecc!=0 | !(ecc=0)") == []
    assert cells(fleet, "ecc_corrected") == [0, 251]
    assert cells(fleet, "rows_pending") == [0, 250]


def test_each_metric_is_there_once() -> None:
    view = view_of(fleet_of({"tensor_active_pct": 12.5}))
    assert set(SLOW_COLUMN) <= set(view.values) | set(view.missing)
    assert not set(view.values) & set(view.missing)
    assert (view.slow_sampled_at, view.slow_age_s) == (NOW, 0.0)


def test_an_agent_that_never_told_any_has_none() -> None:
    fleet = Fleet(1)
    add_node(fleet, gpus=1)
    send_live_frame(fleet, MONO, seq=1)
    view = view_of(fleet)
    assert not set(SLOW_COLUMN) & (set(view.values) | set(view.missing))
    assert cells(fleet, "ecc_corrected") == [255]
    assert view.slow_sampled_at is None


def test_what_is_not_told_again_becomes_stale_while_the_gpu_lives() -> None:
    """Pitfall 4: they have a separate age, as the live numbers go on."""
    count = float(random.randrange(1, 10**9))
    fleet = fleet_of({"ecc_corrected": count, "pcie_replays": Absence.UNSUPPORTED})
    soon, late = MONO + SLOW_LASTS_S - 1, MONO + SLOW_LASTS_S + 1
    send_live_frame(fleet, soon)
    assert view_of(fleet, mono=soon).values["ecc_corrected"] == count
    assert matching_slots(fleet, "ecc>0", soon) == [0]
    send_live_frame(fleet, late, seq=3)
    view = view_of(fleet, mono=late)
    assert (view.state, view.values["util_pct"]) == ("ok", 1.0)
    assert view.missing["ecc_corrected"] == "stale"
    assert view.missing["pcie_replays"] == "unsupported"
    assert view.last_values == {"ecc_corrected": count}
    assert matching_slots(fleet, "ecc>0", late) == []
    assert cells(fleet, "ecc_corrected", late) == [252]
    exact = views.cells(fleet, focus(fleet, EVERYTHING_SEEN), "ecc_corrected", None, NOW, late)
    assert np.isnan(np.frombuffer(exact["exact"], "<f4")).all()


def test_it_is_stale_and_lost_with_its_gpu() -> None:
    """Pitfalls 4 and 11."""
    count = float(random.randrange(1, 10**9))
    fleet = fleet_of({"ecc_corrected": count}, {"ecc_corrected": count})
    node = fleet.nodes["n1"]
    fleet.frame(node, frame([{"util_pct": 1.0}] * 2, seq=2, states=("ok", "lost")), NOW, MONO + 1)
    lost_view = view_of(fleet, 1, MONO + 1)
    assert (lost_view.missing["ecc_corrected"], lost_view.last_values) == (
        "lost", {"util_pct": 1.0, "ecc_corrected": count})
    assert view_of(fleet, 0, MONO + 1).values["ecc_corrected"] == count
    assert view_of(fleet, 0, MONO + 30).missing["ecc_corrected"] == "stale"
    assert cells(fleet, "ecc_corrected", MONO + 1)[1] == 253


def test_a_frame_that_calls_a_gpu_stale_does_not_make_its_numbers_fresh() -> None:
    fleet = fleet_of({"ecc_corrected": 1.0})
    node = fleet.nodes["n1"]
    fleet.frame(node, frame([{"util_pct": 1.0}], seq=2, states=("stale",),
                            slow=[{"ecc_corrected": 1.0}]), NOW, MONO + 100)
    assert fleet.slow.sampled_mono[0] == MONO


def test_a_number_out_of_its_range_is_unknown() -> None:
    """Pitfall 1: a sentinel is not a number."""
    fleet = fleet_of({"temp_margin_c": 1_000.0, "pcie_width": 16.0})
    view = view_of(fleet)
    assert view.missing["temp_margin_c"] == "unknown"
    assert view.values["pcie_width"] == 16.0
    assert out_of_range(fleet, fleet.nodes["n1"]) == 1


def test_a_big_counter_is_exact() -> None:
    count = float(2**53 - random.randrange(1, 1_000))
    assert view_of(fleet_of({"nvlink_errors": count})).values["nvlink_errors"] == count


def test_levels_of_counts_alarms_and_shares() -> None:
    fleet = Fleet(1)
    node = fleet.hello(hello(), NOW, MONO)
    board = facts("n1", 0)
    fleet.inventory(node, Inventory(1, (msgspec.structs.replace(board, pcie_width_max=16),
                                        facts("n1", 1))))
    fleet.frame(node, frame([{}, {}], slow=[
        {"pcie_width": 8.0, "ecc_corrected": 1.0, "rows_pending": 1.0, "nvlinks_up": 4.0,
         "tensor_active_pct": 50.0, "nvlink_errors": 1e9, "mem_unseen_bytes": 40e9},
        {"pcie_width": 8.0, "ecc_corrected": 0.0, "rows_pending": 0.0, "recovery_action": 2.0}]),
        NOW, MONO)
    assert cells(fleet, "pcie_width") == [120, NO_FULL]
    assert cells(fleet, "ecc_corrected") == [80, 0]
    assert cells(fleet, "nvlink_errors") == [LEVELS, 255]
    assert cells(fleet, "rows_pending") == [LEVELS, 0]
    assert cells(fleet, "recovery_action") == [255, LEVELS]
    assert cells(fleet, "nvlinks_up")[0] == NO_FULL
    assert cells(fleet, "tensor_active_pct")[0] == 120
    assert cells(fleet, "mem_unseen_bytes")[0] == 120
    assert matching_slots(fleet, "lanes<100%") == [0]
    assert matching_slots(fleet, "unseen>1GiB") == [0]


@pytest.mark.parametrize(("text", "hits"), [
    ("recovery=none", [1]), ("recovery:none", [1]), ("recovery!=none", [0]), ("recovery=2", [0]),
    ('recovery="reboot the node"', [0]), ("recovery=reboot", [0]), ("rowspending=yes", [0]),
    ("rowspending:no", [1]), ("ecc_on=off", [1]), ("persistence=On", [0]), ("recovery>0", [0]),
])
def test_coded_metrics_are_compared_by_their_words(text: str, hits: list[int]) -> None:
    fleet = fleet_of(
        {"recovery_action": 2.0, "rows_pending": 1.0, "ecc_on": 1.0, "persistence": 1.0},
        {"recovery_action": 0.0, "rows_pending": 0.0, "ecc_on": 0.0, "persistence": 0.0})
    assert matching_slots(fleet, text) == hits


@pytest.mark.parametrize(("text", "words"), [
    ("recovery='rebot the node'", "did you mean 'reboot the node'"),
    ("recovery>reboot", "compare it with = or !="),
    ("recovery=re", "there are"), ("rowspending=maybe", "there are 'no', 'yes'"),
    ("temp:hot", "compared with < or >")])
def test_a_wrong_word_is_answered_with_the_right_ones(text: str, words: str) -> None:
    with pytest.raises(FilterError) as wrong:
        parse(text)
    assert words in wrong.value.sentence


def test_every_metric_has_a_name_in_filters() -> None:
    for metric in SLOW:
        for name in {metric.key, metric.filter_name or metric.key}:
            assert parse(f"{name}=0") is not None


def test_after_a_restart_it_is_what_was_known_until_it_is_told_again() -> None:
    """A Frame of now with what may be minutes old, as from a checkpoint, is no news of it."""
    count = float(random.randrange(1, 10**9))
    machine = FleetStateMachine("hub", 1)
    machine.fleet = fleet_of({"ecc_corrected": count, "pcie_replays": Absence.UNSUPPORTED})
    after = FleetStateMachine("hub", 2)
    for _, data in encode_nodes(machine, NOW, MONO):
        restore(after, data)
    just_booted = 5.0  # of the monotonic clock, which had begun anew
    after.recovered(NOW, just_booted)
    send_live_frame(after.fleet, just_booted + 1)
    view = view_of(after.fleet, mono=just_booted + 1)
    assert (view.state, view.missing["ecc_corrected"]) == ("ok", "stale")
    assert view.last_values is not None
    assert view.last_values["ecc_corrected"] == count
    assert view.missing["pcie_replays"] == "unsupported"


def test_ten_thousand_gpus_fit() -> None:
    """Half a kilobyte for each; the table doubles as it grows, so at most twice that."""
    arrays = vars(MetricTable(SLOW, SLOW_LASTS_S, 10_000)).values()
    assert sum(array.nbytes for array in arrays if isinstance(array, np.ndarray)) < 5e6


def test_growing_keeps_what_was_told() -> None:
    fleet = fleet_of({"ecc_corrected": 7.0})
    add_node(fleet, "n2", gpus=200)
    assert view_of(fleet).values["ecc_corrected"] == 7.0
    assert len(fleet.slow.sampled_at) >= 201


def test_the_live_numbers_cost_no_copy() -> None:
    """Watching one of them does not so much as look at the others."""
    fleet = fleet_of({"ecc_corrected": 7.0})
    column = fleet.column("util_pct", MONO)
    assert np.shares_memory(column.values, fleet.values)
    assert column.full.strides == (0,)  # one number, however many GPUs
    power = fleet.column("power_w", MONO)
    assert np.shares_memory(power.full, fleet.full_of)


def test_some_metrics_only() -> None:
    view = views.gpu_view(fleet_of({"ecc_corrected": 7.0}), 0, GpuStatus.OK, 0, [], MONO + ALIVE,
                          {"ecc_corrected", "fan_pct"})
    assert (view.values, view.missing) == ({"ecc_corrected": 7.0}, {"fan_pct": "unknown"})
