"""What counts as free, and nodes by name."""

from typing import Any

import pytest

from agent.cli.free import _marked
from agent.cli.nodes import node_id_of
from gpudeck.client import Client
from gpudeck.errors import CommandError

GIB = 2**30


def gpu(uuid: str, state: str = "ok", parent: str | None = None, **values: Any) -> dict[str, Any]:
    given = {"util_pct": 0.0, "mem_used_bytes": 0.6 * GIB, **values}
    return {"uuid": uuid, "state": state, "facts": {"parent_uuid": parent},
            "values": {name: value for name, value in given.items() if value is not None}}


@pytest.mark.parametrize(("change", "is_free"), [
    ({}, True), ({"state": "stale"}, False), ({"state": "lost"}, False), ({"util_pct": 6.0}, False),
    ({"util_pct": None}, False), ({"mem_used_bytes": None}, False),
    ({"mem_used_bytes": 1.0 * GIB}, False), ({"parent": "B", "util_pct": None}, True),
    ({"parent": "B", "mem_used_bytes": None}, False)])
def test_what_is_not_known_to_be_free_is_not_free(change: dict[str, Any], is_free: bool) -> None:
    assert [each["is_free"] for each in _marked([gpu("A", **change)], (), ())] == [is_free]


def test_used_leased_and_split_ones_are_not_free() -> None:
    gpus = [gpu("used"), gpu("leased"), gpu("board"), gpu("part", parent="board"), gpu("free")]
    found = {each["uuid"]: each["is_free"] for each in _marked(gpus, {"used"}, {"leased"})}
    assert found == {"used": False, "leased": False, "part": True, "free": True}


class _Nodes(Client):
    """Of a hub that has these."""

    def __init__(self, *nodes: tuple[str, str]) -> None:
        self._nodes = [{"id": node_id, "host": host, "state": "live"} for node_id, host in nodes]

    def nodes(self) -> list[dict[str, Any]]:
        return self._nodes


def test_a_node_goes_by_its_id_or_by_a_name_that_it_alone_has() -> None:
    client = _Nodes(("a1", "n001"), ("b2", "n002"), ("c3", "n002"), ("n001", "x"))
    assert node_id_of(client, "b2") == "b2"
    assert node_id_of(client, "n001") == "n001"  # an id is nobody else's
    with pytest.raises(CommandError, match=r"2 nodes have the name 'n002'[\s\S]*b2[\s\S]*c3"):
        node_id_of(client, "n002")
    with pytest.raises(CommandError, match="did you mean n002"):
        node_id_of(client, "n022")
