"""Words about a node's agent."""

from typing import Any

import pytest

from dashboard.pages.node_words import agent_words, reader_trouble, reader_words, refused_words

from .machine_views import NOW, a_node

COST = {"cpu_pct": 0.63, "memory_bytes": 44_040_192.0, "read_s": 0.0042, "outbox_bytes": 3e6}


@pytest.mark.parametrize(("fields", "says"), [
    ({}, "0.1.0"),
    ({"unknown_types": ["A", "B"]},
     "0.1.0 · newer than this hub, which does not support A, B: upgrade the hub first"),
    ({"cost": COST}, "0.1.0 · 0.6 % CPU · 42 MiB · reads in 4.2 ms"),
    ({"cost": COST | {"cpu_pct": None, "memory_bytes": None, "read_s": 2.0}},
     "0.1.0 · reads in 2,000 ms"),
    ({"pending": 20, "dropped": 0}, "0.1.0"),
    ({"pending": 21}, "0.1.0 · 21 messages queued for the hub"),
    ({"pending": 512, "dropped": 1, "cost": dict.fromkeys(COST) | {"outbox_bytes": 3e6}},
     "0.1.0 · 512 messages queued for the hub (2.9 MiB) · 1 message lost")])
def test_an_agent_and_its_cost(fields: dict[str, Any], says: str) -> None:
    assert agent_words(a_node(**fields)) == says


@pytest.mark.parametrize(("reader", "says", "is_well"), [
    (None, None, True), ({"state": "ok", "detail": ""}, "reads", True),
    ({"state": "ok", "detail": "x y"}, "reads: x y", False),
    ({"state": "hung", "detail": ""}, "the driver does not answer", False),
    ({"state": "new", "detail": "x y"}, "new: x y", False)])
def test_a_reader(reader: dict[str, str] | None, says: str | None, is_well: bool) -> None:
    node = a_node(reader=reader)
    assert reader_words(node) == says
    assert reader_trouble(node) == (None if is_well else says)


def test_a_node_that_is_refused() -> None:
    why = {"until": NOW + 60, "why": "too many names"}
    assert refused_words(a_node(refused=None), NOW, "UTC") is None
    assert refused_words(a_node(refused=why), NOW, "Europe/Berlin") == (
        "Refused until 01:54:20: too many names")
