"""A healthy simulated fleet, live: it raises no alert that is not true, and none that is critical.
It prints what it raised."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from agent.backends.simulation.scenes import STUCK_NODE
from dashboard.demo.fleet import node_name
from tests.demos import Demo, soon
from tests.integration.test_demo_hour import rehearse

pytestmark = pytest.mark.soak
MINUTES = os.environ.get("GPUDECK_SOAK_HEALTHY_MIN")
LOOK_EVERY_S = 10.0
BEFORE_S = 900.0  # of a rehearsal: the longest that a rule looks back, without idle-held
# What is wrong on purpose in a fleet in which nothing fails: rule, and the nodes.
STAGED = {"idle-held": "n001", "slowed-by-heat": "n003", "rank-lagging": "n002 n003",
          "job-stuck": node_name(STUCK_NODE), "no-progress": node_name(STUCK_NODE)}
# Made-up schedulers give GPUs away that nobody uses; and the machine under test may be slow.
ANYWHERE = {"allocated-unused", "scan-late"}


@pytest.mark.parametrize(("nodes", "minutes"), [(8, 30), (125, 15)], ids=["64", "1000"])
def test_a_healthy_fleet_raises_no_alert_that_is_not_true(tmp_path: Path, nodes: int, minutes: int
                                                          ) -> None:
    with Demo(tmp_path / "demo", "--nodes", str(nodes), "--faults", "off",
              "--history-hours", "1") as demo:
        assert soon(lambda: demo.info()["history"]["is_ready"], 900), demo.log.read_text()
        alerts_by_id: dict[str, dict[str, Any]] = {}
        end = time.monotonic() + 60 * float(MINUTES or minutes)
        while time.monotonic() < end:
            for state in ("open", "ended"):
                alerts_by_id |= {alert["id"]: alert for alert in demo.ask(
                    f"alerts?state={state}&limit=1000")}
            time.sleep(LOOK_EVERY_S)
        print(f"{nodes * 8} GPUs, {len(alerts_by_id)} alerts")
        for alert in alerts_by_id.values():
            print(*(alert[name] for name in (
                "severity", "rule", "host", "place", "users", "value", "state")))
        assert [alert for alert in alerts_by_id.values() if alert["severity"] == "crit"] == []
        rules = {entry["rule"]["id"]: entry["rule"] for entry in demo.ask("rules")}
        assert [alert for alert in alerts_by_id.values()
                if not is_true(demo, rules[alert["rule"]], alert)] == []
        assert [alert["place"] for alert in alerts_by_id.values() if alert["rule"] == "idle-held"
                and alert["host"] == "n001"] == ["5"]


def is_true(demo: Demo, rule: dict[str, Any], alert: dict[str, Any]) -> bool:
    """Return whether the fault is staged there; of others, whether what history has of that time
    raises the same alert."""
    host, _, _ = alert["host"].partition(" ")  # "n002 and 1 more"
    if rule["id"] in ANYWHERE or host in STAGED.get(rule["id"], "").split():
        return True
    backtest = rehearse(demo, rule, alert["since"] - BEFORE_S, alert["fired_at"] + 120.0)
    return backtest is not None and any(
        (past["host"], past["place"]) == (alert["host"], alert["place"])
        for past in backtest["alerts"])
