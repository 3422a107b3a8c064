"""`gpudeck import`: recordings of others in a real hub's history, at their own times, marked."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.integration.hubs import REPOSITORY, HubProcess, WireAgent, wait_for
from tests.integration.visitors import add_program

RULE = """rules:
  - id: warm
    title: warm
    of: gpu
    scope: "*"
    signal: temp_c
    fire: "> 90"
    clear: "< 85"
    for: 0s
    severity: warn
    mode: observe
"""


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as hub:
        yield hub
        assert "Traceback" not in hub.log.read_text()


def gpudeck(hub: HubProcess, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "gpudeck.cli.main", *words, "--data",
                           str(hub.folder)],
                          cwd=REPOSITORY, capture_output=True, text=True, timeout=120)


def import_file(hub: HubProcess, *words: str) -> Any:
    process = gpudeck(hub, "import", *words, "--json")
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def series(hub: HubProcess, gpu: str, metric: str, begin: int, end: int, which: str = "mean"
           ) -> dict[int, float]:
    reply = hub.get(f"/api/v1/series?gpu={quote(gpu)}&metric={metric}&start={begin}&end={end}"
                    "&step=1")
    return {t: value for t, value in zip(reply["t"], reply[which], strict=True)
            if value is not None}


def test_ten_rows_a_second_of_eight_gpus(hub: HubProcess, tmp_path: Path) -> None:
    """Means, peaks and last values of each second are the file's; a rule rehearses on them."""
    begin, seconds = int(time.time()) - 3 * 3_600, 60
    truth: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    lines = ["timestamp, index, utilization.gpu [%], power.draw [W], temperature.gpu"]
    for tick in range(seconds * 10):
        at = datetime.fromtimestamp(begin + tick / 10, UTC)
        for gpu in range(8):
            row = (random.randint(0, 100), random.randint(60, 700),
                   random.randint(91, 99) if gpu == 5 and 200 <= tick < 500 else 60)
            truth.setdefault((gpu, begin + tick // 10), []).append(row)
            lines.append(f"{at:%Y/%m/%d %H:%M:%S.%f}"[:-3]
                         + f", {gpu}, {row[0]} %, {row[1]}.00 W, {row[2]}")
    log = tmp_path / "fast.csv"
    log.write_text("\n".join(lines))
    report = import_file(hub, str(log), "--node", "rec1", "--tz", "UTC")
    [node] = report["nodes"]
    assert (node["seconds"], node["step_s"]) == (8 * seconds, 1)
    assert report["files"][0]["bad"] == 0
    for gpu in (0, 5, 7):
        uuid = node["gpus"][gpu]
        rows = {t: truth[gpu, t] for t in range(begin, begin + seconds)}
        util = series(hub, uuid, "util_pct", begin, begin + seconds)
        assert util == {t: pytest.approx(sum(row[0] for row in part) / 10, abs=0.26)
                        for t, part in rows.items()}  # history keeps halves of a per cent
        peak = series(hub, uuid, "util_max_pct", begin, begin + seconds)
        assert peak == {t: max(row[0] for row in part) for t, part in rows.items()}
        temp = series(hub, uuid, "temp_c", begin, begin + seconds)
        assert temp == {t: part[-1][2] for t, part in rows.items()}
    assert run_backtest(hub, tmp_path, begin, begin + seconds) == [("rec1", 5)]
    # Again: nothing is taken twice, and nothing changes.
    import_file(hub, str(log), "--node", "rec1", "--tz", "UTC")
    assert series(hub, node["gpus"][5], "temp_c", begin, begin + seconds) == temp_of(truth, 5)
    hub.kill()
    hub.start()
    assert series(hub, node["gpus"][5], "temp_c", begin, begin + seconds) == temp_of(truth, 5)
    is_marked(hub, "rec1", 8)


def temp_of(truth: dict[tuple[int, int], list[tuple[int, int, int]]], gpu: int
            ) -> dict[int, float]:
    return {t: part[-1][2] for (of, t), part in truth.items() if of == gpu}


def run_backtest(hub: HubProcess, tmp_path: Path, begin: int, end: int) -> list[tuple[str, int]]:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULE)
    result = gpudeck(hub, "rules", "backtest", str(rules), "--start", str(begin), "--end", str(end),
                     "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    [backtest] = json.loads(result.stdout)
    return [(alert["host"], int(alert["place"])) for alert in backtest["alerts"]]


def is_marked(hub: HubProcess, name: str, gpus: int) -> None:
    """Check that it is a past without a present: in no total, and no alert is about it."""
    node = hub.get(f"/api/v1/nodes/{name}")
    assert (node["imported"], node["backend"], node["state"], node["gpus"]) == (
        True, "imported", "silent", gpus)
    assert hub.get("/api/v1/gpus")["items"] == []
    assert [alert for alert in hub.get("/api/v1/alerts")["items"] if alert["host"] == name] == []
    text = hub.ask("/metrics").body.decode()
    assert name not in text


def test_beside_a_machine_of_the_same_name(hub: HubProcess, tmp_path: Path) -> None:
    """The recording has the live board's UUID: a series of that board has none of it."""
    agent = WireAgent("n9")
    agent.connect(hub)
    agent.tick()
    wait_for(lambda: agent.acked == agent.seq)
    begin = int(time.time()) - 7_200
    log = tmp_path / "log.csv"
    log.write_text(f"t,host,uuid,temp_c\n{begin},host-n9,GPU-n9-0,77\n")
    [node] = import_file(hub, str(log))["nodes"]
    assert hub.get("/api/v1/nodes/host-n9")["id"] == agent.node_id
    assert series(hub, node["gpus"][0], "temp_c", begin, begin + 60) == {begin: 77}
    assert series(hub, "GPU-n9-0", "temp_c", begin, begin + 60) == {}
    agent.close()


def test_what_is_refused_leaves_nothing(hub: HubProcess, tmp_path: Path) -> None:
    def import_error(text: str, *words: str) -> str:
        log = tmp_path / "bad.csv"
        log.write_text(text)
        process = gpudeck(hub, "import", str(log), "--node", "bad1", *words)
        assert process.returncode != 0
        assert hub.ask("/api/v1/nodes/bad1").status == 404
        return process.stderr

    now = int(time.time())
    assert "--gpu 0" in import_error(f"t,util_pct\n{now},1\n")
    assert "still to come" in import_error(f"t,index,util_pct\n{now + 3_600},0,1\n")
    assert "730 days" in import_error(f"t,index,util_pct\n{now - 3 * 366 * 86_400},0,1\n")
    assert "no row" in import_error("t,index,util_pct\nx,0,1\n")
    assert hub.ask("/api/v1/imports", "POST", add_program(hub, "viewer"), b"{}").status == 403


def test_old_seconds_are_kept_as_minutes_and_it_says_so(hub: HubProcess, tmp_path: Path) -> None:
    begin = int(time.time()) // 60 * 60 - 3 * 86_400
    values = [random.randint(0, 100) for _ in range(60)]
    log = tmp_path / "old.csv"
    log.write_text("t,index,util_pct,ecc_corrected\n" + "".join(
        f"{begin + at},0,{value},{at // 30}\n" for at, value in enumerate(values)))
    process = gpudeck(hub, "import", str(log), "--node", "old1")
    assert "by the minute only" in process.stdout, process.stdout + process.stderr
    uuid = hub.get("/api/v1/nodes/old1")
    assert uuid["imported"]
    gpu = import_file(hub, str(log), "--node", "old1")["nodes"][0]["gpus"][0]

    def minute() -> Any:
        reply = hub.get(f"/api/v1/series?gpu={gpu}&metric=util_pct&start={begin}&end={begin + 60}"
                        "&step=60")
        return reply["mean"][0]

    assert minute() == pytest.approx(sum(values) / 60, abs=0.01)
