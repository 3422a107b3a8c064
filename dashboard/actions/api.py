"""REST of actions, holds and keeps, and of the present state of MPS and limits: parse, ask the
service, answer. The services decide what is allowed. Changing a limit is an action: POST
previews."""

import time
from dataclasses import dataclass

from flask import request

from gpudeck.contract.action_views import (
    ActionPlanView,
    CommandView,
    KeepView,
    OrderResultView,
    PreviewView,
)

from ..access.policy import PEOPLE, Actor, PermissionReach, Role
from ..access.requests import caller
from ..access.routes import Query, Route, change, see
from ..errors import NotFoundError
from ..fleet.fleet import Fleet
from ..fleet.node_names import NodeNames
from ..fleet.visibility import VisibleFleet
from ..web.answers import bad, page, read_cursor, read_limit
from ..web.moments import moment
from ..web.openapi_parts import NODE_QUERY, TIME
from .holds import HoldService
from .lifecycle import CommandRecord
from .mig_views import MigList, mig_list
from .owner_keeps import OwnerKeepService
from .service import ActionService
from .store import CommandsStore
from .views import (
    ActionPlanList,
    CommandList,
    HoldStateView,
    LimitsList,
    MpsList,
    NewCommands,
    NewHold,
    NewKeep,
    NewPreview,
    RepairList,
    command_view,
    limits_list,
    mps_list,
    repair_list,
)

LISTED = "; without it all nodes are listed"
KNOWN = ("limit", "cursor", "state", "task", "node", "owner", "since")


@dataclass(frozen=True, slots=True)
class ActionsApi:
    actions: ActionService
    store: CommandsStore
    fleet: Fleet
    holds: HoldService
    keeps: OwnerKeepService
    names: NodeNames

    def _visible(self) -> VisibleFleet:
        return self.actions.visible(caller())

    def preview(self, draft: NewPreview) -> PreviewView:
        return self.actions.previews.preview(caller(), draft.action, draft.targets, draft.params,
                                             draft.plan)

    def order(self, draft: NewCommands) -> OrderResultView:
        actor = caller()
        records, plan = self.actions.order(actor, draft.preview, draft.reason,
                                           draft.despite_maintenance)
        plan_view = None if plan is None else self.actions.plan_view(actor, plan)
        return self._order_result(actor, records, plan_view)

    def _order_result(self, actor: Actor, records: list[CommandRecord], plan: ActionPlanView | None
                      ) -> OrderResultView:
        reads = self.actions.visible(actor).reads
        return OrderResultView(tuple(command_view(record, reads) for record in records), plan)

    def commands(self) -> CommandList:
        args = request.args
        for name in args:
            if name not in KNOWN or len(args.getlist(name)) > 1:
                raise bad(f"{name[:40]!r} is not a parameter, or is given twice; there are "
                          f"{', '.join(KNOWN)}")
        if args.get("state", "all") not in ("open", "all"):
            raise bad("state is open or all")
        limit, visible = read_limit(args.get("limit")), self._visible()
        newest = self.store.newest(_before(args.get("cursor")), args.get("state") == "open",
                                   args.get("task"), args.get("node"), moment("since"))
        owner = args.get("owner")
        records, more = page((((repr(record.requested_at), record.id), record)
                              for record in newest
                              if visible.sees_node(record.node_id)
                              and owner in (None, record.owner)), limit, None)
        return CommandList([command_view(record, visible.reads) for record in records], more)

    def command(self, command_id: str) -> CommandView:
        record, visible = self.store.find(command_id), self._visible()
        if record is None or not visible.sees_node(record.node_id):
            raise NotFoundError(f"there is no command {command_id[:64]!r} here")
        return command_view(record, visible.reads)

    def plans(self) -> ActionPlanList:
        return ActionPlanList(self.actions.plan_views(caller()))

    def approve(self, plan_id: str) -> OrderResultView:
        actor = caller()
        records, plan = self.actions.approve_plan(actor, plan_id)
        return self._order_result(actor, records, self.actions.plan_view(actor, plan))

    def withdraw(self, plan_id: str) -> None:
        self.actions.withdraw_plan(caller(), plan_id)

    # -- hold and keep

    def hold_state(self) -> HoldStateView:
        return self.holds.state(self._visible())

    def hold(self, draft: NewHold) -> HoldStateView:
        actor, node_id = caller(), draft.node
        self.holds.hold(actor, node_id and self.names.id_of(actor, node_id), draft.reason)
        return self.hold_state()

    def release(self) -> HoldStateView:
        self.holds.release(caller(), _node("; without it actions of the whole fleet are resumed"))
        return self.hold_state()

    def keep(self, draft: NewKeep, task_id: str) -> KeepView:
        keep = self.keeps.set(caller(), task_id, draft.until, draft.because)
        return KeepView(keep.until, keep.because, keep.by)

    def remove_keep(self, task_id: str) -> None:
        self.keeps.remove(caller(), task_id)

    # -- MPS and limits, present state

    def mps(self) -> MpsList:
        return mps_list(self.fleet, self._visible(), _node(LISTED))

    def limits(self) -> LimitsList:
        return limits_list(self.fleet, self._visible(), _node(LISTED))

    def mig(self) -> MigList:
        return mig_list(self.fleet, self._visible(), _node(LISTED), time.monotonic())

    def repairs(self) -> RepairList:
        return repair_list(self.fleet, self._visible(), _node(LISTED), time.time())


def _node(otherwise: str) -> str | None:
    values = request.args.getlist("node")
    if len(values) > 1 or set(request.args) - {"node"} or "" in values:
        raise bad(f"the one parameter here is `node`{otherwise}")
    return values[0] if values else None


def _before(raw: str | None) -> tuple[float, str] | None:
    cursor = read_cursor(raw)
    if cursor is None:
        return None
    try:
        at, command_id = cursor
        return float(at), command_id
    except ValueError as error:
        raise bad("this cursor is not from this list; start again without it") from error


COMMANDS_QUERY: Query = (
    ("state", {"enum": ["open", "all"], "default": "all"}),
    *((name, {"type": "string"}) for name in ("task", "node", "owner")), ("since", TIME))
ROUTES = (
    # Once the victims are known, the service requires further rights.
    Route("POST previews", ActionsApi.preview, "preview",
          change(Role.USER, PermissionReach.TASKS, is_fresh=False),
          "Preview an action: its exact targets as the nodes see them now. Valid for 60 seconds, "
          "one command and this caller.", status=201, errors=(404,)),
    Route("GET commands", ActionsApi.commands, "list_commands", see(Role.VIEWER),
          "Commands, newest first; `state=open`: those without an outcome; `owner=NAME`: on that "
          "Unix user's tasks.", is_list=True,
          query=COMMANDS_QUERY),
    Route("POST commands", ActionsApi.order, "order",
          change(Role.USER, PermissionReach.TASKS, is_fresh=False),
          "Carry out a previewed action. More than 3 jobs wait for a second person's approval: "
          "`plan`.", status=202,
          errors=(404,)),
    Route("GET commands/<command_id>", ActionsApi.command, "get_commands", see(Role.VIEWER),
          "One Command: its state and outcome.", errors=(400, 404)),
    Route("GET plans", ActionsApi.plans, "list_plans", see(Role.VIEWER),
          "Actions that wait for a second person's approval, and past ones."),
    Route("POST plans/<plan_id>/approve", ActionsApi.approve, "approve_plan",
          change(Role.OPERATOR, PermissionReach.TASKS, kinds=PEOPLE),
          "By another person than the requester; everything is previewed again, and changed "
          "targets are refused.", status=202, errors=(404,)),
    Route("DELETE plans/<plan_id>", ActionsApi.withdraw, "withdraw_plan",
          change(Role.USER, is_fresh=False),
          "Reject it: nothing is done.", errors=(404, 409)),
    Route("GET mps", ActionsApi.mps, "list_mps", see(Role.VIEWER),
          "MPS on each Node that reports it: daemons, servers, clients and settings.",
          query=NODE_QUERY),
    Route("GET limits", ActionsApi.limits, "list_limits", see(Role.VIEWER),
          "Power caps, clock locks and compute modes that gpudeck has set on GPUs: until when, and "
          "whether they are in force.", query=NODE_QUERY),
    Route("GET mig", ActionsApi.mig, "list_mig", see(Role.VIEWER),
          "How MIG splits each board now, which layout gpudeck keeps there, and whether it is in "
          "force. Boards that cannot be split are left out. Changing one is an action: POST "
          "previews.", query=NODE_QUERY),
    Route("GET repairs", ActionsApi.repairs, "list_repairs", see(Role.VIEWER),
          "GPUs and Nodes out of service: state, by whom, why, and what can follow. Changing one "
          "is an action: POST previews.", query=NODE_QUERY),
    Route("GET hold", ActionsApi.hold_state, "get_hold", see(Role.VIEWER),
          "Where actions are stopped, and by whom: the fleet, and each Node."),
    # Stopping must be quick; resuming needs a fresh password.
    Route("POST hold", ActionsApi.hold, "hold",
          change(Role.OPERATOR, PermissionReach.VISIBLE, is_fresh=False),
          "Stop all actions on a Node, or with `node` null on the fleet, at once and until "
          "resumed.", errors=(404,)),
    Route("DELETE hold", ActionsApi.release, "release",
          change(Role.OPERATOR, PermissionReach.VISIBLE),
          "Resume actions that were stopped here.", errors=(404,),
          query=(("node", {"type": "string", "minLength": 1}),)),
    Route("PUT tasks/<path:task_id>/keep", ActionsApi.keep, "keep_task",
          change(Role.USER, PermissionReach.VISIBLE, is_fresh=False),
          "Ask for the Task to be kept until then, within seven days.",
          errors=(404, 409)),
    Route("DELETE tasks/<path:task_id>/keep", ActionsApi.remove_keep, "keep_task_no_more",
          change(Role.USER, PermissionReach.VISIBLE, is_fresh=False),
          "Withdraw that request.", errors=(404,)),
)
