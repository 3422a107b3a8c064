"""A launch over two nodes, through a real hub: one job to those who look, and an act on one rank
stays on its node and says what becomes of the others."""

import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from msgspec import structs

from gpudeck.contract.wire import Tasks
from tests.integration.acting import ActingAgent, ordered, previewed, settled, several
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.visitors import add_person, signed_in


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "data", 0) as hub:
        yield hub


def ranks(boot: str, launch: str, first: int, count: int, **owner: str) -> Tasks:
    """The last task is of no launch."""
    tasks = several(count + 1, boot=boot)
    began = tuple(structs.replace(task, launch=launch, rank=first + at, uid=1_000, **owner)
                  for at, task in enumerate(tasks.began[:count]))
    return structs.replace(tasks, began=(*began, tasks.began[-1]))


def test_an_act_on_one_rank_stays_on_its_node(hub: HubProcess) -> None:
    launch = f"torchrun 10.0.0.1:{random.randrange(1_024, 65_536)}/x"
    book = f"/home/alice/{random.random()}.ipynb"
    one, other = ActingAgent("n1"), ActingAgent("n2")
    for agent, boot, first, count in ((one, "boot-1", 0, 2), (other, "boot-2", 2, 3)):
        agent.connect(hub)
        agent.show(ranks(boot, launch, first, count, container_name="trainer", notebook=book))
    wait_for(lambda: len(hub.get("/api/v1/tasks?limit=9")["items"]) == 7)
    for name, role in (("ops", "operator"), ("looker", "viewer")):
        add_person(hub, name, role, ["*"], [])
    ops, looker = signed_in(hub, "ops"), signed_in(hub, "looker")

    [group] = [row for row in ops.get("/api/v1/tasks?group=job")["groups"] if row["tasks"] > 1]
    assert (group["key"], group["job_id"], group["tasks"], group["nodes"], group["host"]) == (
        f"alice/{launch}", launch, 5, 2, None)
    opened = ops.get(f"/api/v1/tasks?group=job&sort=pid&open={quote(group['key'])}")["items"]
    assert sorted(task["owner"]["rank"] for task in opened) == [0, 1, 2, 3, 4]
    assert opened[0]["owner"] == {"uid": 1_000, "container_name": "trainer", "notebook": book,
                                  "launch": launch, "rank": opened[0]["owner"]["rank"]}
    assert "notebook" not in looker.get(f"/api/v1/tasks/{opened[0]['id']}")["owner"]

    rank, alone = "boot-1-100-5", "boot-1-102-5"
    preview = previewed(ops, rank)
    warnings = preview["items"][0]["warnings"]
    assert "3 ranks on 1 other node are part of the same launch and will hang or fail." in warnings
    assert "1 rank more on this node is part of the same launch and will hang or fail." in warnings
    assert not [words for words in previewed(ops, alone)["items"][0]["warnings"]
                if "launch" in words]
    [command] = ordered(ops, preview)["items"]
    settled(ops, command["id"])
    assert [one.executed, other.looks, other.commands] == [[command["id"]], [], []]
