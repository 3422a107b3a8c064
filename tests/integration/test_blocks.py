"""The past of the whole fleet for the time bar of the Fleet page: what a block says is what
`instant` says, and nobody learns anything about what is outside their scope."""

import csv
import io
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dashboard.fleet.colour_scales import LOST, UNKNOWN
from dashboard.fleet.gpu_table import NO_TASK, SEVERAL
from dashboard.fleet.past_moment import PastMomentView, PastQueue
from dashboard.fleet.past_views import PastBlockView
from tests.integration.hubs import HubProcess, WireAgent, wait_for
from tests.integration.visitors import add_program
from tests.pasts import EVERY_S, HOUR_S, OWNERS, Past

STEP_S = 5


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("past") / "data"


@pytest.fixture(name="past", scope="module")
def _past(folder: Path) -> Past:
    now = int(time.time())
    agents = [WireAgent(f"p{at}-{random.randrange(10**6)}") for at in range(3)]
    return Past(now - HOUR_S, now - 60, agents).write(folder)


@pytest.fixture(name="hub", scope="module")
def _hub(folder: Path, past: Past) -> Iterator[HubProcess]:
    """The last Node was there then, and is not any more."""
    with HubProcess(folder) as hub:
        for agent in past.agents[:2]:
            agent.connect(hub)
            agent.tick()
        wait_for(lambda: len(hub.get("/api/v1/gpus")["items"]) == 4, why="the GPUs")
        yield hub


def block(hub: HubProcess, start: int, count: int, token: str | None = None,
          metric: str = "util_pct") -> PastBlockView:
    path = f"/api/v1/block?metric={metric}&start={start}&step={STEP_S}&count={count}"
    answer = hub.ask(path) if token is None else hub.ask(path, token=token)
    assert answer.status == 200, answer.body
    return msgspec.convert(answer.json, PastBlockView)


def instant(hub: HubProcess, past: Past, t: int, metric: str = "util_pct") -> list[dict[str, Any]]:
    """Return the instant of the Nodes that are there now."""
    here = {agent.node_id for agent in past.agents[:2]}
    items = hub.get(f"/api/v1/instant?metric={metric}&at={t}")["items"]
    return [item for item in items if item["node"] in here]


def numbers(view: PastBlockView) -> list[list[float]]:
    assert view.exact is not None
    flat = struct.unpack(f"<{view.n * view.count}f", view.exact)
    return [list(flat[at * view.n:(at + 1) * view.n]) for at in range(view.count)]


def test_a_block_is_the_instants_of_its_moments(hub: HubProcess, past: Past) -> None:
    begin, _ = past.hole
    start = begin - 100 - (begin - 100 - past.begin) % EVERY_S + random.randrange(3)
    view = block(hub, start, 40)
    assert (view.n, view.count, view.grain_s) == (4, 40, 1)
    kinds = set()
    for at, row in enumerate(numbers(view)):
        t = start + at * STEP_S
        items = instant(hub, past, t)
        values = sorted(round(item["value"], 3) for item in items if item["value"] is not None)
        assert sorted(round(value, 3) for value in row if value == value) == values
        cells = view.cells[at * view.n:(at + 1) * view.n]
        assert view.seen[at] == sum(item["t"] is not None for item in items)
        assert cells.count(UNKNOWN) == sum(item["missing"] == "unknown" for item in items)
        assert view.gone[at] == (2 if values else 0)
        assert LOST not in cells
        kinds.add(len(values))
    assert kinds == {0, 4}  # before the hole, between samples, and in it


def test_totals_are_those_of_the_samples_of_that_moment(hub: HubProcess, past: Past) -> None:
    t = past.hole[0] - 120
    t -= t % 10 - past.begin % 10  # when there is a sample
    totals = hub.get(f"/api/v1/totals?at={t}")
    util, power, memory = ([item["value"] for item in instant(hub, past, t, key)]
                           for key in ("util_pct", "power_w", "mem_used_bytes"))
    assert totals["util_mean_pct"] == pytest.approx(sum(util) / 4)
    assert totals["power_w"] == pytest.approx(sum(power))
    assert totals["mem_used_bytes"] == pytest.approx(sum(memory))
    assert (totals["nodes"], totals["gpus_seen"], totals["gpus_ok"]) == (2, 4, 4)
    empty = hub.get(f"/api/v1/totals?at={past.hole[0] + 60}")
    assert (empty["nodes"], empty["gpus_seen"]) == (0, 0)
    assert {empty[key] for key in ("util_mean_pct", "power_w", "mem_used_bytes",
                                   "mem_total_bytes", "throttled")} == {None}
    asked_at = time.time()
    newest = hub.get("/api/v1/totals")
    assert asked_at - 7 <= newest["at"] <= time.time() - 5
    assert newest["at"] != totals["at"] == t


def test_a_moment_has_the_owners_and_the_memory_of_then(hub: HubProcess, past: Past) -> None:
    t = past.hole[0] - 120
    t -= t % 10 - past.begin % 10
    view = moment(hub, t)
    owner = struct.unpack(f"<{view.n}H", view.owner)
    assert (view.n, view.wasted.gpus, view.gpus_free) == (4, 0, 0)
    assert view.queue == PastQueue(0, None, None)
    # On the first GPU of each node two share; the other one is one owner's.
    assert owner.count(SEVERAL) == 2
    assert {view.names[number] for number in owner if number != SEVERAL} <= {
        OWNERS[2], OWNERS[0]}
    assert len(set(view.memory)) == 1
    assert set(view.memory) != {UNKNOWN}
    empty = moment(hub, past.hole[0] + 180)
    assert set(empty.memory) == {UNKNOWN}
    assert set(struct.unpack(f"<{empty.n}H", empty.owner)) == {NO_TASK}


def moment(hub: HubProcess, at: int, token: str | None = None) -> PastMomentView:
    path = f"/api/v1/moment?at={at}"
    answer = hub.ask(path) if token is None else hub.ask(path, token=token)
    assert answer.status == 200, answer.body
    return msgspec.convert(answer.json, PastMomentView)


def test_who_sees_a_part_of_the_fleet_sees_that_part_of_its_past(hub: HubProcess, past: Past
                                                                 ) -> None:
    t = past.hole[0] - 100
    nobodys = add_program(hub, "viewer", ["elsewhere"])
    view = block(hub, t, 3, nobodys)
    assert (view.n, view.cells, view.seen, view.gone) == (0, b"", [0] * 3, [0] * 3)
    totals = hub.ask(f"/api/v1/totals?at={t}", token=nobodys).json
    empty = moment(hub, t, nobodys)
    assert (empty.n, empty.names, empty.lessees, empty.queue) == (0, [], [], None)
    assert (totals["nodes"], totals["power_w"]) == (0, None)


def test_who_sees_one_node_sees_that_nodes_past_alone(hub: HubProcess, past: Past) -> None:
    mine = past.agents[1].node_id
    admin = add_program(hub, "admin")
    moved = hub.ask(f"/api/v1/nodes/{mine}", "PATCH", admin, b'{"group": "mine"}',
                    Content_Type="application/json")
    assert moved.status == 200, moved.body
    t = past.hole[0] - 100 - (past.hole[0] - 100 - past.begin) % EVERY_S
    token = add_program(hub, "viewer", ["mine"])
    view = block(hub, t, 1, token)
    items = hub.ask(f"/api/v1/instant?metric=util_pct&at={t}", token=token).json["items"]
    assert {item["node"] for item in items} == {mine}
    assert sorted(numbers(view)[0]) == pytest.approx(sorted(item["value"] for item in items))
    assert (view.n, view.seen, view.gone) == (2, [2], [0])
    assert hub.ask(f"/api/v1/totals?at={t}", token=token).json["nodes"] == 1
    assert hub.get(f"/api/v1/totals?at={t}")["nodes"] == 2


def load(hub: HubProcess, past: Past, more: str = "", token: str | None = None) -> dict[str, Any]:
    path = f"/api/v1/load?start={past.begin}&end={past.end}&step=300{more}"
    answer = hub.ask(path) if token is None else hub.ask(path, token=token)
    assert answer.status == 200, answer.body
    return dict(answer.json)


def test_the_load_of_the_fleet_is_what_its_gpus_did_and_its_parts_make_the_whole(
        hub: HubProcess, past: Past) -> None:
    whole = load(hub, past)
    spans = range(whole["start"], whole["start"] + 300 * len(whole["gpus"]), 300)
    at = random.randrange(2, 5)
    series = [hub.get(f"/api/v1/series?gpu={past.uuid(node, gpu)}&metric=util_pct"
                      f"&start={spans[at]}&end={spans[at] + 300}&step=300")["mean"][0]
              for node in range(2) for gpu in range(2)]
    assert whole["util_mean_pct"][at] == pytest.approx(sum(series) / 4, abs=0.01)
    busiest = whole["busiest"]
    assert busiest["end"] - busiest["start"] == 3_600
    assert spans[0] <= busiest["start"] < busiest["end"] <= spans[-1] + 300
    groups, (model,) = whole["groups"], whole["models"]
    parts = [load(hub, past, f"&group={group}&model={model.replace(' ', '%20')}")
             for group in groups]
    rounded = 0.0005 * (len(parts) + 1)  # each is given to three digits
    for what in ("gpus", "power_w"):
        assert sum(part[what][at] for part in parts) == pytest.approx(whole[what][at], abs=rounded)
    uuids = [past.uuid(0, 0), past.uuid(1, 1)]
    two = load(hub, past, f"&gpus={','.join(uuids)}")
    means = [hub.get(f"/api/v1/series?gpu={uuid}&metric=util_pct&start={spans[at]}"
                     f"&end={spans[at] + 300}&step=300")["mean"][0] for uuid in uuids]
    assert two["util_mean_pct"][at] == pytest.approx(sum(means) / 2, abs=0.01)
    rows = list(csv.DictReader(io.StringIO(hub.ask(
        f"/api/v1/load?start={past.begin}&end={past.end}&step=300&format=csv").body.decode())))
    assert [int(row["t"]) for row in rows] == list(spans)
    assert float(rows[at]["util_mean_pct"]) == whole["util_mean_pct"][at]


def test_of_what_is_not_theirs_people_learn_no_load(hub: HubProcess, past: Past) -> None:
    nobodys = add_program(hub, "viewer", ["elsewhere"])
    empty = load(hub, past, token=nobodys)
    assert (empty["groups"], empty["models"], empty["busiest"]) == ([], [], None)
    assert set(empty["gpus"]) == {None}
    (group,) = {*load(hub, past)["groups"]} - {"mine"}
    path = f"/api/v1/load?start={past.begin}&end={past.end}&step=300&group="
    assert hub.ask(path + group, token=nobodys).status == 404
    by_gpus = path.replace("group=", f"gpus={past.uuid(0, 0)}")
    assert (hub.ask(by_gpus).status, hub.ask(by_gpus, token=nobodys).status) == (200, 404)
    assert hub.ask(path + "nothing").json["detail"] == "there is no GPU of group 'nothing' here"


@pytest.mark.parametrize(("path", "says"), [
    ("block?metric=warmth&start=0&step=5&count=5", "metric is one of"),
    ("block?metric=util_pct&step=5&count=5", "start is needed"),
    ("block?metric=util_pct&start=0&step=5&count=61", "from 1 to 60"),
    ("block?metric=util_pct&start=0&step=0&count=5", "from 1 to 86,400"),
    ("block?metric=util_pct&start=0&step=300&count=14", "stretches"),
    ("block?metric=rows_pending&start=0&step=1&count=14", "rarely changing"),
    ("block?metric=util_pct&start=soon&step=1&count=1", "UTC seconds"),
    ("totals?at=soon", "UTC seconds"),
    ("moment", "at is needed"),
    ("load?start=0&end=3600&step=90", "whole minutes"),
    ("load?start=0&end=3600&step=60&team=a", "team"),
])
def test_a_wrong_question_is_told_what_to_ask(hub: HubProcess, path: str, says: str) -> None:
    answer = hub.ask(f"/api/v1/{path}")
    assert answer.status == 400, answer.body
    assert says in answer.json["detail"]


def test_a_block_that_is_known_does_not_come_twice(hub: HubProcess, past: Past) -> None:
    path = f"/api/v1/block?metric=util_pct&start={past.begin}&step=5&count=5"
    first = hub.ask(path)
    second = hub.ask(path, If_None_Match=first.headers["ETag"])
    assert second.status == 304
