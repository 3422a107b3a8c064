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
    return subprocess.run([sys.executable, "-m", "gpudeck.cli", *words, "--data", str(hub.folder)],
                          cwd=REPOSITORY, capture_output=True, text=True, timeout=120)


def imported(hub: HubProcess, *words: str) -> Any:
    done = gpudeck(hub, "import", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def series(hub: HubProcess, gpu: str, metric: str, begin: int, end: int, which: str = "mean"
           ) -> dict[int, float]:
    found = hub.get(f"/api/v1/series?gpu={quote(gpu)}&metric={metric}&start={begin}&end={end}"
                    "&step=1")
    return {t: value for t, value in zip(found["t"], found[which], strict=True)
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
    told = imported(hub, str(log), "--node", "rec1", "--tz", "UTC")
    [node] = told["nodes"]
    assert (node["seconds"], node["step_s"]) == (8 * seconds, 1)
    assert told["files"][0]["bad"] == 0
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
    assert rehearsed(hub, tmp_path, begin, begin + seconds) == [("rec1", 5)]
    # Again: nothing is taken twice, and nothing changes.
    imported(hub, str(log), "--node", "rec1", "--tz", "UTC")
    assert series(hub, node["gpus"][5], "temp_c", begin, begin + seconds) == temp_of(truth, 5)
    hub.kill()
    hub.start()
    assert series(hub, node["gpus"][5], "temp_c", begin, begin + seconds) == temp_of(truth, 5)
    is_marked(hub, "rec1", 8)


def temp_of(truth: dict[tuple[int, int], list[tuple[int, int, int]]], gpu: int
            ) -> dict[int, float]:
    return {t: part[-1][2] for (of, t), part in truth.items() if of == gpu}


def rehearsed(hub: HubProcess, tmp_path: Path, begin: int, end: int) -> list[tuple[str, int]]:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULE)
    done = gpudeck(hub, "rules", "backtest", str(rules), "--start", str(begin), "--end", str(end),
                   "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [result] = json.loads(done.stdout)
    return [(each["host"], int(each["place"])) for each in result["alerts"]]


def is_marked(hub: HubProcess, name: str, gpus: int) -> None:
    """It is a past without a present: in no total, and no alert is about it."""
    node = hub.get(f"/api/v1/nodes/{name}")
    assert (node["imported"], node["backend"], node["state"], node["gpus"]) == (
        True, "imported", "silent", gpus)
    assert hub.get("/api/v1/gpus")["items"] == []
    assert [each for each in hub.get("/api/v1/alerts")["items"] if each["host"] == name] == []
    text = hub.ask("/metrics").body.decode()
    assert name not in text


def test_beside_a_machine_of_the_same_name(hub: HubProcess, tmp_path: Path) -> None:
    """With its board's UUID: a series of the live board has none of the recording in it."""
    agent = WireAgent("n9")
    agent.connect(hub)
    agent.tick()
    wait_for(lambda: agent.acked == agent.seq)
    begin = int(time.time()) - 7_200
    log = tmp_path / "log.csv"
    log.write_text(f"t,host,uuid,temp_c\n{begin},host-n9,GPU-n9-0,77\n")
    [node] = imported(hub, str(log))["nodes"]
    assert hub.get("/api/v1/nodes/host-n9")["id"] == agent.node_id
    assert series(hub, node["gpus"][0], "temp_c", begin, begin + 60) == {begin: 77}
    assert series(hub, "GPU-n9-0", "temp_c", begin, begin + 60) == {}
    agent.close()


def test_what_is_refused_leaves_nothing(hub: HubProcess, tmp_path: Path) -> None:
    def refused(text: str, *words: str) -> str:
        log = tmp_path / "bad.csv"
        log.write_text(text)
        done = gpudeck(hub, "import", str(log), "--node", "bad1", *words)
        assert done.returncode != 0
        assert hub.ask("/api/v1/nodes/bad1").status == 404
        return done.stderr

    now = int(time.time())
    assert "--gpu 0" in refused(f"t,util_pct\n{now},1\n")
    assert "still to come" in refused(f"t,index,util_pct\n{now + 3_600},0,1\n")
    assert "730 days" in refused(f"t,index,util_pct\n{now - 3 * 366 * 86_400},0,1\n")
    assert "no row" in refused("t,index,util_pct\nx,0,1\n")
    assert hub.ask("/api/v1/imports", "POST", add_program(hub, "viewer"), b"{}").status == 403


def test_old_seconds_are_kept_as_minutes_and_it_says_so(hub: HubProcess, tmp_path: Path) -> None:
    begin = int(time.time()) // 60 * 60 - 3 * 86_400
    values = [random.randint(0, 100) for _ in range(60)]
    log = tmp_path / "old.csv"
    log.write_text("t,index,util_pct,ecc_corrected\n" + "".join(
        f"{begin + at},0,{value},{at // 30}\n" for at, value in enumerate(values)))
    done = gpudeck(hub, "import", str(log), "--node", "old1")
    assert "by the minute only" in done.stdout, done.stdout + done.stderr
    uuid = hub.get("/api/v1/nodes/old1")
    assert uuid["imported"]
    gpu = imported(hub, str(log), "--node", "old1")["nodes"][0]["gpus"][0]

    def minute() -> Any:
        found = hub.get(f"/api/v1/series?gpu={gpu}&metric=util_pct&start={begin}&end={begin + 60}"
                        "&step=60")
        return found["mean"][0]

    assert minute() == pytest.approx(sum(values) / 60, abs=0.01)
