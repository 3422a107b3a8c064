"""A plan is for exactly what was seen: it never matches a preview with any identity changed."""

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.contract.action_plan import (
    ActionPlanDocument,
    InvalidPlanError,
    changes,
    decode,
    encode,
    plan_of,
)
from gpudeck.contract.action_views import PreviewView
from tests.unit.shown_actions import item, preview

Change = Callable[[dict[str, Any], random.Random], None]



def _set(field: str, value: Any) -> Change:
    def change(job: dict[str, Any], chance: random.Random) -> None:
        assert job[field] != value
        job[field] = value
    return change


def _process(field: str, make: Callable[[Any, random.Random], Any]) -> Change:
    def change(job: dict[str, Any], chance: random.Random) -> None:
        process = chance.choice(job["processes"])
        process[field] = make(process[field], chance)
    return change


def _grows(job: dict[str, Any], chance: random.Random) -> None:
    job["processes"].append({**job["processes"][0], "pid": 7, "task_id": None})


def _shrinks(job: dict[str, Any], chance: random.Random) -> None:
    job["processes"].pop(chance.randrange(len(job["processes"])))


def _neighbour(job: dict[str, Any], chance: random.Random) -> None:
    job["bystanders"].append({"task_id": "new", "user": "carol", "command": None, "gpus": []})


def _moved(job: dict[str, Any], chance: random.Random) -> None:
    job["gpus"][0]["uuid"] += "x"


def _reused(job: dict[str, Any], chance: random.Random) -> None:
    """The same pid, another start: another process."""
    job["task_ids"][0] += "1"


CHANGES: dict[str, Change] = {
    "node": _set("node", "f" * 32), "host": _set("host", "rack-4"), "job": _set("job_id", None),
    "owner": _set("owner", "mallory"), "no owner": _set("owner", None),
    "exec": _set("command", "python other.py"), "kind": _set("kind", "mps_client"),
    "manager": _set("manager", "slurm job 4"), "task": _reused, "GPU": _moved,
    "pid": _process("pid", lambda pid, chance: pid + 1 + chance.randrange(9)),
    "start": _process("start_ticks", lambda ticks, chance: ticks + 1),
    "start unknown": _process("start_ticks", lambda ticks, chance: 0),
    "task of a process": _process("task_id", lambda task_id, chance: f"{task_id}0"),
    "user": _process("user", lambda user, chance: "root"),
    "process command": _process("command", lambda command, chance: "bash"),
    "grown": _grows, "shrunk": _shrinks, "neighbour": _neighbour,
    "kept": _set("keep", {"until": 9e9, "because": "paper", "by": "alice"}),
    "refused": _set("refusals", [{"code": "hold", "sentence": "held"}]),
}


def as_dict(view: PreviewView) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(msgspec.json.encode(view))
    return content


@pytest.mark.parametrize("name", CHANGES)
@given(seed=st.integers(0, 2**32))
def test_a_changed_identity_never_matches(name: str, seed: int) -> None:
    chance = random.Random(seed)
    view = preview(chance)
    plan = decode(encode(plan_of(view, 1_000.0)))
    assert changes(plan, view) == []
    now = as_dict(view)
    CHANGES[name](chance.choice(now["items"]), chance)
    assert changes(plan, msgspec.convert(now, PreviewView)) != []


@given(seed=st.integers(0, 2**32))
def test_what_is_no_identity_may_change(seed: int) -> None:
    """The control: memory, age, order and warnings differ in every look."""
    chance = random.Random(seed)
    view = preview(chance)
    now = as_dict(view)
    now["id"] = "another"
    for job in now["items"]:
        job["age_s"] += 60.0
        job["mem_used_bytes"] *= 1.5
        job["warnings"].append("memory grows")
        chance.shuffle(job["processes"])
        chance.shuffle(job["gpus"])
        chance.shuffle(job["bystanders"])
    chance.shuffle(now["items"])
    assert changes(plan_of(view, 1.0), msgspec.convert(now, PreviewView)) == []


@given(seed=st.integers(0, 2**32))
def test_neither_more_nor_fewer_jobs(seed: int) -> None:
    chance = random.Random(seed)
    view = preview(chance)
    plan, now = plan_of(view, 1.0), as_dict(view)
    more = {**now, "items": [*now["items"], item(chance)]}
    fewer = {**now, "items": now["items"][1:]}
    assert any("was not planned" in change
               for change in changes(plan, msgspec.convert(more, PreviewView)))
    assert any("no longer there" in change
               for change in changes(plan, msgspec.convert(fewer, PreviewView)))


def test_another_act_or_way_is_another_plan() -> None:
    view = preview(random.Random(random.random()))
    plan = plan_of(view, 1.0)
    pause = msgspec.structs.replace(view, action="pause")
    assert "not to pause" in changes(plan, pause)[0]
    assert changes(plan, msgspec.structs.replace(view, params={"grace_s": 1.0}))


def test_the_round_trip() -> None:
    view = preview(random.Random(random.random()))
    plan = plan_of(view, 1_234.5)
    assert decode(encode(plan)) == plan
    assert plan.targets == [task_id for job in view.items for task_id in job.task_ids]
    assert json.loads(encode(plan))["gpudeck_plan"] == 1


def test_what_would_be_refused_is_not_planned() -> None:
    chance = random.Random(random.random())
    refused_job = item(chance, refusals=[{"code": "hold", "sentence": "held"}])
    good = item(chance)
    plan = plan_of(preview(chance, items=[refused_job, good]), 1.0)
    assert plan.targets == good["task_ids"]
    with pytest.raises(InvalidPlanError, match="everything would be refused"):
        plan_of(preview(chance, items=[refused_job]), 1.0)


def test_a_pid_alone_is_no_identity() -> None:
    chance = random.Random(random.random())
    job = item(chance)
    job["processes"].append({"pid": 9, "user": "alice", "command": "x", "task_id": None})
    with pytest.raises(InvalidPlanError, match="process 9 is identified only by its pid"):
        plan_of(preview(chance, items=[job]), 1.0)


def broken() -> list[bytes]:
    good = json.loads(encode(plan_of(preview(random.Random(3)), 1.0)))
    cases: list[Any] = [{}, [], good | {"gpudeck_plan": 2}, good | {"jobs": []},
                        good | {"action": "hold"}, good | {"more": 1},
                        good | {"jobs": [good["jobs"][0] | {"task_ids": []}]}]
    return [b"", b"\xff", b"{", *(json.dumps(case).encode() for case in cases)]


@pytest.mark.parametrize("raw", broken())
def test_a_broken_plan_is_no_plan(raw: bytes) -> None:
    with pytest.raises(InvalidPlanError):
        decode(raw)


def test_the_plan_is_a_struct_of_its_own() -> None:
    """A plan is no view of the interface, and must be readable after the interface has grown."""
    assert set(ActionPlanDocument.__struct_fields__) == {"gpudeck_plan", "made_at", "action",
                                                         "params", "jobs"}
