"""Values and limits of rules, where terminals and records show them: with their units."""

from typing import Any

import pytest

from dashboard.alerts.core.measure import measure_of_rule
from dashboard.alerts.core.rule import check, read
from dashboard.automation.rule_planner import condition
from dashboard.cli.rules_hub import rehearsal_lines

BASE = {"id": "hot", "title": "Hot", "scope": "*"}


def ready(**fields: Any) -> Any:
    return check(read(BASE | {"signal": "temp_c", "fire": ">=  85"} | fields))


@pytest.mark.parametrize(("fields", "words"), [
    ({}, "Hot: temp_c >= 85 °C"),
    ({"for": "2m"}, "Hot: temp_c >= 85 °C for 2m"),
    ({"signal": "rate(ecc_corrected, 10m)", "fire": "> 10/h"},
     "Hot: rate(ecc_corrected, 10m) > 10/h"),
    ({"of": "task", "signal": "mem_used_bytes", "fire": "> 42949672960"},
     "Hot: mem_used_bytes > 40.0 GiB"),
    ({"where": ["power_w < 300", "mem_used_bytes / mem_total_bytes >= 90%"]},
     "Hot: temp_c >= 85 °C, and power_w < 300 W, and mem_used_bytes / mem_total_bytes >= 90 %"),
    ({"signal": "power_w / util_pct", "fire": "> 4"}, "Hot: power_w / util_pct > 4")])
def test_a_record_of_a_rule_that_acts_has_units(fields: dict[str, Any], words: str) -> None:
    """Reason in the audit log, in previews and in the mail to the owner."""
    assert condition(ready(**fields)).text == words


def test_a_rehearsal_in_a_terminal_has_units() -> None:
    alert = {"fired_at": 0.0, "ended_at": None, "host": "n1", "place": "3", "target": "GPU-1",
             "value": 91.0}
    rehearsal = {"rule": {"id": "hot"}, "state": "done", "alerts_count": 1, "targets": 2,
                 "start": 0.0, "end": 60.0, "off_by_s": 0, "id": "r", "alerts": [alert],
                 "victims": [], "victims_count": 0, "refused": [], "refused_count": 0,
                 "gpu_hours": None}
    head, line = rehearsal_lines(rehearsal, measure_of_rule(ready()))
    assert head.startswith("hot: 1 alert of 2 targets, ")
    assert line.endswith("n1 GPU 3  91 °C")
