"""A node's host in the live picture: as it was reported, never an old one as live; in the API, in
/metrics and as numbers of rules."""

import random
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dashboard.alerts.core.rule_signal import SignalTerm
from dashboard.alerts.core.target_collector import RuleTargetCollector
from dashboard.fleet.events import RecentEvents
from dashboard.fleet.fleet import HOST_STALE_AFTER_S, Fleet
from dashboard.fleet.host_views import host_load, host_uses, serving_of
from dashboard.fleet.visibility import EVERYTHING_SEEN, focus
from dashboard.prometheus.families import pages, snapshot
from gpudeck.contract.hosts import HOST_KEYS, HostSample, HostTask
from gpudeck.contract.serving import ServingSample
from tests.unit import fleets
from tests.unit.fleets import MONO, NOW


def host_sample(cpu_pct: float, rate: float | None = 200.0) -> HostSample:
    return HostSample(
        {"cpu_pct": cpu_pct, "io_pressure_pct": 40.0, "load_1m": -3.0, "of_the_future": 1.0},
        {"rdma_rx_bytes_per_s": "unsupported"},
        (HostTask("a", 150.0, 2e9, 3e6, 1e6, 2.0), HostTask("b", None, None, None, None, None)),
        (ServingSample("a", "vllm", "", 1e6, 2e6, 10.0, rate, 3.0, 4.0, 50.0),))


def fleet_with(sample: HostSample, *on: tuple[str, int, str | None]) -> Fleet:
    fleet = Fleet(1)
    node = fleets.add_node(fleet)
    rows = [{"util_pct": 30.0, "power_w": 300.0}, {"util_pct": 90.0, "power_w": 500.0}]
    message = fleets.frame(rows, tasks=fleets.tasks(*on))
    node.set_clock(NOW, MONO, NOW, MONO)
    fleet.frame(node, structs.replace(message, host=sample), NOW, MONO)
    return fleet


def test_what_is_there_and_why_what_is_not() -> None:
    cpu_pct = random.uniform(0, 100)
    node = fleet_with(host_sample(cpu_pct), ("a", 0, "ann")).nodes["n1"]
    load = host_load(node, MONO + 3)
    assert load is not None
    assert load.numbers == {"cpu_pct": cpu_pct, "io_pressure_pct": 40.0}
    assert load.age_s == pytest.approx(3.0)
    assert load.missing["rdma_rx_bytes_per_s"] == "unsupported"
    assert {*load.numbers, *load.missing} == {*HOST_KEYS}  # out of range is unknown
    assert host_uses(node, MONO)["b"].cpu_pct is None
    late = MONO + HOST_STALE_AFTER_S + 1
    assert (host_load(node, late), host_uses(node, late)) == (None, {})


def test_energy_per_token_is_of_the_jobs_own_boards() -> None:
    sample = host_sample(1.0)
    mine = fleet_with(sample, ("a", 0, "ann"), ("a", 1, "ann"))
    serving = serving_of(mine, mine.nodes["n1"], MONO)["a"]
    assert serving.joules_per_million_tokens == pytest.approx(1e6 * 800.0 / 200.0)
    shared = fleet_with(sample, ("a", 0, "ann"), ("b", 0, "bob"))
    assert serving_of(shared, shared.nodes["n1"], MONO)["a"].joules_per_million_tokens is None
    for rate in (0.0, None):
        idle = fleet_with(host_sample(1.0, rate), ("a", 0, "ann"))
        assert serving_of(idle, idle.nodes["n1"], MONO)["a"].joules_per_million_tokens is None


def test_prometheus_has_hosts_while_they_are_told() -> None:
    fleet = fleet_with(host_sample(25.0), ("a", 0, "ann"))
    visible = focus(fleet, EVERYTHING_SEEN)
    text = "".join(pages(snapshot(fleet, visible, {}, MONO)))
    assert 'gpudeck_host_cpu_ratio{Hostname="n1.example",node="n1"} 0.25' in text
    assert ('gpudeck_task_host_cpu_ratio{Hostname="n1.example",node="n1",task="a",user="ann"} 1.5'
            in text)
    assert "gpudeck_serving_requests_waiting" in text
    assert "gpudeck_host_load1" not in text  # out of its range
    later = "".join(pages(snapshot(fleet, visible, {}, MONO + HOST_STALE_AFTER_S + 1)))
    assert "gpudeck_host_" not in later
    assert "gpudeck_serving_" not in later


def test_rules_read_them() -> None:
    fleet = fleet_with(host_sample(25.0), ("a", 0, "ann"), ("b", 1, "bob"))
    targets: Any = RuleTargetCollector(fleet, RecentEvents()).look(NOW, MONO, 0.0)

    def numbers(of: str, name: str) -> dict[str, float]:
        values = targets[of].numbers(SignalTerm("last", name)).values
        return {targets[of].name(row).key: float(values[row])
                for row in np.flatnonzero(targets[of].there).tolist()}

    assert numbers("node", "host_cpu_pct") == {"n1": 25.0}
    assert np.isnan([*numbers("node", "host_load_1m").values()]).all()
    assert numbers("task", "works_on_host") == {"a": 1.0, "b": 0.0}
    assert numbers("task", "starved_pct") == {"a": 70.0, "b": 10.0}
    assert numbers("task", "host_io_bytes_per_s")["a"] == 4e6
    assert numbers("task", "tokens_per_s")["a"] == 200.0
    assert np.isnan(numbers("task", "requests")["b"])
    assert numbers("task", "requests")["a"] == 7.0
