"""The states of a repair: what may follow what, and what follows from a look at the node."""

import random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.contract.repairs import (
    ASKED_FOR,
    LIFE,
    WHOLE_NODE,
    WORDS,
    GpuRepair,
    RepairEvent,
    RepairState,
    after,
    observe,
    of_gpu,
    overdue,
    why_not,
)

BOOT = "boot-1"


def repair(state: RepairState, uuid: str = "GPU-1", until: float | None = None) -> GpuRepair:
    return GpuRepair(uuid, state, "ada", "fan noise", 10.0, 20.0, BOOT, until)


@pytest.mark.parametrize(("state", "is_used", "boot", "then"), [
    ("draining", False, BOOT, "drained"),
    ("draining", True, BOOT, None),
    ("draining", None, BOOT, None),  # not known is not empty
    ("drained", True, BOOT, "draining"),
    ("drained", None, BOOT, None),
    ("cordoned", False, BOOT, None),
    ("needs_reboot", False, BOOT, None),
    ("needs_reboot", None, "boot-2", "cordoned"),
    ("needs_inspection", False, "boot-2", None),  # a reboot mends no broken board
])
def test_what_a_look_at_the_node_changes(state: RepairState, is_used: bool | None, boot: str,
                                         then: RepairState | None) -> None:
    now = random.uniform(100, 200)
    next_repair = observe(repair(state, until=150.0), is_used, boot, now)
    assert (None if next_repair is None else next_repair.state) == then
    if next_repair is not None:
        assert (next_repair.since, next_repair.began_at, next_repair.by) == (now, 10.0, "ada")
        assert next_repair.words


def test_every_state_has_words_and_a_way_back() -> None:
    assert LIFE.keys() == WORDS.keys() == {"in_service", *get_args(RepairState)}
    assert {state for after_ in LIFE.values() for state in after_.values()} == LIFE.keys()
    for state in LIFE:
        reached, todo = {state}, [state]
        while todo:
            new = {*LIFE[todo.pop()].values()} - reached
            reached |= new
            todo += new
        assert "in_service" in reached, state


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(get_args(RepairEvent)), max_size=30))
def test_nothing_that_is_not_in_the_table_happens(events: list[RepairEvent]) -> None:
    now: GpuRepair | None = repair("cordoned")
    for at, event in enumerate(events):
        if now is None:
            return
        if why_not(now, event):
            with pytest.raises(KeyError):
                after(now, event, float(at))
            continue
        was, now = now, after(now, event, float(at))
        assert (now is None) == (LIFE[was.state][event] == "in_service")


@pytest.mark.parametrize("event", ASKED_FOR)
@pytest.mark.parametrize("state", get_args(RepairState))
def test_a_refusal_says_what_can_be_done(state: RepairState, event: RepairEvent) -> None:
    why = why_not(repair(state), event)
    assert bool(why) == (event not in LIFE[state])
    if why:
        assert WORDS[state] in why


def test_what_is_in_service_is_neither_returned_nor_reset() -> None:
    assert why_not(None, "return") == "it is in service"
    assert why_not(None, "reset")
    assert why_not(None, "cordon") == why_not(None, "drain") == ""


def test_its_own_record_counts_before_that_of_its_node() -> None:
    own, node = repair("drained"), repair("cordoned", WHOLE_NODE)
    assert of_gpu([node, own], "GPU-1") == own
    assert of_gpu([own, node], "GPU-2") == node
    assert of_gpu([own], "GPU-2") is None
    assert "the node is" in node.sentence
    assert "fan noise" in own.sentence


def test_only_a_drain_is_ever_overdue() -> None:
    at = random.uniform(30, 90)
    assert overdue(repair("draining", until=at), at)
    assert not overdue(repair("draining", until=at), at - 1)
    assert not overdue(repair("draining"), at)
    assert not overdue(repair("drained", until=at), at + 1)
