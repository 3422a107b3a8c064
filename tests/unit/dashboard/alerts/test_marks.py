"""Marks of an Alert: at the GPUs that it is about, now and later on."""

import random
import sqlite3
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from dashboard.alerts import store
from dashboard.alerts.core.firing_alerts import Alert, AlertTarget, FiringAlerts
from dashboard.alerts.core.query import AlertQuery
from dashboard.alerts.core.rule import Of
from dashboard.alerts.store import AlertsStore
from dashboard.state import STEPS, HubState
from tests.unit.dashboard.alerts.test_targets import World, task

OFS: tuple[Of, ...] = ("gpu", "task", "job", "owner", "node", "fleet")


def alert(of: Of, target: str, gpus: tuple[str, ...] = (), at: float = 100.0,
          ended_at: float | None = None) -> Alert:
    return Alert(f"{of}/{target}/{at}", of, "v", "Hot", "warn", of, AlertTarget(
        target, "n0", "n0", gpus=gpus), "firing", at, at, at, None, ended_at=ended_at)


def test_each_is_named_with_the_gpus_that_it_is_on() -> None:
    world, wide, other = World(2), task(launch="torchrun n0:1", rank=0), task("bob")
    far = task(launch="torchrun n0:1", rank=1)
    world.on["n0"] = [(wide, 0, 1e9, 5.0), (wide, 1, 1e9, 5.0), (other, 1, 1e9, 5.0)]
    world.on["n1"] = [(far, 1, 1e9, 5.0)]
    scenes = world.next_look()
    gpus_of = {of: {scenes[of].name(row).gpus for row in range(len(scenes[of].there))
                    if scenes[of].there[row]} for of in OFS}
    own = {"n0": ("GPU-n0-0", "GPU-n0-1"), "n1": ("GPU-n1-1",)}
    assert gpus_of["task"] == {own["n0"], ("GPU-n0-1",), own["n1"]}
    assert gpus_of["job"] == {own["n0"] + own["n1"], ("GPU-n0-1",)}
    assert gpus_of["owner"] == gpus_of["job"]
    assert gpus_of["gpu"] == {(uuid,) for uuid in world.fleet.uuids}
    assert gpus_of["node"] == gpus_of["fleet"] == {()}


def test_who_moves_on_takes_the_alert_along() -> None:
    alerts, own = FiringAlerts(), ("GPU-1",)
    for row, of in enumerate(OFS):
        alerts.adopt(row, alert(of, of, own))
    now: dict[Of, tuple[str, ...]] = {"task": own, "job": ("GPU-1", "GPU-2"), "owner": (),
                                      "gpu": ("GPU-9",)}
    changed = alerts.follow(lambda of, row: now.get(of, ()) if OFS[row] == of else ())
    assert [(change.of, change.target.gpus) for change in changed] == [
        ("job", ("GPU-1", "GPU-2"))], "who is on none now is where they were"
    assert {entry.of: entry.target.gpus for entry in alerts.firing()}["job"] == ("GPU-1", "GPU-2")
    assert alerts.follow(lambda of, row: now.get(of, ())) == []


def test_a_nodes_is_marked_at_its_gpus_and_nobody_elses() -> None:
    about = AlertQuery(gpus=frozenset(("GPU-1",)), nodes=frozenset(("n0",)))
    assert about.matches(alert("node", "n0"))
    assert not about.matches(alert("node", "n1"))
    assert not about.matches(alert("gpu", "GPU-2", ("GPU-2",)))
    assert not about.matches(alert("fleet", "fleet"))


@pytest.mark.parametrize("seed", [random.randrange(10**6) for _ in range(3)])
def test_the_store_finds_what_matches(tmp_path: Path, seed: int) -> None:
    lots, state = random.Random(seed), HubState.open(tmp_path)
    gpus, nodes = [f"GPU-{at}" for at in range(6)], ["n0", "n1"]
    entries = []
    for at in range(120):
        of = lots.choice(OFS)
        on = tuple(lots.sample(gpus, lots.randint(1, 3)))
        key = {"gpu": on[0], "node": lots.choice(nodes)}.get(of, f"{of}{at}")
        entries.append(alert(of, key, {"gpu": on[:1], "node": ()}.get(of, on), float(at), at + 5.0))
    entries.append(alert("gpu", gpus[0], (), 200.0, 205.0))  # kept before GPUs were
    state.store(AlertsStore).put_alerts(entries)
    moved_ids = frozenset(lots.sample([entry.id for entry in entries if entry.of == "owner"], 5))
    state.store(AlertsStore).put_alerts([
        replace(entry, target=replace(entry.target, gpus=("GPU-7",)))
        for entry in entries if entry.id in moved_ids])
    for _ in range(40):
        some = frozenset(lots.sample(gpus, lots.randint(0, 3)))
        about = lots.choice([AlertQuery(), AlertQuery(gpus=some), AlertQuery(
            gpus=some, nodes=frozenset(lots.sample(nodes, 1))), AlertQuery(targets=some)])
        start, end = sorted((lots.uniform(0, 210), lots.uniform(0, 210)))
        matching = state.store(AlertsStore).ended_alerts(start, end, about)
        assert {entry.id for entry in matching} == {
            entry.id for entry in entries if about.matches(entry) and entry.ended_at is not None
            and entry.ended_at >= start and entry.fired_at < end}, "also where it was before"
    moved = state.store(AlertsStore).ended_alerts(0, 300, AlertQuery(gpus=frozenset(("GPU-7",))))
    assert {entry.id for entry in moved} == moved_ids
    state.store(AlertsStore).forget(1e9)
    assert state._db.execute("select count(*) from alert_marks").fetchone() == (0,)
    state.close()


def test_from_a_hub_that_kept_no_marks(tmp_path: Path) -> None:
    """Alerts of its GPUs and Nodes are found; what tasks were on it had not written down."""
    tmp_path.chmod(0o700)
    db = sqlite3.connect(tmp_path / "state.db")
    step_count = STEPS.index(store.MARKS_SCHEMA)
    for step in STEPS[:step_count]:
        db.executescript(step)
    db.execute(f"pragma user_version = {step_count}")
    db.execute("insert into alerts values ('a', 'hot', 'n0', 'GPU-1', 1, 2, ?)",
               (msgspec.json.encode(alert("gpu", "GPU-1", (), 1.0, 2.0)),))
    db.commit()
    db.close()
    state = HubState.open(tmp_path)
    [old_alert] = state.store(AlertsStore).ended_alerts(
        0, 9, AlertQuery(gpus=frozenset(("GPU-1", "GPU-2"))))
    assert old_alert.target.key == "GPU-1"
    state.close()
