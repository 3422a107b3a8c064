"""GPUs that count as free, and nodes by name."""

from typing import Any

import pytest

from agent.cli.available_here import with_availability
from agent.cli.free import free
from agent.cli.nodes import node_id_of
from agent.readings import GpuReading, ProcessReading, Reading
from agent.telemetry.status_table import gpu_items
from gpudeck.client.hub import Client
from gpudeck.contract.wire import GpuFacts
from gpudeck.errors import CommandError, ExitCode
from gpudeck.measures.metrics import Absence
from tests.unit.readings import gpu_reading

GIB = 2.0**30
NONE = Absence.UNKNOWN


def is_free(gpus: list[GpuReading], *processes: ProcessReading, parts: bool = False) -> list[bool]:
    """`parts`: all but the first are instances of it."""
    facts = tuple(GpuFacts(gpu.uuid, at, "H100",
                           parent_uuid=gpus[0].uuid if parts and at else None)
                  for at, gpu in enumerate(gpus))
    reading = Reading(1.0, 1.0, tuple(gpus), facts, processes)
    return [item["is_free"] for item in with_availability(
        gpu_items(reading, "n1"), reading, processes, None)]


@pytest.mark.parametrize(("gpu", "verdict"), [
    (gpu_reading("A"), True), (gpu_reading("A", "stale"), False), (gpu_reading("A", "lost"), False),
    (gpu_reading("A", util_pct=6.0), False), (gpu_reading("A", util_pct=NONE), False),
    (gpu_reading("A", mem_used_bytes=NONE), False), (gpu_reading("A", mem_used_bytes=GIB), False),
    (gpu_reading("A", mem_used_bytes=Absence.UNSUPPORTED), True)])
def test_what_is_not_known_to_be_free_is_not_free(gpu: GpuReading, verdict: bool) -> None:
    assert is_free([gpu]) == [verdict]


def test_of_a_split_board_the_parts_are_free() -> None:
    gpus = [gpu_reading("B"), gpu_reading("M1", util_pct=NONE), gpu_reading(
        "M2", mem_used_bytes=NONE), gpu_reading("M3")]
    verdicts = is_free(gpus, ProcessReading(1, "M3", 2 * GIB, 0.0), parts=True)
    assert verdicts == [False, True, False, False]


class _Nodes(Client):
    """Client of a hub that has these nodes."""

    def __init__(self, *nodes: tuple[str, str], **more: dict[str, Any]) -> None:
        """`more`: what else is said of a node, by its id."""
        self._nodes = [{"id": node_id, "host": host, "state": "live", **more.get(node_id, {})}
                       for node_id, host in nodes]

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


@pytest.mark.parametrize("other", [
    {"access": "revoked"}, {"imported": True}, {"site": "lyon"}])
def test_a_name_means_the_machine_that_has_it_now(other: dict[str, Any]) -> None:
    """A machine was installed again and its former node revoked, or it has an imported past: the
    hub takes its name, and so does a command that stops all actions there."""
    client = _Nodes(("old", "n001"), ("new", "n001"), ("only", "n002"), old=other, only=other)
    assert node_id_of(client, "n001") == "new"
    assert node_id_of(client, "n002") == "only"
    assert node_id_of(client, "old") == "old"


@pytest.mark.parametrize("more", [[], ["--uuid"]])
def test_of_a_fleet_the_node_must_be_named_whatever_is_printed(
    monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    """Found by an examiner: "indices are of one node" was the reason also where UUIDs are asked
    for. Port 9 has no hub: none is needed for this answer."""
    monkeypatch.setenv("GPUDECK_TOKEN", "t")
    with pytest.raises(CommandError, match="with --node: a job runs on the GPUs of one node"
                       ) as refusal:
        free(["--hub", "http://127.0.0.1:9", *more])
    assert refusal.value.code == ExitCode.USAGE
    assert "indices" not in str(refusal.value)
