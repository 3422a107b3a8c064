"""Previews: the selected jobs or settings, what their nodes report, and what people are shown of
that."""

import secrets
import time
from collections.abc import Container, Iterable
from dataclasses import dataclass

import gevent
from msgspec import to_builtins
from msgspec.structs import replace

from gpudeck.contract.action_table import HARMFUL, ROWS, ShownAction
from gpudeck.contract.action_views import ActionRequirementsView, PreviewItemView, PreviewView
from gpudeck.contract.actions import NO_TASK, PREVIEW_LASTS_S, ActionParams, Preview, Refusal
from gpudeck.contract.limits import Setting, action_of, gpu_of
from gpudeck.contract.slurm import OWNERS_MAY
from gpudeck.contract.wire import Task
from gpudeck.words.commands import ranks_left

from ..access.policy import AccessTarget, Actor, is_fresh
from ..errors import NotFoundError
from ..fleet.fleet import Fleet, Node
from ..fleet.owner_views import ranks_beside
from ..fleet.service_states import repair_brake
from ..fleet.state_machine import FleetStateMachine
from ..fleet.task_targets import task_on_node
from ..fleet.visibility import CommandLineVisibility, VisibleFleet
from .authorizer import ActionAuthorizer, hidden
from .errors import ActionRefusedError
from .guards import ActionGuards
from .preview_cache import CachedPreview, JobPreview, PreviewCache, PreviewTarget, merge_jobs
from .preview_requests import PreviewRequester
from .views import item, refused_item, shown_task_ids

PREVIEW = "POST /api/v1/previews"
MOST_JOBS = 10
REPAIRS: tuple[ShownAction, ...] = ("reset_gpu", "diagnose_gpu")  # each disturbs the whole node
MOST_ALONE = 3


@dataclass(frozen=True, slots=True)
class PreviewService:
    fleet_state: FleetStateMachine
    authorizer: ActionAuthorizer
    requester: PreviewRequester
    guards: ActionGuards
    cache: PreviewCache
    second_person: bool
    slurm_nodes: frozenset[str]  # hosts whose agents may speak for Slurm

    def preview(self, actor: Actor, action: ShownAction, targets: list[str], params: ActionParams,
                is_plan: bool) -> PreviewView:
        now, mono = time.time(), time.monotonic()
        if ROWS[action].is_setting or params.setting is not None:
            selection = [self._setting_target(actor, action, targets, params)]
            # Parameters that an action does not use must not make two equal ones differ.
            params = replace(params, text="")
        else:
            selection = self._job_targets(actor, action, targets)
        if len(selection) > MOST_JOBS and not (is_plan and actor.kind == "program"):
            raise ActionRefusedError(400, "too_many",
                                     f"{len(selection)} jobs are more than {MOST_JOBS} at "
                                     "once; a plan of the terminal can do it: gpudeck "
                                     f"{action} --hub URL --plan FILE")
        jobs = merge_jobs(self.authorizer.within_scope(actor, PREVIEW, job)
                          for job in self.ask_nodes(selection, action, params))
        cached = CachedPreview(secrets.token_urlsafe(18), actor, action, params,
                               now + PREVIEW_LASTS_S, mono + PREVIEW_LASTS_S, jobs)
        view = self._view(cached, self.authorizer.visible(actor).reads)
        self.cache.put(cached)
        return view

    # -- selection

    def _job_targets(self, actor: Actor, action: ShownAction, task_ids: list[str]
                     ) -> list[PreviewTarget]:
        """Return one target per job, as far as the tasks' nodes have reported which tasks belong
        together."""
        visible = self.authorizer.visible(actor)
        by_job: dict[tuple[str, str], PreviewTarget] = {}
        for target in dict.fromkeys(task_ids):
            node, task = self._find_task(visible, target)
            task_id = task.id
            access_target = AccessTarget(owners=(task.user,), is_harmful=False)
            self.authorizer.check(actor, PREVIEW, access_target, action, [task_id])
            key = node.hello.node_id, task.job_id or task_id
            before = by_job.get(key)
            by_job[key] = PreviewTarget(key[0], node.hello.host, (
                *(before.task_ids if before else ()), task_id), task.user, task.command)
        return list(by_job.values())

    def _find_task(self, visible: VisibleFleet, target: str) -> tuple[Node, Task]:
        try:
            return task_on_node(visible.nodes(self.fleet_state.fleet), target)
        except NotFoundError as error:
            raise hidden(str(error)) from error

    def _setting_target(self, actor: Actor, action: ShownAction, targets: list[str],
                        params: ActionParams) -> PreviewTarget:
        """Return the target of a setting. It has no owner and so takes an operator, except for some
        actions on a Slurm job."""
        if params.setting is None or action_of(params.setting) != action:
            raise ActionRefusedError(400, "schema",
                                     f"{action} needs `params.setting` of its kind, and no "
                                     "other action has one; see the API's description")
        if len(targets) != 1:
            raise ActionRefusedError(400, "schema", "a setting has one target: a node's id for "
                                                    "MPS, otherwise a GPU's UUID")
        node = self._setting_node(self.authorizer.visible(actor), params.setting, targets[0])
        owner = self._slurm_owner(node, params.setting)
        access_target = AccessTarget(owners=(owner,), is_harmful=False)
        self.authorizer.check(actor, PREVIEW, access_target, action, [])
        return PreviewTarget(node.hello.node_id, node.hello.host, (NO_TASK,), owner, None)

    def _slurm_owner(self, node: Node, setting: Setting) -> str | None:
        """Return the job's owner as the agent that may speak for Slurm reports it. Its preview
        states the owner again."""
        if (node.slurm is None or node.hello.host not in self.slurm_nodes
                or not isinstance(setting, OWNERS_MAY)):
            return None
        job_key = setting.job, float(setting.submitted_at)
        return next((job.user for job in node.slurm.jobs if (job.id, job.submitted_at) == job_key),
                    None)

    def _setting_node(self, visible: VisibleFleet, setting: Setting, target: str) -> Node:
        """Return the node of a setting: for MPS and the service of a whole node, the target is a
        node's id; else a GPU's UUID."""
        fleet = self.fleet_state.fleet
        gpu_uuid = gpu_of(setting)
        _refuse_of_site(fleet, visible, target)
        if gpu_uuid is None:
            if target not in fleet.nodes or not visible.sees_node(target):
                raise hidden(f"there is no node {target[:128]!r} here")
            return fleet.nodes[target]
        if gpu_uuid != target:
            raise ActionRefusedError(400, "schema",
                                     "the target and `gpu_uuid` are not the same GPU")
        for node in visible.nodes(fleet):
            facts = () if node.listing is None else node.listing.inventory.gpus
            if any(gpu.uuid == target and gpu.parent_uuid is None for gpu in facts):
                return node
            if any(gpu.uuid == target for gpu in facts):
                raise ActionRefusedError(400, "schema", "this is a MIG instance; this applies to "
                                                        "the whole board")
        raise hidden(f"there is no GPU {target[:128]!r} here")

    # -- previews of nodes

    def ask_nodes(self, targets: list[PreviewTarget], action: ShownAction,
                  params: ActionParams) -> list[JobPreview]:
        greenlets = [gevent.spawn(self._ask_node, target, action, params) for target in targets]
        gevent.joinall(greenlets, raise_error=True)
        return [greenlet.get() for greenlet in greenlets]

    def _ask_node(self, target: PreviewTarget, action: ShownAction, params: ActionParams
                  ) -> JobPreview:
        fence, connected = self.fleet_state.fence, len(self.fleet_state.link_of)
        refusal = (fence.refusal(target.node_id, connected) or self.guards.refusal(target.node_id)
                   or self._repair_refusal(action))
        preview = refusal or self.requester.request(
            target.node_id, target.task_ids[0], action, params, None)
        return (JobPreview(target, None, preview) if isinstance(preview, Refusal)
                else JobPreview(target, preview))

    def _repair_refusal(self, action: ShownAction) -> Refusal | None:
        brake = repair_brake(self.fleet_state.fleet) if action in REPAIRS else ""
        return Refusal("too_many", brake) if brake else None

    # -- what is shown, with refusals and warnings

    def _view(self, cached: CachedPreview, reads: CommandLineVisibility) -> PreviewView:
        ready = cached.ready
        return PreviewView(
            cached.id, cached.action, to_builtins(cached.params), cached.expires_at,
            self.items(cached.jobs, reads),
            ActionRequirementsView(_needs_fresh(cached.actor, cached.action, ready),
                                   self.needs_second_person(ready),
                                   self.guards.maintenance_among(ready) is not None),
            not ready)

    def needs_second_person(self, ready: Iterable[JobPreview]) -> bool:
        jobs = sum(len(one.preview.victims) if one.preview is not None
                   and one.preview.params.setting is not None else 1 for one in ready)
        return self.second_person and jobs > MOST_ALONE

    def items(self, jobs: Iterable[JobPreview], reads: CommandLineVisibility
              ) -> tuple[PreviewItemView, ...]:
        return tuple(self._item(job, reads) for job in jobs)

    def _item(self, job: JobPreview, reads: CommandLineVisibility) -> PreviewItemView:
        maintenance = self.guards.maintenance_of(job.target.node_id)
        warnings = [] if maintenance is None else [maintenance[0].upper() + maintenance[1:] + "."]
        if job.preview is None:
            assert job.refusal is not None
            return refused_item(job.target, job.refusal, reads,
                                self.guards.keep_of(
                                    job.target.node_id, job.target.real_tasks), warnings)
        return item(job.preview, job.target.host, reads, self._gpu_names(job.target.node_id),
                    self.guards.keep_of(job.target.node_id, shown_task_ids(job.preview)),
                    self._warnings(job.preview, reads.own) + warnings,
                    () if job.refusal is None else (job.refusal,))

    def _warnings(self, preview: Preview, own: Container[str]) -> list[str]:
        """Return warnings; `own`: owners that the caller is."""
        row = ROWS[preview.action]
        is_owner_concerned = (not row.is_setting and (row.is_harmful or row.only_tells)
                              and preview.owner not in own)
        unreached = self.guards.unreached_owner(preview.owner) if is_owner_concerned else None
        # Ranks also on nodes that the caller may not see: counted, never named.
        ranks = ranks_beside(self.fleet_state.fleet.nodes.values(), preview.node_id,
                             shown_task_ids(preview))
        return [*([] if unreached is None else [unreached]), *ranks_left(preview.action, *ranks)]

    def _gpu_names(self, node_id: str) -> dict[str, tuple[int, str]]:
        fleet = self.fleet_state.fleet
        node = fleet.nodes.get(node_id)
        slots = [] if node is None or node.listing is None else list(node.listing.order)
        return {fleet.uuids[slot]: (fleet.facts[slot].index, fleet.facts[slot].place)
                for slot in slots}


def _needs_fresh(actor: Actor, action: ShownAction, ready: Iterable[JobPreview]) -> bool:
    has_others = any(not actor.scope.owns(name) for job in ready for name in job.owners)
    return (actor.kind == "person" and action in HARMFUL and has_others
            and not is_fresh(actor, time.time()))


def _refuse_of_site(fleet: Fleet, visible: VisibleFleet, target: str) -> None:
    """Refuse a GPU or a node of another site: this hub may not act on it, for anyone."""
    slot = fleet.find(target, visible.place_of)
    node = fleet.all_nodes.get(target) if slot is None else fleet.node_of(slot)
    if node is not None and node.site is not None and visible.sees_node(node.hello.node_id):
        raise ActionRefusedError(409, "other_site",
                                 f"it is of the site {node.site.name}, and this hub only views "
                                 f"it; act there, on {node.site.url}")
