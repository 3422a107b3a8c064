"""The past of a real hub, over REST: what was acked is there, also after a kill -9."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec import structs

from gpudeck.contract.wire import Backfill, Tasks, encode
from tests.integration.hubs import HubProcess, WireAgent, one_task, wait_for
from tests.integration.visitors import add_program
from tests.unit.fleets import EMPTY, frame

GPU = "GPU-n1-0"
HOUR_S = 3_600


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data", 0,
                    "--agent-messages-per-s", "1000") as hub:
        agent = WireAgent("n1")
        agent.connect(hub)
        send_past(agent, int(time.time()) - 4, 3)
        agent.close()
        yield hub
        assert hub.stop() == 0
        log = hub.log.read_text()
        assert "Traceback" not in log
        assert "leaked" not in log  # as DuckDB's binding says of what nobody closed


def series(hub: HubProcess, start: float, end: float, step: int = 1, gpu: str = GPU
           ) -> dict[int, Any]:
    reply = hub.get(f"/api/v1/series?gpu={gpu}&metric=util_pct&start={start}&end={end}&step={step}")
    assert len(reply["t"]) == len(reply["mean"]) == len(reply["min"]) == len(reply["max"])
    return {t: value for t, value in zip(reply["t"], reply["max"], strict=True)
            if value is not None}


def send_past(agent: WireAgent, begin: int, seconds: int) -> dict[int, float]:
    """Send past seconds with a hole in their middle; return the values by second."""
    truth = {}
    for t in range(begin, begin + seconds):
        if t != begin + seconds // 2:
            agent.tick(one_task(), taken_at=t + 0.5)
            truth[t] = round(agent.util[0] * 2) / 2
    wait_for(lambda: agent.acked == agent.seq, why="the acks")
    return truth


def test_what_was_acked_is_told_before_and_after_a_kill_and_from_files(hub: HubProcess) -> None:
    agent = WireAgent("n9")
    agent.connect(hub)
    now = int(time.time())
    recent, past = now - 40, now - 2 * HOUR_S
    truth = send_past(agent, recent, 20)
    assert series(hub, recent, recent + 20, gpu="GPU-n9-0") == truth
    hub.kill()
    hub.start()
    assert series(hub, recent, recent + 20, gpu="GPU-n9-0") == truth
    agent.connect(hub)
    old = send_past(agent, past, 10)
    assert series(hub, past, past + 10, gpu="GPU-n9-0") == old
    raw = hub.folder / "history" / "raw"
    wait_for(lambda: list(raw.glob("*.parquet")), why="late seconds in a file")
    assert series(hub, past, past + 10, gpu="GPU-n9-0") == old
    hub.kill()
    hub.start()
    assert series(hub, past, past + 10, gpu="GPU-n9-0") == old
    assert series(hub, recent, recent + 20, gpu="GPU-n9-0") == truth
    [(_, peak)] = series(hub, past - past % 60, past - past % 60 + 60, 60, gpu="GPU-n9-0").items()
    assert peak >= max(value for t, value in old.items() if t < past - past % 60 + 60)


def test_of_what_is_no_longer_kept_by_the_second_the_step_is_longer(tmp_path: Path) -> None:
    """Else seconds would say what is true of a minute."""
    with HubProcess(tmp_path / "data", 0, "--agent-messages-per-s", "1000",
                    "--history-raw-hours", "1") as hub:
        agent = WireAgent("n1")
        agent.connect(hub)
        now = int(time.time())
        past = now - 3 * HOUR_S - now % 60
        truth = send_past(agent, past, 90)
        minutes = {begin: [value for t, value in truth.items() if begin <= t < begin + 60]
                   for begin in (past, past + 60)}
        path = f"/api/v1/series?gpu={GPU}&metric=util_pct&step=1"
        old = f"{path}&start={past}&end={past + 120}"
        wait_for(lambda: hub.get(old)["step"] == 60, why="seconds to be given up")
        reply = hub.get(old)
        assert (reply["t"], reply["max"]) == (list(minutes), [max(values) for values in
                                                              minutes.values()])
        assert hub.get(f"{path}&start={now - 60}")["step"] == 1


def test_several_metrics_share_their_seconds(hub: HubProcess) -> None:
    begin, util = int(time.time()) - 600, "util_pct"
    path = f"/api/v1/series?gpu={GPU}&start={begin}&end={begin + 600}&step=1"
    reply = hub.get(f"{path}&metric=power_w&also={util},energy_j,power_w")
    assert set(reply["also"]) == {util, "energy_j"}
    alone = hub.get(f"{path}&metric={util}")
    assert reply["also"][util] == {name: alone[name] for name in ("mean", "min", "max")}
    assert [value for value in alone["mean"] if value is not None]


def test_an_instant_is_a_value_or_a_reason_for_every_gpu(hub: HubProcess) -> None:
    agent = WireAgent("n2")
    agent.connect(hub)
    t = int(time.time()) - 30
    send_past(agent, t, 3)
    items = hub.get(f"/api/v1/instant?metric=util_pct&at={t}")["items"]
    by_gpu = {item["gpu"]: item for item in items}
    assert {GPU, "GPU-n2-0", "GPU-n2-1"} <= by_gpu.keys()
    assert by_gpu["GPU-n2-1"]["value"] is not None
    assert all((item["value"] is None) != (item["missing"] is None) for item in items)
    earlier = hub.get(f"/api/v1/instant?metric=util_pct&at={t - 9 * HOUR_S}")["items"]
    assert {item["missing"] for item in earlier} == {"unknown"}


def test_usage_counts_seconds_of_tasks(hub: HubProcess) -> None:
    agent = WireAgent("n3")
    agent.connect(hub)
    agent.tick(one_task("boot-1:200:5", "carol"))
    t = int(time.time()) - 400
    count = len(send_past_of(agent, t, 12, "carol"))
    items = hub.get(f"/api/v1/usage?by=user&bucket=3600&start={t - HOUR_S}")["items"]
    assert sum(item["gpu_s"] for item in items if item["of"] == "carol") == count + 1
    by_node = hub.get(f"/api/v1/usage?by=node&bucket=3600&start={t - HOUR_S}")["items"]
    assert {agent.node_id} <= {item["of"] for item in by_node}


def send_past_of(agent: WireAgent, begin: int, seconds: int, user: str) -> list[int]:
    for t in range(begin, begin + seconds):
        agent.tick(one_task("boot-1:200:5", user), taken_at=t + 0.5)
    wait_for(lambda: agent.acked == agent.seq, why="the acks")
    return list(range(begin, begin + seconds))


@pytest.mark.parametrize(("path", "says"), [
    ("series?metric=util_pct", "gpu is needed"),
    (f"series?gpu={GPU}&metric=warmth", "no metric"),
    (f"series?gpu={GPU}&metric=util_pct&step=61", "60 or 120"),
    (f"series?gpu={GPU}&metric=util_pct&start=0&end=1000000&step=1", "a step of"),
    (f"series?gpu={GPU}&metric=util_pct&start=yesterday", "UTC seconds"),
    (f"series?gpu={GPU}&metric=util_pct&start=20&end=10", "before"),
    (f"series?gpu={GPU}&metric=util_pct&start=9999999998", "end defaults to now"),
    (f"series?gpu={GPU}&metric=util_pct&step=0", "1 to"),
    ("events?start=20&end=10", "before"),
    (f"series?gpu={GPU}&metric=util_pct&also=warmth", "no metric"),
    (f"series?gpu={GPU}&metric=util_pct&also=power_w&start=0&end=6000&step=1", "at most"),
    (f"series?gpu={GPU}&metric=util_pct&color=red", "no parameter"),
    ("instant?metric=util_pct&at=2026-01-01T00:00:00", "UTC seconds"),
    ("usage?bucket=100", "whole hours"),
    ("usage?by=shoe", "by is one of"),
])
def test_a_wrong_question_is_told_what_to_ask(hub: HubProcess, path: str, says: str) -> None:
    answer = hub.ask(f"/api/v1/{path}")
    assert answer.status == 400, answer.body
    assert says in answer.json["detail"]


def test_times_may_be_rfc_3339_and_the_step_is_found(hub: HubProcess) -> None:
    start = quote("2026-09-21T14:00:00+00:00")
    path = f"/api/v1/series?gpu={GPU}&metric=power_w&end=2026-09-21T16:00:00Z&also="
    reply = hub.get(f"{path}&start={start}")
    # The sign as people type it.
    for same in ("2026-09-21T15:00:00+01:00", "1789999200"):
        assert hub.get(f"{path}&start={same}")["t"] == reply["t"]
    assert reply["step"] == 10
    assert reply["start"] == 1_790_000_000 - 1_790_000_000 % 3_600
    assert set(reply["mean"]) == {None}


def test_a_job_of_a_time_without_the_hub_has_a_page_and_a_name(hub: HubProcess) -> None:
    agent, job = WireAgent("n7"), f"boot-7:{random.randrange(2, 30_000)}:7"
    agent.connect(hub)
    agent.tick(Tasks(True, (), ()))
    begin, seconds = int(time.time()) - 900, random.randint(150, 400)
    [task] = (tasks := one_task(job)).began
    tasks = structs.replace(tasks, began=(structs.replace(task, job_id=job),))
    changes = {0: tasks, seconds: Tasks(False, (), ())}
    agent.say(Backfill(tuple(encode(frame(
        [EMPTY] * 2, agent.seq + 1 + at, begin + at + 0.5, tasks=changes.get(at)))
        for at in range(seconds + 1))))
    wait_for(lambda: agent.acked == agent.seq + seconds + 1, why="the ack")

    def pages() -> Iterator[Any]:
        """Yield the page, once there is one: its minutes come a moment after the seconds."""
        if hub.ask(f"/api/v1/jobs/{job}").status == 200:
            yield hub.get(f"/api/v1/jobs/{job}")

    page = wait_for(lambda: next((page for page in pages() if (page["job"]["ended_at"] or 0)
                                  > begin + seconds - 3), None), why="the job's page to its end")
    assert (page["job"]["command"], page["job"]["user"], page["job"]["gpus"], page["is_running"]
            ) == ("python train.py", "alice", 1, False)
    assert page["job"]["ended_at"] == pytest.approx(begin + seconds, abs=3)
    held_h = page["totals"]["gpu_hours"]
    assert held_h * 3_600 == pytest.approx(seconds, abs=3)
    items = hub.get(f"/api/v1/reports?by=job&start={begin}&end={begin + 3_600}")["items"]
    [item] = [one for one in items if one["of"] == job]
    assert item["name"].startswith("train.py on ")
    assert item["gpu_hours"] == pytest.approx(held_h)
    agent.close()


def test_what_is_out_of_scope_has_no_past(hub: HubProcess) -> None:
    elsewhere = add_program(hub, "operator", ["elsewhere"])
    now = time.time()
    path = f"/api/v1/series?gpu={GPU}&metric=util_pct&start={now - 900}"
    wait_for(lambda: hub.ask(path, token=elsewhere).status != 401, why="the token")
    assert hub.ask(path).status == 200
    assert hub.ask(path, token=elsewhere).status == 404
    assert hub.ask("/api/v1/instant?metric=util_pct", token=elsewhere).json["items"] == []
    assert hub.ask("/api/v1/usage", token=elsewhere).json["items"] == []
