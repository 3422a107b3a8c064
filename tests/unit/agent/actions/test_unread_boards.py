"""Boards of a driver that does not list its processes, beside those of one that does."""

from pathlib import Path

from agent.actions.context import TaskLookup
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.mps import LocalMpsDaemons
from agent.limits.stores import SuspensionStore
from agent.readings import OnDemandReading
from agent.telemetry.recent_tasks import RecentTasks
from gpudeck.contract.repairs import WHOLE_NODE

NVIDIA, AMD = "GPU-5d0a1c7e-0000-4000-8000-000000000001", "GPU-946d7e1ef9b172dd"


class ProcessLists:
    """Source whose list lacks a vendor's."""

    pids: frozenset[int] = frozenset()
    detail = ""

    def readers_of(self, uuid: str) -> frozenset[int]:
        return self.pids

    def __init__(self, *unread: str) -> None:
        self.unread = unread

    def fresh(self, timeout_s: float) -> OnDemandReading:
        return OnDemandReading((), {}, unread=self.unread)


def test_nobody_says_that_a_board_is_empty_whose_driver_lists_nothing(tmp_path: Path) -> None:
    store = ActionStore(tmp_path / "acts.db", durable=False)

    def listed(uuid: str, *unread: str) -> bool:
        return TaskLookup("boot-1", ProcessLists(*unread), LocalMpsDaemons(""), RecentTasks(),
                          SuspensionStore(ActionJournal(store))).find(uuid) is not None

    assert [listed(uuid, "AMD") for uuid in (NVIDIA, AMD, WHOLE_NODE, "")] == [
        True, False, False, True]
    assert all(listed(uuid) for uuid in (NVIDIA, AMD, WHOLE_NODE, ""))
    store.close()
