"""Samples for Prometheus: the dialect of dcgm-exporter, nothing twice, nothing made up."""

import random
import re

import pytest
from msgspec.structs import replace

from agent.readings import GpuReading, Reading
from agent.telemetry.prometheus import ThrottledCounters
from dashboard.fleet.fleet import Fleet
from dashboard.fleet.visibility import (
    EVERYTHING_SEEN,
    CommandLineVisibility,
    VisibilityScope,
    focus,
)
from dashboard.prometheus.families import pages, snapshot
from gpudeck.contract.wire import GpuFacts, Inventory, Task, Tasks, Use
from gpudeck.measures.metrics import COLUMNS, SLOW, SLOW_COLUMN, Absence
from gpudeck.measures.throttled_time import MOST_S, VIOLATIONS
from gpudeck.prometheus.dcgm import FIELDS, ExportedGpus, divisor, families
from gpudeck.prometheus.text import family, labels
from tests.unit.fleets import MONO, NOW, Row, add_node, frame, hello, tasks

SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)")
PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Samples = dict[str, list[tuple[dict[str, str], float]]]


def scraped(fleet: Fleet, xids: dict[tuple[str, str], float] | None = None, mono: float = MONO,
            sight: VisibilityScope = EVERYTHING_SEEN,
            names: frozenset[str] | None = None) -> Samples:
    text = "".join(pages(snapshot(fleet, focus(fleet, sight), xids or {}, mono), names))
    samples: Samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            samples.setdefault(sample[1], []).append(
                (dict(PAIR.findall(sample[2])), float(sample[3])))
    return samples


def test_each_field_in_dcgms_unit() -> None:
    fleet, chance = Fleet(1), random.Random(random.random())
    node = add_node(fleet, gpus=1)
    live: dict[str, float | Absence] = {
        "util_pct": chance.randint(0, 100), "mem_used_bytes": float(chance.randint(1, 70) * 2**30),
        "power_w": chance.uniform(0, 700), "energy_j": chance.uniform(1, 1e9),
        "sm_active_pct": chance.uniform(0, 100)}
    slow: dict[str, float | Absence] = {
        "tensor_active_pct": chance.uniform(0, 100), "mem_reserved_bytes": 512.0 * 2**20}
    fleet.frame(node, frame([live], slow=[slow]), NOW, MONO)
    values = {name: samples[0][1] for name, samples in scraped(fleet).items()}

    def number(key: str) -> float:
        value = (live | slow)[key]
        assert not isinstance(value, Absence)
        return value

    assert values["DCGM_FI_DEV_GPU_UTIL"] == number("util_pct")
    assert values["DCGM_FI_DEV_FB_USED"] == number("mem_used_bytes") / 2**20
    assert values["DCGM_FI_DEV_FB_FREE"] == (
        80e9 - number("mem_used_bytes") - number("mem_reserved_bytes")) / 2**20
    assert values["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == round(number("energy_j") * 1_000)
    assert abs(values["DCGM_FI_DEV_POWER_USAGE"] - number("power_w")) < 1e-9
    assert abs(values["DCGM_FI_PROF_SM_ACTIVE"] - number("sm_active_pct") / 100) < 1e-9
    assert abs(values["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"] - number("tensor_active_pct") / 100) < 1e-9


def test_what_is_not_there_is_absent_and_zero_is_a_number() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=2)
    fleet.frame(node, frame([{"util_pct": 0.0, "fan_pct": Absence.UNSUPPORTED, "temp_c": 40.0},
                             {"util_pct": Absence.DENIED, "temp_c": 50.0}],
                            states=("ok", "lost")), NOW, MONO)
    samples = scraped(fleet)
    assert [value for _, value in samples["DCGM_FI_DEV_GPU_UTIL"]] == [0.0]
    assert "DCGM_FI_DEV_FAN_SPEED" not in samples
    assert [row["gpu"] for row, _ in samples["DCGM_FI_DEV_GPU_TEMP"]] == ["0"], "one is lost"
    assert [row["state"] for row, _ in samples["gpudeck_gpu_state"]] == ["ok", "lost"]
    assert "gpudeck_gpu_tasks" not in samples, "nobody has told of tasks"
    stale = scraped(fleet, mono=MONO + 30)
    assert not [name for name in stale if name.startswith("DCGM")]
    assert {row["state"] for row, _ in stale["gpudeck_gpu_state"]} == {"stale", "lost"}


def split_fleet() -> Fleet:
    """A board that tells memory, heat and power, and three instances: two of one GPU instance."""
    fleet = Fleet(1)
    node = fleet.hello(hello(), NOW, MONO)
    board = GpuFacts("GPU-b", 3, "NVIDIA H100", minor=3, mem_total_bytes=80e9)
    parts = [GpuFacts(f"MIG-{at}", 3, "H100 MIG", parent_uuid="GPU-b", mig_profile="3g.40gb",
                      gpu_instance=gi, compute_instance=at, mem_total_bytes=40e9)
             for at, gi in enumerate((1, 2, 2))]
    fleet.inventory(node, Inventory(1, (board, *parts)))
    rows: list[Row] = [
        {"mem_used_bytes": 3.0 * 2**30, "temp_c": 60.0, "power_w": 300.0, "sm_active_pct": 20.0},
        *({"mem_used_bytes": float(gib) * 2**30, "sm_active_pct": 50.0} for gib in (1, 2, 2))]
    fleet.frame(node, frame(rows), NOW, MONO)
    return fleet


def test_mig_is_counted_once() -> None:
    samples = scraped(split_fleet())
    assert sum(value for _, value in samples["DCGM_FI_DEV_FB_USED"]) == 3 * 1024
    assert sum(value for _, value in samples["DCGM_FI_DEV_FB_TOTAL"]) == 80e9 / 2**20
    assert [value for _, value in samples["DCGM_FI_DEV_POWER_USAGE"]] == [300.0]
    activity = samples["DCGM_FI_PROF_SM_ACTIVE"]
    assert [row["mig_uuid"] for row, _ in activity] == ["MIG-0", "MIG-1", "MIG-2"]
    assert {(row["gpu"], row["UUID"], row["device"], row["modelName"], row["GPU_I_PROFILE"])
            for row, _ in activity} == {("3", "GPU-b", "nvidia3", "NVIDIA H100", "3g.40gb")}
    assert [row["GPU_I_ID"] for row, _ in activity] == ["1", "2", "2"]


def test_the_drivers_version_is_a_label_as_in_dcgm_exporter() -> None:
    """Found by examiners: one of its default counters, and a panel by driver was empty."""
    fleet = split_fleet()
    fleet.nodes["n1"].hello = replace(fleet.nodes["n1"].hello, driver_version="580.95.05")
    samples = scraped(fleet)
    for name in ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_SM_ACTIVE", "gpudeck_gpu_state"):
        assert {row["DCGM_FI_DRIVER_VERSION"] for row, _ in samples[name]} == {"580.95.05"}, name
    unknown = scraped(split_fleet())["DCGM_FI_DEV_POWER_USAGE"]
    assert ["DCGM_FI_DRIVER_VERSION" in row for row, _ in unknown] == [False]


def test_text_from_nodes_makes_no_samples() -> None:
    fleet = Fleet(1)
    evil = 'x"} 1\nDCGM_FI_DEV_GPU_TEMP{gpu="\\'
    node = fleet.hello(hello(host=evil), NOW, MONO)
    fleet.inventory(node, Inventory(1, (GpuFacts("GPU-1\0", 0, evil),)))
    report = Tasks(True, (Task("t1", 1, 1, NOW, evil, "c", pod=evil, namespace="n"),),
                   (Use("t1", 0, 1.0, None),))
    fleet.frame(node, frame([{"temp_c": 40.0}], tasks=report), NOW, MONO)
    samples = scraped(fleet)
    assert [value for _, value in samples["DCGM_FI_DEV_GPU_TEMP"]] == [40.0]
    row = samples["DCGM_FI_DEV_GPU_TEMP"][0][0]
    assert row["Hostname"].replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\") == evil
    assert "\0" not in row["UUID"]


def test_two_nodes_that_say_the_same_cost_nobody_the_page() -> None:
    fleet = Fleet(1)
    for node_id, temp_c in (("a", 41.0), ("b", 42.0)):
        node = fleet.hello(hello(node_id, host="same"), NOW, MONO)
        fleet.inventory(node, Inventory(1, (GpuFacts("GPU-1", 0, "H100"),)))
        fleet.frame(node, frame([{"temp_c": temp_c}]), NOW, MONO)
    assert [value for _, value in scraped(fleet)["DCGM_FI_DEV_GPU_TEMP"]] == [41.0]


def test_a_pod_where_all_tasks_are_of_one() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=2)
    began = tuple(Task(f"t{at}", at + 1, 1, NOW, "alice", "c", pod=pod, namespace="ml")
                  for at, pod in enumerate(("p1", "p1", "p1", "p2")))
    uses = tuple(Use(task.id, at // 2, 1e9, 50.0) for at, task in enumerate(began))
    fleet.frame(node, frame([{"temp_c": 1.0}, {"temp_c": 2.0}],
                            tasks=Tasks(True, began, uses)), NOW, MONO)
    samples = scraped(fleet)
    pods = [row.get("pod") for row, _ in samples["DCGM_FI_DEV_GPU_TEMP"]]
    assert pods == ["p1", None], "the second GPU is shared by two pods"
    assert samples["gpudeck_owner_gpus"] == [({"user": "alice"}, 2.0)]
    assert samples["gpudeck_owner_tasks"] == [({"user": "alice"}, 4.0)]
    assert [value for _, value in samples["gpudeck_task_sm_ratio"]] == [0.5] * 4


def test_a_token_sees_its_groups_only() -> None:
    fleet = Fleet(1)
    for node_id in ("ours", "theirs"):
        node = add_node(fleet, node_id, gpus=1)
        fleet.frame(node, frame([{"temp_c": 40.0}],
                                tasks=tasks((f"{node_id}-t", 0, f"{node_id}-user"))), NOW, MONO)
        fleet.set_group(node_id, node_id)
    text = str(scraped(fleet, sight=VisibilityScope(("ours",), CommandLineVisibility(False))))
    assert "ours.example" in text
    assert "theirs" not in text


def test_xids_of_late_and_names_that_are_wanted() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=2)
    fleet.frame(node, frame([{"temp_c": 40.0}, {"temp_c": 41.0}]), NOW, MONO)
    scrape = scraped(fleet, {("n1", "GPU-n1-1"): 79.0},
                     names=frozenset({"DCGM_FI_DEV_XID_ERRORS", "gpudeck_agent_up"}))
    assert set(scrape) == {"DCGM_FI_DEV_XID_ERRORS", "gpudeck_agent_up"}
    assert [(row["gpu"], value) for row, value in scrape["DCGM_FI_DEV_XID_ERRORS"]] == [("1", 79.0)]


def test_an_xid_is_told_whatever_can_be_read_since() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=2)
    fleet.frame(node, frame([{"temp_c": 40.0}, {"temp_c": 41.0}], states=("ok", "lost"),
                            tasks=tasks(("t", 0, "alice"), ("u", 1, "bo"))), NOW, MONO)
    xids = {("n1", "GPU-n1-1"): 79.0}
    for mono in (MONO, MONO + 30, MONO + 300):
        samples = scraped(fleet, xids, mono)
        assert [(row["gpu"], value) for row, value in samples["DCGM_FI_DEV_XID_ERRORS"]] == [
            ("1", 79.0)]


@pytest.mark.parametrize("state", ["lost", "error"])
def test_who_holds_a_gpu_that_cannot_be_asked_is_not_known(state: str) -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=2)
    fleet.frame(node, frame([{"temp_c": 40.0}, {"temp_c": 41.0}], states=("ok", state),
                            tasks=tasks(("t", 0, "alice"))), NOW, MONO)
    task_counts = [(row["gpu"], value) for row, value in scraped(fleet)["gpudeck_gpu_tasks"]]
    assert task_counts == [("0", 1.0)], "and 0 would be a claim"


def test_the_table_is_whole() -> None:
    """Metrics with a name of DCGM's have a help, counters are counters, names are unique."""
    by_key = {metric.key: metric for metric in COLUMNS + SLOW if metric.prometheus}
    helped = {metric.key for metric in COLUMNS + SLOW if metric.help}
    assert helped == set(by_key) == {field.key for field in FIELDS}
    assert len({field.prometheus for field in FIELDS}) == len(FIELDS)
    one = ExportedGpus(['gpu="0"'], [-1], [False], [1.0], [1.0], [[1.0]] * len(VIOLATIONS))
    text = "".join(families(one, {field.key: [1.0] for field in FIELDS}))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    assert {kinds[row.prometheus] for row in VIOLATIONS} == {"counter"}
    assert {metric.key for metric in by_key.values() if kinds[metric.prometheus] == "counter"} == {
        key for key, metric in by_key.items() if metric.aggregate == "counter"}
    assert all(divisor(field) == 100 for field in FIELDS if field.unit == "%"
               and field.prometheus.startswith(("DCGM_FI_PROF_", "gpudeck_")))


POWER, THERMAL = (row.prometheus for row in VIOLATIONS)


def test_throttling_counts_up_as_long_as_it_lasts() -> None:
    """A slow reading is of the 15 s before it; in between, the one before still holds."""
    fleet, share = Fleet(1), random.uniform(1, 50)
    node = add_node(fleet, gpus=2)

    def counters(after_s: float, row: Row) -> dict[str, list[float]]:
        fleet.frame(node, frame([{}, {}], seq=int(after_s) + 1, taken_at=NOW + after_s,
                                slow=[row, {}]),
                    NOW + after_s, MONO + after_s)
        return {name: [value for _, value in scraped(fleet, mono=MONO + after_s).get(name, [])]
                for name in (POWER, THERMAL)}

    heat: dict[str, float | Absence] = {
        "slowed_soft_thermal_pct": share, "slowed_hard_thermal_pct": share}
    power: dict[str, float | Absence] = {"slowed_power_pct": share}
    assert counters(0, power | heat) == {POWER: [0.0], THERMAL: [0.0]}
    counts = counters(15, power | heat)
    assert counts[POWER] == [pytest.approx(15e9 * share / 100)]
    assert counts[THERMAL] == [pytest.approx(15e9 * 2 * share / 100)]
    # After 45 s without news 30 s were as before, and 15 s as it is now.
    counts = counters(60, {"slowed_power_pct": 0.0})
    assert counts[POWER] == [pytest.approx(45e9 * share / 100)]
    assert counts[THERMAL] == [pytest.approx(15e9 * 2 * share / 100)], "not told: not counted"
    assert counters(60 + 2 * MOST_S, {"slowed_power_pct": 100.0})[POWER] == [
        pytest.approx(45e9 * share / 100)], "nobody knows what so long a gap was like"


def test_the_agents_own_page_counts_the_same() -> None:
    share, counters = random.uniform(1, 50), ThrottledCounters()

    def read(at_mono: float, pct: float) -> list[list[float]]:
        values = tuple(pct if key == "slowed_power_pct" else 0.0 for key in SLOW_COLUMN)
        absent = bytes(Absence.PRESENT if key == "slowed_power_pct" else Absence.UNSUPPORTED
                       for key in SLOW_COLUMN)
        gpu = GpuReading("G", "ok", (), b"", values, absent)
        counters.put(Reading(NOW, 1.0, (gpu,), (), None), at_mono)
        return counters.columns(["G"], [True])

    assert read(0, share)[0] == [0.0]
    assert read(60, 0.0)[0] == [pytest.approx(45e9 * share / 100)]
    power, heat = read(75, share)
    assert power == [pytest.approx(60e9 * share / 100)]
    assert heat != heat or heat[0] != heat[0], "absent, not 0"


def test_no_samples_no_family() -> None:
    assert family("x", "gauge", "help", [labels({"a": "1"})], [float("nan")]) == ""
    assert family("x", "gauge", "a\nb", [labels({"a": "1", "b": None})], [0.0]) == (
        '# HELP x a\\nb\n# TYPE x gauge\nx{a="1"} 0\n')
