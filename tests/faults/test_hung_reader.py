"""A driver that hangs: the values turn stale with their age, the heartbeat goes on, other nodes are
unaffected, and when the driver answers again everything recovers by itself."""

import json
import time
from pathlib import Path
from typing import Any

from tests.demos import Demo, soon

HUNG, OTHER = "n002", "n001"


def node(demo: Demo, host: str) -> dict[str, Any]:
    return next(row for row in demo.ask("nodes") if row["host"] == host)


def gpus(demo: Demo, host: str) -> list[dict[str, Any]]:
    return demo.ask(f"gpus?filter=node:{host}")


def all_in_state(demo: Demo, host: str, state: str) -> bool:
    return {gpu["state"] for gpu in gpus(demo, host)} == {state}


def test_stale_with_age_heartbeat_on_recovery_by_itself(tmp_path: Path) -> None:
    flags = ("--nodes", "2", "--gpus", "2", "--faults", "off")
    with Demo(tmp_path / "demo", *flags) as demo:
        assert all_in_state(demo, HUNG, "ok")
        control = demo.data / "control.json"
        control.write_text(json.dumps({"nodes": {HUNG: {"reader": "hang"}}}))
        assert soon(lambda: all_in_state(demo, HUNG, "stale"), 12)
        check_for_ten_seconds(demo)
        assert node(demo, HUNG)["reader"]["state"] == "hung"
        control.unlink()
        assert soon(lambda: all_in_state(demo, HUNG, "ok"), 12)
        assert soon(lambda: node(demo, HUNG)["reader"]["state"] == "ok", 4)
        assert node(demo, HUNG)["frames"]["missing"] == 0


def check_for_ten_seconds(demo: Demo) -> None:
    first_age_s = gpus(demo, HUNG)[0]["age_s"]
    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < 10:
        beat_age_s = time.time() - node(demo, HUNG)["last_heard_at"]
        assert beat_age_s < 5, "the heartbeat goes on"
        assert node(demo, HUNG)["state"] == "live"
        assert all_in_state(demo, OTHER, "ok")
        for gpu in gpus(demo, HUNG):
            assert gpu["values"] == {}, "an old value is not passed off as live"
            assert set(gpu["missing"].values()) <= {"stale", "unsupported"}
            assert "util_pct" in gpu["last_values"]
        time.sleep(0.5)
    assert gpus(demo, HUNG)[0]["age_s"] > first_age_s + passed_s - 2
