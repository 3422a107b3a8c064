"""Views that pages and programs get."""

import random

import msgspec
import numpy as np
import pytest

from dashboard.fleet import views
from dashboard.fleet.filters import parse
from dashboard.fleet.fleet import Fleet, GpuStatus
from dashboard.fleet.visibility import EVERYTHING_SEEN, VisibleFleet, focus
from gpudeck.contract.actions import total
from gpudeck.contract.limits import LimitsNow
from gpudeck.measures.metrics import COLUMN, COLUMNS, Absence
from tests.unit.fleets import MONO, NOW, add_node, frame, task_views, tasks


def whole(fleet: Fleet) -> VisibleFleet:
    return focus(fleet, EVERYTHING_SEEN)


def cells(fleet: Fleet, key: str = "util_pct", mono: float = MONO) -> list[int]:
    return list(views.cells(fleet, whole(fleet), key, None, NOW, mono)["cells"])


def test_levels_and_reasons() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=6)
    share = random.random()
    fleet.frame(node, frame(
        [{"util_pct": 0.0}, {"util_pct": 100.0}, {"util_pct": 100 * share},
         {"util_pct": Absence.UNSUPPORTED}, {"util_pct": Absence.DENIED}, {}]), NOW, MONO)
    assert cells(fleet) == [0, 239, round(share * 239), 251, 250, 255]
    assert set(cells(fleet, mono=MONO + 6)) == {252}
    fleet.tick(MONO + 60)
    assert set(cells(fleet, mono=MONO + 60)) == {254}


def test_a_lost_and_a_stale_gpu_show_no_level() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=3)
    fleet.frame(node, frame([{"util_pct": 50.0}] * 3, states=["ok", "lost", "stale"]), NOW, MONO)
    assert cells(fleet) == [120, 253, 252]


def test_a_value_without_its_full_value_has_no_level() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=1, mem=None)
    fleet.frame(node, frame([{"mem_used_bytes": 5e9, "power_w": 350.0}]), NOW, MONO)
    assert cells(fleet, "mem_used_bytes") == [249]
    assert cells(fleet, "power_w") == [120]
    exact = views.cells(fleet, whole(fleet), "mem_used_bytes", None, NOW, MONO)["exact"]
    assert np.isnan(np.frombuffer(exact, "<f4")).all()


def test_exact_is_the_displayed_number() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=2)
    used_bytes = random.uniform(0, 80e9)
    fleet.frame(node, frame([{"mem_used_bytes": used_bytes, "power_w": 321.5}, {}]), NOW, MONO)
    def exact(key: str) -> list[float]:
        data = views.cells(fleet, whole(fleet), key, None, NOW, MONO)["exact"]
        numbers: list[float] = np.frombuffer(data, "<f4").tolist()
        return numbers

    assert exact("mem_used_bytes")[0] == pytest.approx(used_bytes / 80e9 * 100)
    assert exact("power_w")[0] == 321.5
    assert np.isnan(exact("power_w")[1])


def test_the_mask_is_the_filter() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=13)
    utils = [random.choice([1.0, 50.0]) for _ in range(13)]
    fleet.frame(node, frame([{"util_pct": util} for util in utils]), NOW, MONO)
    answer = views.cells(fleet, whole(fleet), "util_pct", parse("util<5"), NOW, MONO)
    bits = [bool(answer["mask"][slot // 8] >> slot % 8 & 1) for slot in range(13)]
    assert bits == [util < 5 for util in utils]
    assert answer["matched"] == sum(bits)
    assert len(answer["mask"]) == 2


def test_layout_extends() -> None:
    fleet = Fleet(9)
    add_node(fleet, "n1", gpus=2)
    add_node(fleet, "n2", gpus=1, name="NVIDIA L40S")
    every = views.layout(fleet, whole(fleet))
    assert every["uuid"] == ["GPU-n1-0", "GPU-n1-1", "GPU-n2-0"]
    assert every["nodes"] == [[0, "n1", "n1.example"], [1, "n2", "n2.example"]]
    assert (every["node"], every["index"], every["model"]) == ([0, 0, 1], [0, 1, 0], [0, 0, 1])
    rest = views.layout(fleet, whole(fleet), 2, 1)
    assert (rest["from"], rest["uuid"], rest["node"]) == (2, ["GPU-n2-0"], [1])
    assert rest["nodes"] == [[1, "n2", "n2.example"]]
    assert rest["epoch"] == every["epoch"]


def test_totals_count_only_what_is_live() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=4)
    fleet.frame(node, frame(
        [{"util_pct": 20.0, "power_w": 100.0, "mem_used_bytes": 10e9, "temp_c": 90.0},
         {"util_pct": 60.0, "mem_used_bytes": 30e9, "temp_c": 50.0, "throttle_bits": 0x40},
         {"util_pct": 99.0, "power_w": 999.0}, {"util_pct": 98.0, "power_w": 555.0}],
        states=["ok", "ok", "lost", "stale"], tasks=tasks(("a", 0, "alice"))), NOW, MONO)
    add_node(fleet, "quiet", gpus=2, mono=MONO - 100)
    fleet.tick(MONO)
    totals = views.totals(fleet, whole(fleet), NOW, MONO)
    assert totals["nodes"] == {"live": 1, "suspect": 0, "silent": 1}
    assert totals["simulated"] == 0
    node.hello = msgspec.structs.replace(node.hello, backend="simulated")
    assert views.totals(fleet, whole(fleet), NOW, MONO)["simulated"] == 1
    assert totals["gpus"] == {"total": 6, "ok": 2, "stale": 1, "lost": 1, "error": 0,
                              "offline": 2, "free": 0}, "30 GB that nobody claims"
    assert totals["util_mean_pct"] == 40.0
    assert totals["power_w"] == 100.0
    assert (totals["mem_used_bytes"], totals["mem_total_bytes"]) == (40e9, 160e9)
    assert (totals["tasks"], totals["hot"], totals["throttled"]) == (1, 1, 1)


def test_what_nobody_knows_is_none() -> None:
    fleet = Fleet(1)
    totals = views.totals(fleet, whole(fleet), NOW, MONO)
    for key in ("util_mean_pct", "power_w", "mem_used_bytes", "mem_total_bytes", "hot"):
        assert totals[key] is None
    assert cells(fleet) == []


def test_a_live_gpu_has_each_metric_once_as_value_or_reason() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=1)
    fleet.frame(node, frame([{"util_pct": 12.5, "fan_pct": Absence.UNSUPPORTED}]), NOW, MONO)
    view = views.gpu_view(fleet, 0, GpuStatus.OK, 0, [], MONO + 1)
    assert view.values == {"util_pct": 12.5}
    assert view.missing["fan_pct"] == "unsupported"
    assert set(view.values) | set(view.missing) == {metric.key for metric in COLUMNS}
    assert not set(view.values) & set(view.missing)
    assert (view.state, view.age_s, view.last_values) == ("ok", 1.0, None)


@pytest.mark.parametrize(("show", "reason"), [
    (GpuStatus.STALE, "stale"), (GpuStatus.LOST, "lost"), (GpuStatus.OFFLINE, "stale")])
def test_a_gpu_that_is_not_live_has_last_values_only(show: GpuStatus, reason: str) -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=1)
    fleet.frame(node, frame([{"util_pct": 12.5, "fan_pct": Absence.UNSUPPORTED}]), NOW, MONO)
    view = views.gpu_view(fleet, 0, show, 0, [], MONO + 30)
    assert view.values == {}
    assert view.missing["util_pct"] == reason
    assert view.missing["fan_pct"] == "unsupported"
    assert view.last_values == {"util_pct": 12.5}


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=2)
    on = tasks(("a", 0, "alice"), ("a", 1, "alice"))
    fleet.frame(node, frame([{}, {}], tasks=on), NOW, MONO)
    [task] = task_views(fleet)
    assert task.mem_used_bytes == 2e9
    assert [use.uuid for use in task.gpus] == ["GPU-n1-0", "GPU-n1-1"]
    assert total([1.0, None]) is None


def test_column_order_is_the_contract() -> None:
    assert [COLUMN[key] for key in ("util_pct", "mem_used_bytes")] == [0, 3]


def test_a_suspended_task_says_that_and_what_its_node_permits() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=1)
    node.hello = msgspec.structs.replace(node.hello, actions=("end", "restore", "set_mps"))
    on = tasks(("a", 0, "alice"), ("b", 0, "bohdan"))
    on = msgspec.structs.replace(on, suspended=("a",))
    fleet.frame(node, frame([{}], tasks=on), NOW, MONO)
    suspended, other = task_views(fleet)
    assert (suspended.state, other.state == "suspended") == ("suspended", False)
    assert suspended.permits == other.permits == ["restore"]


def test_a_task_that_cannot_be_suspended_says_why_where_its_node_permits_it() -> None:
    fleet = Fleet(1)
    for name, actions in (("n1", ("suspend", "end")), ("n2", ("end",))):
        node = add_node(fleet, name, gpus=1)
        node.hello = msgspec.structs.replace(node.hello, actions=actions)
        on = tasks((f"a-{name}", 0, "alice"), (f"b-{name}", 0, "bohdan"))
        client, other = on.began
        on = msgspec.structs.replace(
            on, began=(msgspec.structs.replace(client, kind="mps_client"), other))
        fleet.frame(node, frame([{}], tasks=on), NOW, MONO)
    why = {"suspend": "it is no plain compute task"}
    assert {task.id: (task.permits, task.refuses) for task in task_views(fleet)} == {
        "a-n1": (["suspend"], why), "b-n1": (["suspend"], {}), "a-n2": ([], {}), "b-n2": ([], {})}


def test_a_node_that_can_suspend_no_task_says_so_of_each() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=1)
    node.hello = msgspec.structs.replace(node.hello, actions=("suspend",))
    fleet.frame(node, frame([{}], tasks=tasks(("a", 0, "alice"))), NOW, MONO)
    for limits, refuses in ((LimitsNow(NOW), {}),
                            (LimitsNow(NOW, suspend_trouble="not here"), {"suspend": "not here"})):
        node.limits = limits
        assert [task.refuses for task in task_views(fleet)] == [refuses]
