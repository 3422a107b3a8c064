"""Guards of actions: each must be there, and one that fails refuses the action."""

import random
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from dashboard.access.policy import AccessTarget, Actor, RefusedError, Role, Scope, may
from dashboard.actions.errors import ActionRefusedError
from dashboard.actions.guards import ActionGuards
from dashboard.actions.lifecycle import CommandRecord
from dashboard.actions.service import ActionService
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditStore
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.fleet.visibility import VisibleFleetCache
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck.contract.actions import ActionParams, Preview, ProcessIdentity, Refusal, Victim
from gpudeck.contract.slurm import SlurmCancel, SlurmHold, SlurmJob, SlurmNow, SlurmRequeue
from gpudeck.contract.wire import Task
from tests.unit import fleets

NAMES = [field.name for field in fields(ActionGuards)]
SPEAKER = "n1.example"  # which may speak for Slurm
ADA = Actor("person", "ada", Role.OPERATOR, Scope(("*",)), "s1", time.time() + 3_600.0)


def guards_without_objection() -> dict[str, Callable[..., Any]]:
    """Return guards of which none objects."""
    return {name: lambda *_: None for name in NAMES}


def broken(_: Any) -> None:
    raise RuntimeError("it cannot be asked")


class Hub:
    """Hub of one node with one task; an order is noted, and no more."""

    def __init__(self, folder: Path, guards: dict[str, Callable[..., Any]]) -> None:
        self.state = HubState.open(folder)
        self.orders: list[tuple[CommandRecord, Refusal | None]] = []
        fleet_state = FleetStateMachine("hub", 1, time.monotonic())
        self.node = node = fleets.add_node(fleet_state.fleet, "n1", 1)
        self.job_owner: str | None = None  # as the node says when it is asked
        self.task_id = f"boot-{random.randrange(1, 10**6)}-9"
        node.tasks[self.task_id] = Task(self.task_id, 4_711, 9, time.time(), "ann", "train.py")
        self.guards = guards
        self.actions = ActionService(
            fleet_state, VisibleFleetCache(fleet_state.fleet),
            SimpleNamespace(holds=lambda _: True, person_behind=lambda actor: actor.name,
                            check=self.may),  # type: ignore[arg-type]
            SimpleNamespace(request=self.request), SimpleNamespace(order=self.note),  # type: ignore[arg-type]
            AuditRecorder(self.state.store(AuditStore), None, Dispatcher()),
            ActionGuards(*(self._guard(name) for name in NAMES)), False, frozenset({SPEAKER}))

    def may(self, actor: Actor, verb: str, target: AccessTarget) -> None:
        denial = may(actor, verb, target, time.time())
        if denial is not None:
            raise RefusedError(denial)

    def _guard(self, name: str) -> Callable[..., Any]:
        return lambda *about: self.guards[name](*about)

    def request(self, node_id: str, task_id: str, action: Any, params: ActionParams,
             _asker: str | None) -> Preview:
        if params.setting is not None:
            return Preview("ask", bytes(32), node_id, "boot", time.time(), action, params, task_id,
                           None, self.job_owner, None, None, None, (), ())
        victim = Victim(ProcessIdentity(4_711, 9, 1_000, None, None, None), "train.py", "ann",
                        task_id)
        return Preview("ask", bytes(32), node_id, "boot", time.time(), action, params, task_id,
                       None, "ann", 60.0, "compute", None, (victim,), ())

    def note(self, record: CommandRecord, preview: Preview | None, refusal: Refusal | None,
             _condition: None, **_: Any) -> CommandRecord:
        self.orders.append((record, refusal))
        return record

    def preview(self) -> Any:
        return self.actions.previews.preview(ADA, "end", [self.task_id], ActionParams(), False)

    def order(self, preview_id: str) -> None:
        self.actions.order(ADA, preview_id, "it idles", despite_maintenance=True)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_guard_there_is_no_service(name: str) -> None:
    guards = guards_without_objection()
    del guards[name]
    with pytest.raises(TypeError, match=name):
        ActionGuards(**guards)


def test_without_guards_there_is_no_service() -> None:
    with pytest.raises(TypeError, match="guards"):
        ActionService(*[None] * 6, second_person=False, slurm_nodes=frozenset())  # type: ignore[arg-type, misc]


def test_that_an_owner_hears_nothing_is_no_warning_for_themselves(tmp_path: Path) -> None:
    hub = Hub(tmp_path, guards_without_objection() | {"unreached": lambda _: "no mail server"})
    ann = Actor("person", "annie", Role.USER, Scope(("*",), ("ann",)), "s2", time.time() + 3_600)
    for actor, warnings in ((ADA, ["no mail server"]), (ann, [])):
        preview = hub.actions.previews.preview(actor, "end", [hub.task_id], ActionParams(), False)
        assert [[*item.warnings] for item in preview.items] == [warnings]


def test_where_nothing_speaks_against_it_it_is_ordered(tmp_path: Path) -> None:
    hub = Hub(tmp_path, guards_without_objection())
    hub.order(hub.preview().id)
    assert [(record.task_id, refusal) for record, refusal in hub.orders] == [(hub.task_id, None)]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "hold"])
def test_a_guard_that_fails_gives_no_preview(tmp_path: Path, name: str) -> None:
    with pytest.raises(ActionRefusedError) as error:
        Hub(tmp_path, guards_without_objection() | {name: broken}).preview()
    assert (error.value.status, error.value.code) == (503, "guard")


def test_where_a_hold_cannot_be_asked_for_the_job_is_refused(tmp_path: Path) -> None:
    hub = Hub(tmp_path, guards_without_objection() | {"hold": broken})
    preview = hub.preview()
    assert preview.refused
    assert [refusal.code for refusal in preview.items[0].refusals] == ["hold"]
    hub.order(preview.id)
    assert [refusal and refusal.code for _, refusal in hub.orders] == ["hold"]


def test_where_a_hold_cannot_be_asked_for_since_the_preview_it_is_refused(tmp_path: Path) -> None:
    hub = Hub(tmp_path, guards_without_objection())
    preview = hub.preview()
    hub.guards["hold"] = broken
    hub.order(preview.id)
    assert [refusal and refusal.code for _, refusal in hub.orders] == ["hold"]


def test_where_maintenance_cannot_be_asked_for_nothing_is_ordered(tmp_path: Path) -> None:
    hub = Hub(tmp_path, guards_without_objection())
    preview = hub.preview()
    hub.guards["maintenance"] = broken
    with pytest.raises(ActionRefusedError):
        hub.order(preview.id)
    assert hub.orders == []


def test_what_was_held_since_the_preview_is_refused(tmp_path: Path) -> None:
    hub = Hub(tmp_path, guards_without_objection())
    preview = hub.preview()
    hold = Refusal("hold", "ada holds all acts on this node")
    hub.guards["hold"] = lambda _: hold
    hub.order(preview.id)
    assert [refusal for _, refusal in hub.orders] == [hold]


ANN = Actor("person", "ann", Role.USER, Scope(("*",), ("ann",)), "s2")


def a_slurm_job(folder: Path, owner: str = "ann", asked_owner: str = "ann") -> Hub:
    folder.mkdir(exist_ok=True)
    hub = Hub(folder, guards_without_objection())
    hub.node.slurm = SlurmNow(1.0, jobs=(SlurmJob(12, "12", "RUNNING", 100.0, owner, gpus=1),))
    hub.job_owner = asked_owner
    return hub


def cancel_job(actor: Actor, hub: Hub, number: str = "12", submitted_at: int = 100) -> None:
    params = ActionParams(setting=SlurmCancel(number, submitted_at))
    preview = hub.actions.previews.preview(actor, "slurm_cancel", ["n1"], params, False)
    assert not preview.items[0].refusals, "a refused one is not ordered"
    hub.actions.order(actor, preview.id, "a wrong one")


def test_a_user_cancels_their_own_job_of_slurm(tmp_path: Path) -> None:
    hub = a_slurm_job(tmp_path)
    cancel_job(ANN, hub)
    assert [(record.action, record.owner) for record, _ in hub.orders] == [("slurm_cancel", "ann")]
    requeue = ActionParams(setting=SlurmRequeue("12", 100))
    assert hub.actions.previews.preview(ANN, "slurm_requeue", ["n1"], requeue, False).items


def test_no_job_of_another_one_and_none_that_the_node_knows_otherwise(tmp_path: Path) -> None:
    for owner, number, submitted_at in (("bob", "12", 100), ("ann", "13", 100), ("ann", "12", 101)):
        with pytest.raises(RefusedError):
            cancel_job(ANN, a_slurm_job(tmp_path / f"{owner}{number}{submitted_at}", owner),
                       number, submitted_at)
    hub = a_slurm_job(tmp_path / "changed", asked_owner="bob")
    with pytest.raises(AssertionError, match="is not ordered"):
        cancel_job(ANN, hub)
    assert hub.orders == []


def test_what_an_administrator_of_slurm_holds_is_no_owners_to_release(tmp_path: Path) -> None:
    hold = ActionParams(setting=SlurmHold("12", 100))
    with pytest.raises(RefusedError):
        a_slurm_job(tmp_path).actions.previews.preview(ANN, "slurm_hold", ["n1"], hold, False)


def test_a_node_that_may_not_speak_for_slurm_gives_nobody_a_job(tmp_path: Path) -> None:
    hub = a_slurm_job(tmp_path)
    hub.node.hello = structs.replace(hub.node.hello, host="elsewhere")
    with pytest.raises(RefusedError):
        cancel_job(ANN, hub)
