"""What may speak against an action: it must be there, and one that fails refuses the action."""

import random
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.access.policy import AccessTarget, Actor, RefusedError, Role, Scope, may
from dashboard.actions.errors import ActionRefusedError
from dashboard.actions.guards import ActionGuards
from dashboard.actions.lifecycle import CommandRecord
from dashboard.actions.service import ActionService
from dashboard.audit.recorder import AuditRecorder
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.fleet.visibility import VisibleFleetCache
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck.actions import ActionParams, Preview, ProcessIdentity, Refusal, Victim
from gpudeck.wire import Task
from tests.unit import fleets

NAMES = [field.name for field in fields(ActionGuards)]
ADA = Actor("person", "ada", Role.OPERATOR, Scope(("*",)), "s1", time.time() + 3_600.0)


def silent() -> dict[str, Callable[..., Any]]:
    """Nothing speaks against it."""
    return {name: lambda *_: None for name in NAMES}


def broken(_: Any) -> None:
    raise RuntimeError("it cannot be asked")


class Hub:
    """One node with one task; what is ordered there is noted, and no more."""

    def __init__(self, folder: Path, guards: dict[str, Callable[..., Any]]) -> None:
        self.state = HubState.open(folder)
        self.ordered: list[tuple[CommandRecord, Refusal | None]] = []
        fleet_state = FleetStateMachine("hub", 1, time.monotonic())
        node = fleets.add_node(fleet_state.fleet, "n1", 1)
        self.task_id = f"boot-{random.randrange(1, 10**6)}-9"
        node.tasks[self.task_id] = Task(self.task_id, 4_711, 9, time.time(), "ann", "train.py")
        self.guards = guards
        self.actions = ActionService(
            fleet_state, VisibleFleetCache(fleet_state.fleet),
            SimpleNamespace(holds=lambda _: True, behind=lambda actor: actor.name,
                            check=self.may),  # type: ignore[arg-type]
            SimpleNamespace(look=self.look), SimpleNamespace(order=self.note),  # type: ignore[arg-type]
            AuditRecorder(self.state.audit, None, Dispatcher()),
            ActionGuards(*(self._asked(name) for name in NAMES)), False)

    def may(self, actor: Actor, verb: str, target: AccessTarget) -> None:
        denial = may(actor, verb, target, time.time())
        if denial is not None:
            raise RefusedError(denial)

    def _asked(self, name: str) -> Callable[..., Any]:
        return lambda *about: self.guards[name](*about)

    def look(self, node_id: str, task_id: str, action: Any, params: ActionParams,
             _asker: str | None) -> Preview:
        victim = Victim(ProcessIdentity(4_711, 9, 1_000, None, None, None), "train.py", "ann",
                        task_id)
        return Preview("ask", bytes(32), node_id, "boot", time.time(), action, params, task_id,
                       None, "ann", 60.0, "compute", None, (victim,), ())

    def note(self, record: CommandRecord, preview: Preview | None, refusal: Refusal | None,
             _condition: None, **_: Any) -> CommandRecord:
        self.ordered.append((record, refusal))
        return record

    def preview(self) -> Any:
        return self.actions.previews.preview(ADA, "end", [self.task_id], ActionParams(), False)

    def order(self, preview_id: str) -> None:
        self.actions.order(ADA, preview_id, "it idles", despite_maintenance=True)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_guard_there_is_no_service(name: str) -> None:
    guards = silent()
    del guards[name]
    with pytest.raises(TypeError, match=name):
        ActionGuards(**guards)


def test_without_guards_there_is_no_service() -> None:
    with pytest.raises(TypeError, match="guards"):
        ActionService(*[None] * 6, second_person=False)  # type: ignore[arg-type, misc]


def test_where_nothing_speaks_against_it_it_is_ordered(tmp_path: Path) -> None:
    hub = Hub(tmp_path, silent())
    hub.order(hub.preview().id)
    assert [(record.task_id, refusal) for record, refusal in hub.ordered] == [(hub.task_id, None)]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "hold"])
def test_a_guard_that_fails_gives_no_preview(tmp_path: Path, name: str) -> None:
    with pytest.raises(ActionRefusedError) as refused:
        Hub(tmp_path, silent() | {name: broken}).preview()
    assert (refused.value.status, refused.value.code) == (503, "guard")


def test_where_a_hold_cannot_be_asked_for_the_job_is_refused(tmp_path: Path) -> None:
    hub = Hub(tmp_path, silent() | {"hold": broken})
    shown = hub.preview()
    assert shown.refused
    assert [each.code for each in shown.items[0].refusals] == ["hold"]
    hub.order(shown.id)
    assert [refusal and refusal.code for _, refusal in hub.ordered] == ["hold"]


def test_where_a_hold_cannot_be_asked_for_since_the_preview_it_is_refused(tmp_path: Path) -> None:
    hub = Hub(tmp_path, silent())
    shown = hub.preview()
    hub.guards["hold"] = broken
    hub.order(shown.id)
    assert [refusal and refusal.code for _, refusal in hub.ordered] == ["hold"]


def test_where_maintenance_cannot_be_asked_for_nothing_is_ordered(tmp_path: Path) -> None:
    hub = Hub(tmp_path, silent())
    shown = hub.preview()
    hub.guards["maintenance"] = broken
    with pytest.raises(ActionRefusedError):
        hub.order(shown.id)
    assert hub.ordered == []


def test_what_was_held_since_the_preview_is_refused(tmp_path: Path) -> None:
    hub = Hub(tmp_path, silent())
    shown = hub.preview()
    held = Refusal("hold", "ada holds all acts on this node")
    hub.guards["hold"] = lambda _: held
    hub.order(shown.id)
    assert [refusal for _, refusal in hub.ordered] == [held]
