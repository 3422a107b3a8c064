"""The service of acts: what would it hit, order it, and the second person.

The gate has asked `may` already; here it is asked again with the victims in hand, each time: at the
preview, at the order, at the approval.
"""

import secrets
import time
from collections.abc import Callable, Iterable

import gevent

from gpudeck.actions import (
    COMMAND_LASTS_S,
    PREVIEW_LASTS_S,
    ActionParams,
    CommandActor,
    Preview,
    Refusal,
    ShownAction,
)
from gpudeck.command_sentences import ranks_left

from ..access.policy import (
    AccessDenial,
    AccessTarget,
    Actor,
    DenialReason,
    RefusedError,
    by,
    is_fresh,
    may,
)
from ..access.service import AccountService
from ..audit.recorder import AuditRecorder
from ..fleet.fleet import Node
from ..fleet.owner_views import ranks_beside
from ..fleet.state_machine import FleetStateMachine
from ..fleet.views import KeepView
from ..fleet.visibility import (
    CommandLineVisibility,
    VisibilityScope,
    VisibleFleet,
    VisibleFleetCache,
)
from .commander import Commander, new_id
from .lifecycle import CommandRecord
from .preview_cache import (
    ActionPlan,
    CachedPreview,
    JobPreview,
    PreviewTarget,
    merged,
    replace_seen,
    unchanged,
)
from .preview_requests import PreviewRequester
from .setting_acts import (
    HARMFUL,
    TASKS,
    InvalidSettingActionError,
    UnknownTargetError,
    is_setting,
    meant,
)
from .views import (
    ActionPlanView,
    ActionRequirementsView,
    PreviewItemView,
    PreviewView,
    RequesterView,
    item,
    main_victim,
    mem_of,
    refused_item,
)

PREVIEW = "POST /api/v1/previews"
ORDER = "POST /api/v1/commands"
APPROVE = "POST /api/v1/plans/<plan_id>/approve"
MOST_ALONE = 3
MOST_JOBS = 10
PLAN_LASTS_S = 600.0
MAX_PREVIEWS = 1_000
MAX_PLANS = 100


class ActionRefusedError(Exception):
    """The sentence says why and what to do."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code


class ActionService:
    """`keep_of`: what the owner asked for, to be shown. `held`: why nothing may be done there.
    `unreached`: why an owner will hear of it at terminals only. `maintenance`: why one should
    think twice."""

    def __init__(self, room: FleetStateMachine, lenses: VisibleFleetCache, people: AccountService,
                 looker: PreviewRequester,
                 commander: Commander, auditor: AuditRecorder, second_person: bool = True) -> None:
        self._room = room
        self._lenses = lenses
        self._people = people
        self._looker = looker
        self._commander = commander
        self._auditor = auditor
        self.second_person = second_person
        self.keep_of: Callable[[Iterable[str]], KeepView | None] = lambda task_ids: None
        self.unreached: Callable[[str | None], str | None] = lambda owner: None
        self.held: Callable[[str], Refusal | None] = lambda node_id: None
        self.maintenance: Callable[[str], str | None] = lambda node_id: None
        self._shown: dict[str, CachedPreview] = {}
        self._plans: dict[str, ActionPlan] = {}

    # -- preview

    def preview(self, actor: Actor, action: ShownAction, targets: list[str], params: ActionParams,
                is_plan: bool) -> PreviewView:
        started, mono = time.time(), time.monotonic()
        if is_setting(action, params):
            wanted, params = self._setting(actor, action, targets, params)
        else:
            wanted = self._wanted(actor, action, targets)
        if len(wanted) > MOST_JOBS and not (is_plan and actor.kind == "program"):
            raise ActionRefusedError(400, "too_many",
                                     f"{len(wanted)} jobs are more than {MOST_JOBS} at "
                                     "once; a plan of the terminal can do it: gpudeck "
                                     f"{action} --hub URL --plan FILE")
        seen = tuple(self._check(actor, PREVIEW, action, one)
                     for one in self._look(wanted, action, params))
        shown = CachedPreview(secrets.token_urlsafe(18), actor, action, params,
                              started + PREVIEW_LASTS_S,
                              mono + PREVIEW_LASTS_S, merged(seen))
        self._keep(shown, mono)
        return self._preview_view(shown, started)

    def _wanted(self, actor: Actor, action: ShownAction, targets: list[str]) -> list[PreviewTarget]:
        """One per job, as far as the tasks' nodes have said what belongs together."""
        lens = self._lens(actor)
        found: dict[tuple[str, str], PreviewTarget] = {}
        for task_id in dict.fromkeys(targets):
            node = self._node_with(lens, task_id)
            task = node.tasks[task_id]
            self._allow(actor, PREVIEW, AccessTarget(owners=(task.user,)), action, [task_id])
            key = node.hello.node_id, task.job_id or task_id
            before = found.get(key)
            found[key] = PreviewTarget(key[0], node.hello.host, (
                *(before.task_ids if before else ()), task_id), task.user, task.command)
        return list(found.values())

    def _setting(self, actor: Actor, action: ShownAction, targets: list[str], params: ActionParams
                 ) -> tuple[list[PreviewTarget], ActionParams]:
        """Nobody's own: it takes an operator."""
        try:
            found = meant(self._room.fleet, self._lens(actor), action, targets, params)
        except InvalidSettingActionError as error:
            raise ActionRefusedError(400, "schema", str(error)) from error
        except UnknownTargetError as error:
            raise RefusedError(AccessDenial(DenialReason.HIDDEN, str(error))) from error
        self._allow(actor, PREVIEW, AccessTarget(owners=(None,)), action, [])
        return [PreviewTarget(found.node_id, found.host, TASKS, None, None)], found.params

    def _node_with(self, lens: VisibleFleet, task_id: str) -> Node:
        for node in lens.nodes(self._room.fleet):
            if task_id in node.tasks:
                return node
        raise RefusedError(AccessDenial(DenialReason.HIDDEN,
                                        f"there is no task {task_id[:128]!r} here"))

    def _look(self, wanted: list[PreviewTarget], action: ShownAction,
              params: ActionParams) -> list[JobPreview]:
        asking = [gevent.spawn(self._look_at, one, action, params) for one in wanted]
        gevent.joinall(asking, raise_error=True)
        return [greenlet.get() for greenlet in asking]

    def _look_at(self, one: PreviewTarget, action: ShownAction, params: ActionParams) -> JobPreview:
        refusal = self._room.fence.refusal(one.node_id, len(self._room.link_of)) or (
            self.held(one.node_id))
        if refusal is not None:
            return JobPreview(one, None, refusal)
        found = self._looker.look(one.node_id, one.task_ids[0], action, params)
        return JobPreview(one, None, found) if isinstance(found, Refusal) else JobPreview(one,
                                                                                          found)

    def _check(self, actor: Actor, verb: str, action: ShownAction, one: JobPreview) -> JobPreview:
        """What the node found may belong to others than the task that was pointed at."""
        denial = may(actor, verb, AccessTarget(owners=one.owners), time.time())
        if denial is None or one.preview is None:
            return one
        return replace_seen(one, Refusal("scope", "its job has processes of other users as well: "
                                         + denial.sentence))

    def _keep(self, shown: CachedPreview, mono: float) -> None:
        self._shown = {key: one for key, one in self._shown.items() if mono < one.expires_mono}
        while len(self._shown) >= MAX_PREVIEWS:
            del self._shown[next(iter(self._shown))]
        self._shown[shown.id] = shown

    def _preview_view(self, shown: CachedPreview, now: float) -> PreviewView:
        actor = shown.actor
        items = self._items(shown.seen, self._lens(actor).reads)
        ready = [one for one in shown.seen if not one.is_refused]
        return PreviewView(
            shown.id, shown.action, shown.params, shown.expires_at, items,
            ActionRequirementsView(_needs_fresh(actor, shown.action, ready, now),
                                   self._needs_second(ready),
                                   self._in_maintenance(ready) is not None),
            not ready)

    def _items(self, seen: Iterable[JobPreview],
               reads: CommandLineVisibility) -> list[PreviewItemView]:
        return [self._item(one, reads) for one in seen]

    def _item(self, one: JobPreview, reads: CommandLineVisibility) -> PreviewItemView:
        wanted, refusal = one.wanted, one.refusal
        if one.preview is None:
            assert refusal is not None
            made = refused_item(list(wanted.task_ids), wanted.node_id, wanted.host, wanted.owner,
                                reads.line(wanted.owner, wanted.command), refusal)
        else:
            made = item(one.preview, wanted.host, reads, self._places(wanted.node_id),
                        () if refusal is None else (refusal,))
            is_told = one.preview.action != "resume" and one.preview.params.setting is None
            unreached = self.unreached(made.owner) if is_told else None
            made.warnings += [] if unreached is None else [unreached]
            made.warnings += self._ranks_left(one.preview)
        kept_free = self.maintenance(wanted.node_id)
        made.warnings += [] if kept_free is None else [kept_free[0].upper() + kept_free[1:] + "."]
        made.keep = self.keep_of(made.task_ids)
        return made

    def _ranks_left(self, preview: Preview) -> list[str]:
        """Also those on nodes that the asker does not see: counted, never named."""
        nodes = self._room.fleet.nodes.values()
        return ranks_left(preview.action, *ranks_beside(nodes, preview.node_id,
                                                         _task_ids(preview)))

    def _places(self, node_id: str) -> dict[str, tuple[int, str]]:
        fleet, node = self._room.fleet, self._room.fleet.nodes.get(node_id)
        slots = [] if node is None or node.listing is None else list(node.listing.order)
        return {fleet.uuids[slot]: (fleet.facts[slot].index, fleet.facts[slot].place)
                for slot in slots}

    def _needs_second(self, ready: list[JobPreview]) -> bool:
        jobs = sum(len(one.preview.victims) if one.preview is not None
                   and one.preview.params.setting is not None else 1 for one in ready)
        return self.second_person and jobs > MOST_ALONE

    # -- order

    def order(self, actor: Actor, preview_id: str, reason: str, despite_maintenance: bool = False
              ) -> tuple[list[CommandRecord], ActionPlan | None]:
        shown = self._shown_to(actor, preview_id)
        kept_free = self._in_maintenance(shown.seen)
        if kept_free is not None and not despite_maintenance:
            raise ActionRefusedError(409, "maintenance",
                                     f"{kept_free}; confirm once more to do it all the "
                                     "same (despite_maintenance)")
        if shown.action in HARMFUL and not reason.strip():
            raise ActionRefusedError(400, "schema",
                                     "say why: the reason goes into the record, and the "
                                     "owner is told")
        self._allow_all(actor, ORDER, shown.action, shown.seen)
        ready = [one for one in shown.seen if not one.is_refused]
        del self._shown[shown.id]  # once: whatever comes of it
        if self._needs_second(ready):
            return [], self._plan(shown, ready, reason)
        return self._order_all(actor, shown.seen, shown.action, shown.params, reason), None

    def order_exactly(self, actor: Actor, preview_id: str, reason: str, action: ShownAction,
                      node_id: str, flaw: Callable[[Preview], Refusal | None]) -> CommandRecord:
        """One job, as a Rule wants it: what was shown to the person must be that."""
        shown = self._shown_to(actor, preview_id)
        one = shown.seen[0]
        if len(shown.seen) > 1 or shown.action != action or one.wanted.node_id != node_id:
            raise ActionRefusedError(409, "changed",
                                     f"this preview is of something else than the rule "
                                     f"wants, which is to {action} one job; look again")
        wrong = one.refusal if one.preview is None else one.refusal or flaw(one.preview)
        if wrong is not None:
            raise ActionRefusedError(409, wrong.code, wrong.sentence)
        # A node in maintenance holds the rule, so whoever gets here is not on one.
        [record], _ = self.order(actor, preview_id, reason)
        return record

    def _in_maintenance(self, seen: Iterable[JobPreview]) -> str | None:
        return next((why for one in seen if not one.is_refused and one.preview is not None
                     and one.preview.action != "notify"
                     and (why := self.maintenance(one.wanted.node_id)) is not None), None)

    def _shown_to(self, actor: Actor, preview_id: str) -> CachedPreview:
        shown = self._shown.get(preview_id)
        if (shown is None or time.monotonic() >= shown.expires_mono
                or (shown.actor.kind, shown.actor.name, shown.actor.credential)
                != (actor.kind, actor.name, actor.credential)):
            raise ActionRefusedError(409, "stale_preview", "this preview is older than "
                                     f"{PREVIEW_LASTS_S:.0f} s, was used already, or was shown to "
                                     "somebody "
                                     "else; look again")
        return shown

    def _allow_all(self, actor: Actor, verb: str, action: ShownAction, seen: Iterable[JobPreview]
                   ) -> None:
        lens = self._lens(actor)
        for one in seen:
            if not lens.sees_node(one.wanted.node_id):
                raise RefusedError(AccessDenial(DenialReason.HIDDEN,
                                          "this node is not in your scope any more"))
            if one.is_refused:
                continue
            self._allow(actor, verb, AccessTarget(owners=one.owners, is_harmful=action in HARMFUL),
                        action, one.wanted.task_ids)

    def _allow(self, actor: Actor, verb: str, target: AccessTarget, action: str,
               task_ids: Iterable[str]) -> None:
        denial = may(actor, verb, target, time.time())
        if denial is None and not self._people.holds(actor.credential):
            denial = AccessDenial(DenialReason.UNKNOWN, "you have been signed out")
        if denial is not None:
            self._auditor.refused("command", by(actor) | {
                "action": action, "task_ids": list(task_ids), "refusal": "scope",
                "sentence": denial.sentence})
            raise RefusedError(denial)

    def _order_all(self, actor: Actor, seen: Iterable[JobPreview], action: ShownAction,
                   params: ActionParams,
                   reason: str, approved_by: str | None = None) -> list[CommandRecord]:
        asker = CommandActor("program" if actor.kind == "program" else "person", actor.name,
                             approved_by)
        return [self._order_one(actor, asker, one, action, params, reason) for one in seen]

    def _order_one(self, actor: Actor, asker: CommandActor, one: JobPreview, action: ShownAction,
                   params: ActionParams, reason: str) -> CommandRecord:
        now, preview, wanted = time.time(), one.preview, one.wanted
        refusal = one.refusal or (preview.refusals[0] if preview and preview.refusals else None)
        refusal = refusal or self.held(wanted.node_id)
        victim = None if preview is None else main_victim(preview)
        record = CommandRecord(
            new_id(now), action, wanted.node_id, wanted.host, asker, reason, now, now,
            now + COMMAND_LASTS_S, params, task_id=_task_id(wanted),
            task_ids=_known(wanted.task_ids if preview is None else _task_ids(preview)),
            job_id=None if preview is None else preview.job_id,
            owner=wanted.owner if preview is None else preview.owner,
            command=wanted.command if victim is None else victim.command,
            mem_used_bytes=None if preview is None else mem_of(preview),
            bystanders=None if preview is None else len(preview.bystanders),
            credential=actor.credential)
        return self._commander.order(record, preview, refusal, **by(actor))

    # -- the second person

    def _plan(self, shown: CachedPreview, ready: list[JobPreview], reason: str) -> ActionPlan:
        self._end_old_plans()
        if sum(plan.state == "waiting" for plan in self._plans.values()) >= MAX_PLANS:
            raise ActionRefusedError(409, "too_many",
                                     f"{MAX_PLANS} plans wait for a second person already")
        now, actor = time.time(), shown.actor
        plan = ActionPlan(secrets.token_urlsafe(12), actor, shown.action, shown.params, reason, now,
                          now + PLAN_LASTS_S, tuple(ready),
                          names=frozenset({actor.name, self._people.behind(actor)}))
        self._record_plan(plan, actor)
        self._plans[plan.id] = plan
        return plan

    def _end_old_plans(self) -> None:
        now = time.time()
        for plan in list(self._plans.values()):
            if plan.state == "waiting" and (
                    now >= plan.ends_at or not self._people.holds(plan.actor.credential)):
                plan.state = "expired"
                self._auditor.refused("plan", self._plan_fields(plan, plan.actor))
            if now >= plan.ends_at + PLAN_LASTS_S:
                del self._plans[plan.id]

    def _record_plan(self, plan: ActionPlan, actor: Actor) -> None:
        self._auditor.record("plan", self._plan_fields(plan, actor))

    def _plan_fields(self, plan: ActionPlan, actor: Actor) -> dict[str, object]:
        return by(actor) | {
            "action": plan.action, "outcome": plan.state, "plan": plan.id, "reason": plan.reason,
            "task_ids": [task_id for one in plan.seen for task_id in one.wanted.task_ids]}

    def plans(self, actor: Actor) -> list[ActionPlanView]:
        self._end_old_plans()
        lens = self._lens(actor)
        return [self._plan_view(plan, lens) for plan in self._plans.values()
                if _sees_all(lens, plan)]

    def plan_view(self, actor: Actor, plan: ActionPlan) -> ActionPlanView:
        return self._plan_view(plan, self._lens(actor))

    def _plan_view(self, plan: ActionPlan, lens: VisibleFleet) -> ActionPlanView:
        return ActionPlanView(
            plan.id, plan.action, plan.params, RequesterView(plan.actor.kind, plan.actor.name),
            plan.reason, plan.asked_at, plan.ends_at, self._items(plan.seen, lens.reads),
            plan.state)

    def _waiting(self, actor: Actor, plan_id: str) -> ActionPlan:
        self._end_old_plans()
        plan = self._plans.get(plan_id)
        if plan is None or not _sees_all(self._lens(actor), plan):
            raise RefusedError(AccessDenial(DenialReason.HIDDEN,
                                      f"there is no plan {plan_id[:64]!r} here"))
        if plan.state != "waiting":
            raise ActionRefusedError(409, "stale_preview", f"this plan is {plan.state} already")
        return plan

    def withdraw(self, actor: Actor, plan_id: str) -> None:
        plan = self._waiting(actor, plan_id)
        if plan.actor.name != actor.name:
            self._allow_all(actor, APPROVE, plan.action, plan.seen)
        plan.state = "withdrawn"
        self._record_plan(plan, actor)

    def approve(self, actor: Actor, plan_id: str) -> tuple[list[CommandRecord], ActionPlan]:
        """All is looked at anew: what was shown to the first person may be another now."""
        plan = self._waiting(actor, plan_id)
        if actor.name in plan.names:
            raise ActionRefusedError(403, "second_person",
                                     "another person than the one who asked has to "
                                     "approve it")
        self._allow_all(actor, APPROVE, plan.action, plan.seen)
        plan.state = "approved"  # before anything waits: it is approved once
        self._record_plan(plan, actor)
        looked = self._look([one.wanted for one in plan.seen], plan.action, plan.params)
        seen = [unchanged(before, self._check(plan.actor, ORDER, plan.action, after))
                for before, after in zip(plan.seen, looked, strict=True)]
        for asking, verb in ((actor, APPROVE), (plan.actor, ORDER)):
            self._allow_still(asking, verb, plan, seen)
        return self._order_all(plan.actor, seen, plan.action, plan.params, plan.reason,
                               actor.name), plan

    def _allow_still(self, actor: Actor, verb: str, plan: ActionPlan,
                     seen: Iterable[JobPreview]) -> None:
        """The one who asked was fresh then, and the one who approves is now."""
        is_harmful = plan.action in HARMFUL and actor is not plan.actor
        for one in seen:
            if not one.is_refused:
                self._allow(actor, verb, AccessTarget(owners=one.owners, is_harmful=is_harmful),
                            plan.action, one.wanted.task_ids)

    def _lens(self, actor: Actor) -> VisibleFleet:
        return self._lenses.of(VisibilityScope.of(actor))

    def lens(self, actor: Actor) -> VisibleFleet:
        return self._lens(actor)


def _needs_fresh(actor: Actor, action: ShownAction, ready: list[JobPreview], now: float) -> bool:
    others = any(not actor.scope.owns(name) for one in ready for name in one.owners)
    return (actor.kind == "person" and action in HARMFUL and others
            and not is_fresh(actor, now))


def _sees_all(lens: VisibleFleet, plan: ActionPlan) -> bool:
    return all(lens.sees_node(one.wanted.node_id) for one in plan.seen)


def _task_id(wanted: PreviewTarget) -> str | None:
    return None if wanted.task_ids == TASKS else wanted.task_ids[0]


def _known(task_ids: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(task_id for task_id in task_ids if task_id not in TASKS)


def _task_ids(preview: Preview) -> tuple[str, ...]:
    found = tuple(victim.task_id for victim in preview.victims if victim.task_id is not None)
    return found or (preview.task_id,)
