"""The live socket over real sockets, as docs/internals/live.md has it."""

import select
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websocket import WebSocketTimeoutException as TimeoutException

from gpudeck.measures.metrics import COLUMN, WIDTH
from tests.integration.hubs import HubProcess, RawSocket, WireAgent, one_task
from tests.integration.visitors import add_person, signed_in


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as hub:
        yield hub
        assert hub.stop() == 0
        assert "Traceback" not in hub.log.read_text()


@pytest.fixture(name="agent", scope="module")
def _agent(hub: HubProcess) -> Iterator[WireAgent]:
    agent = WireAgent("n1", gpus=3)
    agent.connect(hub)
    yield agent
    agent.close()


def program(hub: HubProcess) -> RawSocket:
    return RawSocket(hub, "/live", hub.api_token)


def watch(viewer: RawSocket, metric: str = "util_pct", text: str = "") -> None:
    viewer.emit("watch", {"metric": metric, "filter": text})


def exact(cells: Any) -> list[float]:
    return list(struct.unpack(f"<{cells['n']}f", cells["exact"]))


def test_a_watch_is_answered_in_order_and_then_pushed(hub: HubProcess, agent: WireAgent) -> None:
    agent.tick(one_task(gpu=2))
    viewer = program(hub)
    watch(viewer)
    names = [viewer.receive()["data"][0] for _ in range(5)]
    assert names == ["filter", "layout", "owners", "totals", "cells"]
    for _ in range(2):
        agent.tick(one_task(gpu=2))
        values = [pytest.approx(util, rel=1e-6) for util in agent.util]
        rows = [exact(viewer.event("cells")) for _ in range(2)]
        assert values in rows
    viewer.close()


def test_an_owner_who_comes_is_sent_alone(hub: HubProcess, agent: WireAgent) -> None:
    agent.tick(one_task(gpu=2))
    viewer = program(hub)
    watch(viewer)
    assert "slots" not in viewer.event("owners")
    agent.tick(one_task(gpu=1))
    change = viewer.event("owners")
    assert struct.unpack("<2I", change["slots"]) == (1, 2)
    assert len(change["owner"]) == 4
    viewer.close()


def test_lines_bring_every_sample_of_what_one_may_see(hub: HubProcess, agent: WireAgent) -> None:
    viewer = program(hub)
    viewer.emit("lines", {"gpus": [agent.facts[2].uuid, "GPU-of-nobody"]})
    got, values = [], []
    viewer.event("lines")
    for _ in range(3):
        agent.tick()
        values.append(agent.util[2])
        got += util_of(viewer.event("lines"))
    while len(got) < 3:
        got += util_of(viewer.event("lines"))
    assert got[-3:] == [pytest.approx(util) for util in values]
    viewer.close()


def util_of(message: Any) -> list[float]:
    [gpu] = message["gpus"]
    values = struct.unpack(f"<{len(gpu['values']) // 8}d", gpu["values"])
    return list(values[COLUMN["util_pct"]::WIDTH])


def test_at_most_one_push_a_second_and_soon_after_the_sample(
    hub: HubProcess, agent: WireAgent
) -> None:
    viewer = program(hub)
    watch(viewer)
    viewer.event("cells")
    came, delays = [], []
    for _ in range(3):
        viewer.event("cells")
        came.append(time.monotonic())
        time.sleep(0.97)
        ticked_at = time.monotonic()
        agent.tick()
        viewer.event("cells")
        delays.append(time.monotonic() - ticked_at)
        came.append(time.monotonic())
        time.sleep(0.05)
    gaps = [later - former for former, later in zip(came[::2], came[1::2], strict=True)]
    assert min(gaps) > 0.9
    assert sorted(delays)[1] < 0.3
    viewer.close()


def test_filters_are_masks_and_errors_leave_the_former(hub: HubProcess, agent: WireAgent) -> None:
    agent.tick(one_task(gpu=1))
    time.sleep(0.1)
    viewer = program(hub)
    watch(viewer, text="user:alice")
    assert viewer.event("filter")["ok"]
    cells = viewer.event("cells")
    assert (cells["mask"], cells["matched"]) == (b"\x02", 1)
    watch(viewer, text="usr:alice")
    answer = viewer.event("filter")
    assert (answer["ok"], answer["at"]) == (False, 0)
    assert "did you mean 'user'" in answer["error"]
    assert viewer.event("cells")["mask"] == b"\x02"
    viewer.close()


def test_sixty_four_filters_and_no_more(hub: HubProcess, agent: WireAgent) -> None:
    viewers, answers = [program(hub) for _ in range(65)], []
    for at, viewer in enumerate(viewers):
        watch(viewer, text=f"util<{at}")
        answers.append(viewer.event("filter"))
    assert [answer["ok"] for answer in answers] == [True] * 64 + [False]
    assert "64" in answers[-1]["error"]
    watch(viewers[-1], text="util<0")  # one that is in use already
    assert viewers[-1].event("filter")["ok"]
    for viewer in viewers:
        viewer.close()


def test_hidden_pages_are_sent_nothing(hub: HubProcess, agent: WireAgent) -> None:
    viewer = program(hub)
    watch(viewer)
    viewer.event("cells")
    viewer.emit("hide")
    time.sleep(1.5)
    while select.select([viewer.socket], [], [], 0)[0]:
        viewer.receive()  # what was on its way
    agent.tick()
    with pytest.raises(TimeoutException):
        viewer.receive(2.0)
    watch(viewer)
    assert viewer.event("cells")
    viewer.close()


def test_a_new_node_extends_the_layout(hub: HubProcess, agent: WireAgent) -> None:
    viewer = program(hub)
    watch(viewer)
    before = viewer.event("layout")
    other = WireAgent(f"later{time.monotonic_ns()}", gpus=2)
    other.connect(hub)
    after = viewer.event("layout")
    assert after["from"] == len(before["uuid"])
    assert after["uuid"] == [facts.uuid for facts in other.facts]
    assert [row[1] for row in after["nodes"]] == [other.node_id]
    assert after["epoch"] == before["epoch"]
    other.close()
    viewer.close()


@pytest.mark.parametrize(("event", "arguments"), [
    ("watch", []), ("watch", [{"metric": "nonsense", "filter": ""}]), ("watch", ["util_pct"]),
    ("watch", [{"metric": "util_pct", "filter": "x" * 2_500}]),
    ("lines", [{"gpus": ["x"] * 65}]), ("lines", [{"gpus": "GPU-1"}]), ("lines", [{"gpus": [1]}]),
    ("tap", [1]), ("tap", []),
    ("wire", [b"x"]), ("disconnect", []), ("anything", []), ("connect", [{}])])
def test_whoever_says_anything_else_is_disconnected(
    hub: HubProcess, event: str, arguments: list[Any]
) -> None:
    viewer = program(hub)
    viewer.emit(event, *arguments)
    assert viewer.closed()[0] in (1007, 1008)


def browser(hub: HubProcess, cookie: str, **headers: str) -> RawSocket:
    return RawSocket(hub, "/live", cookie=cookie, **{"origin": hub.url, **headers})


def test_signing_out_closes_that_sessions_sockets(hub: HubProcess, agent: WireAgent) -> None:
    add_person(hub, "alice")
    mine, other = signed_in(hub, "alice"), signed_in(hub, "alice")
    viewers = [browser(hub, mine.cookie), browser(hub, mine.cookie), browser(hub, other.cookie),
               program(hub)]
    for viewer in viewers:
        watch(viewer)
        viewer.event("cells")
    started = time.monotonic()
    was = mine.cookie
    assert mine.ask("/sign-out", "POST").status == 303
    for viewer in viewers[:2]:
        assert viewer.event("bye")["reason"] == "signed out"
        assert viewer.closed()[1] == "signed out"
    assert time.monotonic() - started < 1.0
    agent.tick()
    for viewer in viewers[2:]:
        assert viewer.event("cells")
        viewer.close()
    assert hub.ask("/", token=None, Cookie=was).status == 303


def test_a_person_may_not_tap(hub: HubProcess) -> None:
    add_person(hub, "bob")
    viewer = browser(hub, signed_in(hub, "bob").cookie)
    viewer.emit("tap", True)
    assert viewer.closed()[0] == 1008


def test_viewers_are_told_when_the_hub_stops(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as hub:
        viewer = program(hub)
        watch(viewer)
        viewer.event("cells")
        started = time.monotonic()
        assert hub.stop() == 0
        assert time.monotonic() - started < 3
        assert viewer.event("bye")["reason"] == "the hub is shutting down"
        assert not (hub.folder / "hub.json").exists()


def test_a_cookie_without_the_pages_own_word_opens_nothing(hub: HubProcess) -> None:
    add_person(hub, "carol")
    visitor = signed_in(hub, "carol")
    cookie = "; ".join(part for part in visitor.cookie.split("; ") if not part.startswith("_csrf"))
    assert browser(hub, visitor.cookie).joined["type"] == 0  # CONNECT
    for csrf in ("", "wrong", visitor.csrf[:-1]):
        viewer = RawSocket(hub, "/live", origin=hub.url, cookie=cookie, csrf=csrf)
        assert viewer.joined is None or viewer.joined["type"] == 4  # CONNECT_ERROR
