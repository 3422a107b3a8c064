"""What the guard is asked about: the processes that would be hit, and this node's own limits."""

from functools import cache

from gpudeck.action_table import ShownAction

from ..tasks.cgroup_freezer import is_frozen
from ..tasks.processes import (
    ProcessFacts,
    age_s,
    file_id,
    in_host_namespace,
    ourselves,
    own_manager,
)
from . import guard
from .context import NodeContext
from .guard import GuardedProcess, GuardInput, ProtectedExecutables


def case_of(
    context: NodeContext, action: ShownAction, subjects: tuple[GuardedProcess, ...],
    target: ProcessFacts,
    asker: str | None = None,
) -> GuardInput:
    ceiling = context.guards.ceiling()
    clients = any(subject.kind == "mps_client" for subject in subjects)
    return GuardInput(
        action=action, ceiling=ceiling, subjects=subjects, target_pid=target.identity.pid,
        age_s=age_s(target.identity.start_ticks), protected=protected(),
        protected_by_ceiling=ceiling.protected_ids(), holds=context.guards.holds(), asker=asker,
        sees_host_pids=not context.node.has_host_pids or in_host_namespace(),
        kills_last_hour=context.guards.kills_last_hour(),
        manager=next((managed for subject in subjects
                      if (managed := managed_by(subject.facts))), None),
        mps=context.limits.mps.trouble() if clients and action in guard.LEAVE_MPS else "",
    )


def subject_of(
    context: NodeContext, facts: ProcessFacts, user: str | None, kind: str | None, may_signal: bool
) -> GuardedProcess:
    pid = facts.identity.pid
    is_ours = pid in ourselves() or pid in context.tasks.source.pids
    return GuardedProcess(facts, user, kind, may_signal, is_ours, is_frozen(facts.cgroups))


def managed_by(facts: ProcessFacts) -> str | None:
    return None if facts.manager == own_manager() else facts.manager


@cache
def protected() -> ProtectedExecutables:
    return ProtectedExecutables(
        frozenset(filter(None, map(file_id, guard.SYSTEM_EXECUTABLES))),
        frozenset(filter(None, map(file_id, guard.EVERYBODYS_EXECUTABLES))))
