"""Previews: which jobs are meant, and what their nodes say of them."""

import secrets
import time

import gevent

from gpudeck.action_table import ShownAction
from gpudeck.action_views import PreviewView
from gpudeck.actions import PREVIEW_LASTS_S, ActionParams, Refusal

from ..access.policy import AccessDenial, AccessTarget, Actor, DenialReason, RefusedError
from ..fleet.fleet import Node
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibleFleet
from .authorizer import ActionAuthorizer
from .errors import ActionRefusedError
from .guards import ActionGuards
from .preview_cache import CachedPreview, JobPreview, PreviewCache, PreviewTarget, merged
from .preview_requests import PreviewRequester
from .preview_views import PreviewPresenter
from .setting_actions import (
    TASKS,
    InvalidSettingActionError,
    UnknownTargetError,
    is_setting,
    resolve,
)

PREVIEW = "POST /api/v1/previews"
MOST_JOBS = 10


class PreviewService:
    def __init__(self, fleet_state: FleetStateMachine, authorizer: ActionAuthorizer,
                 requester: PreviewRequester, guards: ActionGuards, presenter: PreviewPresenter,
                 cache: PreviewCache) -> None:
        self._fleet_state = fleet_state
        self._authorizer = authorizer
        self._requester = requester
        self._guards = guards
        self._presenter = presenter
        self._cache = cache

    def preview(self, actor: Actor, action: ShownAction, targets: list[str], params: ActionParams,
                is_plan: bool) -> PreviewView:
        started, mono = time.time(), time.monotonic()
        if is_setting(action, params):
            found, params = self._setting_target(actor, action, targets, params)
        else:
            found = self._job_targets(actor, action, targets)
        if len(found) > MOST_JOBS and not (is_plan and actor.kind == "program"):
            raise ActionRefusedError(400, "too_many",
                                     f"{len(found)} jobs are more than {MOST_JOBS} at "
                                     "once; a plan of the terminal can do it: gpudeck "
                                     f"{action} --hub URL --plan FILE")
        jobs = merged(self._authorizer.within_scope(actor, PREVIEW, job)
                      for job in self.ask_nodes(found, action, params))
        shown = CachedPreview(secrets.token_urlsafe(18), actor, action, params,
                              started + PREVIEW_LASTS_S, mono + PREVIEW_LASTS_S, jobs)
        view = self._presenter.view(shown, self._authorizer.visible(actor).reads)
        self._cache.put(shown)
        return view

    def _job_targets(self, actor: Actor, action: ShownAction, task_ids: list[str]
                     ) -> list[PreviewTarget]:
        """One per job, as far as the tasks' nodes have said what belongs together."""
        visible = self._authorizer.visible(actor)
        found: dict[tuple[str, str], PreviewTarget] = {}
        for task_id in dict.fromkeys(task_ids):
            node = self._node_with(visible, task_id)
            task = node.tasks[task_id]
            self._authorizer.check(actor, PREVIEW, AccessTarget(owners=(task.user,)), action,
                                   [task_id])
            key = node.hello.node_id, task.job_id or task_id
            before = found.get(key)
            found[key] = PreviewTarget(key[0], node.hello.host, (
                *(before.task_ids if before else ()), task_id), task.user, task.command)
        return list(found.values())

    def _setting_target(self, actor: Actor, action: ShownAction, targets: list[str],
                        params: ActionParams) -> tuple[list[PreviewTarget], ActionParams]:
        """Nobody's own: it takes an operator."""
        try:
            found = resolve(self._fleet_state.fleet, self._authorizer.visible(actor), action,
                            targets, params)
        except InvalidSettingActionError as error:
            raise ActionRefusedError(400, "schema", str(error)) from error
        except UnknownTargetError as error:
            raise RefusedError(AccessDenial(DenialReason.HIDDEN, str(error))) from error
        self._authorizer.check(actor, PREVIEW, AccessTarget(owners=(None,)), action, [])
        return [PreviewTarget(found.node_id, found.host, TASKS, None, None)], found.params

    def _node_with(self, visible: VisibleFleet, task_id: str) -> Node:
        for node in visible.nodes(self._fleet_state.fleet):
            if task_id in node.tasks:
                return node
        raise RefusedError(AccessDenial(DenialReason.HIDDEN,
                                        f"there is no task {task_id[:128]!r} here"))

    def ask_nodes(self, targets: list[PreviewTarget], action: ShownAction,
                  params: ActionParams) -> list[JobPreview]:
        asking = [gevent.spawn(self._ask_node, target, action, params) for target in targets]
        gevent.joinall(asking, raise_error=True)
        return [greenlet.get() for greenlet in asking]

    def _ask_node(self, target: PreviewTarget, action: ShownAction, params: ActionParams
                  ) -> JobPreview:
        fence, connected = self._fleet_state.fence, len(self._fleet_state.link_of)
        refusal = fence.refusal(target.node_id, connected) or self._guards.refusal(target.node_id)
        found = refusal or self._requester.look(target.node_id, target.task_ids[0], action, params)
        return (JobPreview(target, None, found) if isinstance(found, Refusal)
                else JobPreview(target, found))
