"""Reports of agents beside the live numbers, over real sockets: slow metrics, Events, cost."""

import json
import random
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agent.cli.events import events as events_verb
from dashboard.fleet.frame_table import SLOW_LASTS_S
from gpudeck.errors import CommandError, ExitCode
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, Absence
from tests.integration.full_agent import Teller
from tests.integration.hubs import HubProcess, RawSocket, one_task, wait_for
from tests.integration.visitors import add_program


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as hub:
        yield hub
        assert "Traceback" not in hub.log.read_text()


def new_teller(hub: HubProcess, name: str, gpus: int = 2) -> Teller:
    teller = Teller(f"{name}-{secrets.token_hex(3)}", gpus)
    teller.connect(hub)
    teller.tell(one_task())
    teller.beat()
    path = f"/api/v1/gpus/{teller.facts[0].uuid}"
    wait_for(lambda: hub.ask(path).json.get("slow_sampled_at"), why="slow metrics")
    return teller


def gpu(hub: HubProcess, teller: Teller, at: int = 0) -> Any:
    return hub.get(f"/api/v1/gpus/{teller.facts[at].uuid}")


def events(hub: HubProcess, teller: Teller, more: str = "") -> Any:
    return hub.get(f"/api/v1/events?node={teller.node_id}{more}")


def texts(answer: Any) -> list[str]:
    return [item["text"] for item in answer["items"]]


def test_slow_metrics_come_with_the_live_ones(hub: HubProcess) -> None:
    teller = new_teller(hub, "slow")
    errors = float(random.randrange(2**52))
    teller.slow[0].update(ecc_corrected=errors, rows_pending=0.0, pcie_width=8.0)
    teller.slow[1].update(ecc_corrected=Absence.UNSUPPORTED)
    teller.tell()
    wait_for(lambda: gpu(hub, teller)["values"].get("ecc_corrected") == errors, why="the count")
    first, second = gpu(hub, teller), gpu(hub, teller, 1)
    for view in (first, second):
        assert set(view["values"]) | set(view["missing"]) == {*COLUMN, *SLOW_COLUMN}
    assert first["values"]["rows_pending"] == 0.0
    assert first["slow_age_s"] < SLOW_LASTS_S
    assert second["missing"]["ecc_corrected"] == "unsupported"
    # Unchanged, and so not told with the next Frames.
    teller.tell(has_slow=False)
    assert gpu(hub, teller)["values"]["ecc_corrected"] == errors
    items = hub.get(f"/api/v1/gpus?filter={quote(f'lanes<100% node:{teller.node_id}')}"
                    "&metrics=ecc_corrected,fan_pct")["items"]
    assert [item["uuid"] for item in items] == [teller.facts[0].uuid]
    assert (items[0]["values"], items[0]["missing"]) == (
        {"ecc_corrected": errors}, {"fan_pct": "unsupported"})
    wrong = hub.ask("/api/v1/gpus?metrics=ecc_corrected,made_up")
    assert (wrong.status, "made_up" in wrong.json["detail"]) == (400, True)
    teller.close()


def test_facts_links_and_cost(hub: HubProcess) -> None:
    teller = new_teller(hub, "facts")
    facts = gpu(hub, teller)["facts"]
    assert (facts["serial"], facts["vbios"], facts["pcie_width_max"]) == (
        "165010", "96.00.74.00.1A", 16)
    node = hub.get(f"/api/v1/nodes/{teller.node_id}")
    assert node["cost"] == {"cpu_pct": 0.62, "memory_bytes": 44e6, "read_s": 0.0123,
                            "outbox_bytes": 3e6}
    assert node["links"] == [{"a": teller.facts[0].uuid, "b": teller.facts[1].uuid,
                              "path": "system", "nvlinks": 18}]
    teller.beat("hung", "process 12 is in state D", pending=7, dropped=2)
    wait_for(lambda: hub.get(f"/api/v1/nodes/{teller.node_id}")["pending"] == 7, why="the Beat")
    [listed] = [item for item in hub.get("/api/v1/nodes?limit=1000")["items"]
                if item["id"] == teller.node_id]
    assert listed["links"] is None
    assert (listed["reader"]["state"], listed["reader"]["detail"], listed["dropped"]) == (
        "hung", "process 12 is in state D", 2)
    teller.close()


def test_events_are_told_newest_first_page_by_page(hub: HubProcess) -> None:
    teller = new_teller(hub, "events")
    for at in range(5):
        teller.happen("throttle_began", at % 2, f"number {at}", ago_s=100 - at)
    teller.happen("xid", 1, "number 5", ago_s=1, xid=79.0)
    wait_for(lambda: len(events(hub, teller)["items"]) == 6, why="the Events")
    newest_first = [f"number {at}" for at in reversed(range(6))]
    assert texts(events(hub, teller)) == newest_first
    collected, path = [], "&limit=4"
    while path:
        answer = events(hub, teller, path)
        collected += texts(answer)
        path = f"&limit=4&cursor={answer['next']}" if answer["next"] else ""
    assert collected == newest_first
    assert texts(events(hub, teller, f"&gpu={teller.facts[1].uuid}")) == [
        "number 5", "number 3", "number 1"]
    assert texts(events(hub, teller, "&kind=xid")) == texts(
        events(hub, teller, "&severity=critical")) == ["number 5"]
    [xid] = events(hub, teller, "&kind=xid")["items"]
    assert (xid["label"], xid["severity"], xid["index"], xid["numbers"]) == (
        "Xid 79", "critical", 1, {"xid": 79.0})
    assert "reboot the node" in xid["advice"]
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 50))
    assert texts(events(hub, teller, f"&start={moment}")) == ["number 5"]
    assert texts(events(hub, teller, f"&end={time.time() - 50}")) == newest_first[1:]
    for wrong in ("severity=loud", "start=yesterday", "filter=util>5", "cursor=%21"):
        assert hub.ask(f"/api/v1/events?{wrong}").status == 400, wrong
    teller.close()


def test_events_at_a_terminal(hub: HubProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """Text of nodes is hostile to terminals too."""
    teller, word = new_teller(hub, "cli"), secrets.token_hex(8)
    teller.happen("gpu_lost", 1, f"{word} \x1b[2Jrest", ago_s=9)
    teller.happen("task_began", 0, "noise")
    wait_for(lambda: len(events(hub, teller)["items"]) == 2, why="the Events")
    at = ["--hub", hub.url, "--token-file", str(hub.folder / "api.token")]
    host = teller.caller.said.host
    assert events_verb([*at, "--node", host]) == ExitCode.OK
    newest, lost_line = capsys.readouterr().out.splitlines()
    assert newest.endswith(f"info      {host} GPU 0  Task started: noise")
    assert f"critical  {host} GPU 1  GPU lost: {word}" in lost_line
    assert "\x1b" not in lost_line
    assert events_verb([*at, "--node", teller.node_id, "--severity", "critical", "--json"]
                       ) == ExitCode.OK
    [item] = json.loads(capsys.readouterr().out)["items"]
    assert word in item["text"]
    for wrong in (["--node", "no-such"], ["--limit", "0"]):
        with pytest.raises(CommandError) as error:
            events_verb([*at, *wrong])
        assert error.value.code == ExitCode.USAGE
    teller.close()


def test_a_viewer_of_another_group_hears_nothing(hub: HubProcess) -> None:
    teller = new_teller(hub, "scope")
    viewer = RawSocket(hub, "/live", add_program(hub, groups=["elsewhere"]))
    everyone = RawSocket(hub, "/live", hub.api_token)
    for socket in (viewer, everyone):
        socket.emit("watch", {"metric": "ecc_corrected", "filter": ""})
        socket.event("cells")
    word = secrets.token_hex(8)
    teller.happen("gpu_lost", 0, word)
    wait_for(lambda: word in str(everyone.event("events")), why="the Event, live")
    assert word not in str([viewer.event("totals") for _ in range(3)])
    other = add_program(hub, groups=["elsewhere"])
    assert hub.ask(f"/api/v1/events?node={teller.node_id}", token=other).json["items"] == []
    teller.close()


def test_a_hub_that_was_killed_knows_them_again(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as hub:
        teller = new_teller(hub, "restart")
        teller.happen("gpu_lost", 0, "before")
        teller.happen("gpu_back", 0, "and after")
        wait_for(lambda: teller.acked == teller.seq, why="all on disk")
        before = events(hub, teller)
        count = gpu(hub, teller)["values"]["ecc_corrected"]
        hub.kill()
        hub.start()
        after = events(hub, teller)
        # By this hub's clock: how far the agent's is off it has not asked yet.
        for old, new in zip(before["items"], after["items"], strict=True):
            assert new.pop("at") == pytest.approx(old.pop("at"), abs=1.0)
        assert after == before
        assert texts(before) == ["and after", "before"]
        view = gpu(hub, teller)
        assert view["missing"]["ecc_corrected"] == "stale"
        assert view["last_values"]["ecc_corrected"] == count
