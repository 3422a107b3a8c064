"""Tasks that gpudeck has left paused, as its audit log has them."""

from typing import Any

import msgspec
import pytest

from agent.actions.left_paused import ENDS_OF_A_PAUSE, paused_tasks
from gpudeck.contract.actions import ProcessIdentity

BOOT = "0123456789abcdef"
TASK, OTHER = f"{BOOT[:8]}-10-1", f"{BOOT[:8]}-20-1"


def process(pid: int) -> ProcessIdentity:
    return ProcessIdentity(pid, 1, 1_000, None, None, None)


def intent(action: str, task_id: str, *pids: int) -> dict[str, Any]:
    return {"intent": True, "action": action, "task_id": task_id,
            "victims": [msgspec.to_builtins(process(pid)) for pid in pids]}


def test_a_pause_lasts_until_something_else_is_done() -> None:
    records = [intent("pause", TASK, 10, 11), intent("pause", OTHER, 20)]
    assert paused_tasks(records, BOOT) == {TASK: (process(10), process(11)),
                                           OTHER: (process(20),)}


@pytest.mark.parametrize("action", ENDS_OF_A_PAUSE)
def test_what_came_after_it_ends_it_whatever_stopped_the_process_since(action: str) -> None:
    records = [intent("pause", TASK, 10, 11), intent("pause", OTHER, 20), intent(action, TASK, 10)]
    assert paused_tasks(records, BOOT) == {OTHER: (process(20),)}


def test_one_of_an_earlier_start_of_the_machine_is_somebody_elses_by_now() -> None:
    assert paused_tasks([intent("pause", TASK, 10)], "f" * 16) == {}
