"""Messages of a viewed hub: checked, bounded, and the newest kept."""

from typing import Any

import msgspec
import numpy as np
import pytest

from dashboard.fleet.fleet import Fleet
from dashboard.fleet.numbers_views import facts, numbers
from dashboard.fleet.views import owners, totals
from dashboard.fleet.visibility import EVERYTHING_SEEN, focus
from dashboard.sites.core import MODELS_MOST, SiteMessageError, SiteStream, packet
from gpudeck.measures.metrics import COLUMN, Absence
from tests.unit.fleets import MONO, NOW, Row, add_node, frame, tasks

UTIL = COLUMN["util_pct"]


def encoded(event: str, content: Any, nsp: str = "/live") -> bytes:
    return msgspec.msgpack.encode({"type": 2, "nsp": nsp, "data": [event, content]})


def fleet_of_two() -> Fleet:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=2)
    rows: list[Row] = [{"util_pct": 37.0},
                       {"util_pct": Absence.UNSUPPORTED, "mem_used_bytes": 0.0}]
    fleet.frame(node, frame(rows, tasks=tasks(("t1", 0, "alice"))), NOW, MONO)
    return fleet


def messages(fleet: Fleet) -> dict[str, dict[str, Any]]:
    visible = focus(fleet, EVERYTHING_SEEN)
    return {"facts": facts(fleet, visible), "owners": owners(fleet, visible),
            "totals": totals(fleet, visible, NOW, MONO),
            "numbers": numbers(fleet, visible, NOW, MONO + 2)}


def receive(stream: SiteStream, event: str, content: Any) -> None:
    kind, decoded = packet(encoded(event, content))
    assert (kind, decoded is not None) == (2, True)
    assert decoded is not None
    stream.apply(decoded[1], MONO)


def test_what_a_hub_tells_is_what_it_shows() -> None:
    stream, all_of_it = SiteStream(), messages(fleet_of_two())
    for event in ("facts", "owners", "totals", "numbers"):
        receive(stream, event, all_of_it[event])
    layout, people, live = (stream.picture.layout, stream.picture.owners, stream.picture.numbers)
    assert layout is not None
    assert people is not None
    assert live is not None
    assert [gpu.uuid for gpu in layout.gpus] == ["GPU-n1-0", "GPU-n1-1"]
    assert layout.gpus[0].mem_total_bytes == 80e9
    assert live.values[0, UTIL] == 37.0
    assert live.absent[1, UTIL] == Absence.UNSUPPORTED
    assert live.age_s.tolist() == [2.0, 2.0]
    assert live.is_free.tolist() == [False, True]
    assert live.node_states == ("live",)
    assert people.names == ("alice",)


def test_numbers_of_another_layout_are_not_of_these_gpus() -> None:
    stream, all_of_it = SiteStream(), messages(fleet_of_two())
    receive(stream, "numbers", all_of_it["numbers"])
    assert stream.picture.numbers is None
    receive(stream, "facts", all_of_it["facts"])
    receive(stream, "numbers", all_of_it["numbers"] | {"epoch": 99})
    assert stream.picture.numbers is None
    receive(stream, "numbers", all_of_it["numbers"])
    assert stream.picture.numbers is not None
    receive(stream, "facts", all_of_it["facts"] | {"epoch": 99})
    assert stream.picture.numbers is None


def test_a_metric_that_only_one_of_both_knows() -> None:
    stream, all_of_it = SiteStream(), messages(fleet_of_two())
    keys = [*all_of_it["facts"]["metrics"]]
    keys[UTIL] = "of_the_future"
    receive(stream, "facts", all_of_it["facts"] | {"metrics": keys})
    receive(stream, "numbers", all_of_it["numbers"])
    assert stream.picture.numbers is not None
    assert stream.picture.numbers.absent[0, UTIL] == Absence.UNKNOWN


def wrong() -> list[tuple[str, dict[str, Any]]]:
    of = messages(fleet_of_two())
    gpu, node = of["facts"]["gpus"][0], of["facts"]["nodes"][0]
    many = [msgspec.structs.replace(gpu, uuid=f"g{at}", name=f"m{at}")
            for at in range(MODELS_MOST + 1)]
    return [("facts", of["facts"] | change) for change in (
        {"node": np.array([0, 7], "<i4").tobytes()}, {"node": b"\0\0\0\0"}, {"node": b"x"},
        {"nodes": [node, node]}, {"gpus": [gpu, gpu]}, {"gpus": [{"uuid": ""}]},
        {"gpus": many, "node": bytes(4 * len(many))}, {"nodes": "none"})] + [
            ("numbers", of["numbers"] | change) for change in (
                {"values": b"\0" * 8}, {"age": b""}, {"states": b""}, {"absent": b""},
                {"n": -1}, {"values": "text"})]


@pytest.mark.parametrize("case", range(len(wrong())))
def test_what_no_hub_sends_ends_the_connection(case: int) -> None:
    stream, all_of_it = SiteStream(), messages(fleet_of_two())
    receive(stream, "facts", all_of_it["facts"])
    event, content = wrong()[case]
    with pytest.raises(SiteMessageError):
        receive(stream, event, content)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81" * 5_000, msgspec.msgpack.encode([1])])
def test_bytes_that_are_no_packet(data: bytes) -> None:
    with pytest.raises(SiteMessageError):
        packet(data)


def test_an_age_that_cannot_be_is_none() -> None:
    stream, all_of_it = SiteStream(), messages(fleet_of_two())
    receive(stream, "facts", all_of_it["facts"])
    receive(stream, "numbers", all_of_it["numbers"] | {
        "age": np.array([-5.0, np.nan], "<f4").tobytes()})
    assert stream.picture.numbers is not None
    assert np.isinf(stream.picture.numbers.age_s).all()


def test_events_that_are_not_for_us_are_passed_over() -> None:
    assert packet(encoded("alert", {"any": "thing"})) == (2, None)
    assert packet(encoded("numbers", {}, nsp="/agent")) == (2, None)
