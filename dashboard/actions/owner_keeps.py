"""Requests of owners: "keep until 18:00, because …". People see them before they act, rules respect
them. A request ends by itself."""

import time
from collections.abc import Iterable
from typing import Any

from gpudeck.contract.action_views import KeepView
from gpudeck.contract.wire import Task

from ..access.policy import AccessDenial, Actor, DenialReason, RefusedError, Role, actor_fields
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from ..fleet.fleet import Fleet, Node
from ..fleet.task_targets import task_on_node
from ..fleet.visibility import VisibilityScope, VisibleFleetCache
from .holds import one_line
from .standing_store import OwnerKeep, StandingStore

LASTS_MOST_S = 7 * 86_400.0
MOST = 20_000


class OwnerKeepService:
    def __init__(self, standing: StandingStore, auditor: AuditRecorder, fleet: Fleet,
                 visible_fleets: VisibleFleetCache) -> None:
        self._standing = standing
        self._auditor = auditor
        self._fleet = fleet
        self._visible_fleets = visible_fleets
        self._keeps = {(keep.node_id, keep.task_id): keep for keep in standing.keeps()}

    def of(self, node_id: str, task_id: str) -> OwnerKeep | None:
        keep = self._keeps.get((node_id, task_id))
        return keep if keep is not None and time.time() < keep.until else None

    def view_of(self, node_id: str, task_id: str) -> KeepView | None:
        keep = self.of(node_id, task_id)
        return None if keep is None else KeepView(keep.until, keep.because, keep.by)

    def of_any(self, node_id: str, task_ids: Iterable[str]) -> KeepView | None:
        """Return the keep that lasts longest, of the tasks of a job on this node."""
        keeps = [keep for task_id in {*task_ids}
                 if (keep := self.of(node_id, task_id)) is not None]
        last = max(keeps, key=lambda keep: keep.until, default=None)
        return None if last is None else KeepView(last.until, last.because, last.by)

    def set(self, actor: Actor, target: str, until: float, because: str) -> OwnerKeep:
        now = time.time()
        node, task = self._own(actor, "PUT /api/v1/tasks/<path:task_id>/keep", target)
        if not now < until <= now + LASTS_MOST_S:
            raise InvalidChangeError("`until` is in UTC seconds, after now and within seven days")
        if len(self._keeps) >= MOST:
            raise InvalidChangeError(f"{MOST} tasks are kept already, and no more can be")
        keep = OwnerKeep(node.hello.node_id, task.id, until, one_line(because, "`because`"),
                         actor.name, now)
        with self._change(actor, "set", node, task, {"until": until, "because": keep.because}):
            self._standing.drop_keeps_before(now)
            self._standing.put_keep(keep)
        self._keeps = {key: old for key, old in self._keeps.items() if old.until > now}
        self._keeps[keep.node_id, keep.task_id] = keep
        return keep

    def remove(self, actor: Actor, target: str) -> None:
        node, task = self._own(actor, "DELETE /api/v1/tasks/<path:task_id>/keep", target)
        if self.of(node.hello.node_id, task.id) is None:
            raise NotFoundError("there is no request to keep this task")
        with self._change(actor, "remove", node, task, {}):
            self._standing.drop_keep(node.hello.node_id, task.id)
        del self._keeps[node.hello.node_id, task.id]

    def _change(self, actor: Actor, action: str, node: Node, task: Task, detail: dict[str, Any]
                ) -> Any:
        verb = "wants it kept" if action == "set" else "no longer wants it kept"
        why = f", because: {detail['because']}" if detail.get("because") else ""
        return self._auditor.change("keep", actor_fields(actor) | {
            "action": action, "node": node.hello.node_id, "host": node.hello.host,
            "task_id": task.id, "detail": detail | {"owner": task.user},
            "sentence": f"task {task.id} of {task.user or 'somebody'}: {actor.name} {verb}{why}"})

    def _own(self, actor: Actor, verb: str, task_id: str) -> tuple[Node, Task]:
        """Return the node and the task, for its owner or an operator who sees it. Raises
        otherwise."""
        require(actor, verb)
        visible = self._visible_fleets.of(VisibilityScope.of(actor))
        node, task = task_on_node(visible.nodes(self._fleet), task_id)
        is_operator = actor.role is not None and actor.role.covers(Role.OPERATOR)
        if is_operator or actor.scope.owns(task.user):
            return node, task
        raise RefusedError(AccessDenial(DenialReason.FORBIDDEN,
                                        "this is for the task's owner and for operators"))

