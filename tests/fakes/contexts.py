"""A node as actions see it, with everything that could forbid one under a test's control."""

from collections.abc import Callable
from pathlib import Path

from agent.actions.context import (
    ActionGuards,
    BoardRepairs,
    NodeContext,
    NodeFacts,
    TaskLookup,
)
from agent.backends import RECORDED
from agent.journal.store import ActionJournal
from agent.limits.apply import LimitApplier
from agent.limits.mps import LocalMpsDaemons
from agent.limits.stores import open_limits
from agent.readings import ProcessListSource
from agent.schedulers import Schedulers
from agent.tasks.boot_id import boot_id
from agent.tasks.people import SystemPeople
from agent.telemetry.recent_tasks import RecentTasks


def a_context(
    source: ProcessListSource, journal: ActionJournal, ceiling: Path, node_id: str = "node",
    holds: Callable[[], tuple[str, ...]] = lambda: (), has_host_pids: bool = False,
) -> NodeContext:
    mps = LocalMpsDaemons(is_alone=True)
    limits = open_limits(LimitApplier(RECORDED, "", lambda _: ""), mps, journal, boot_id(), True)
    return NodeContext(
        NodeFacts(node_id, boot_id(), has_host_pids, False, lambda: None),
        BoardRepairs(RECORDED, ceiling.parent),
        TaskLookup(boot_id(), source, mps, RecentTasks(), limits.suspensions),
        limits, Schedulers(),
        ActionGuards(ceiling, holds, lambda _, __: 0), SystemPeople())
