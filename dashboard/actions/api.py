"""REST of actions, holds, keeps, and of MPS and limits as they are: parse, ask the service, answer.
What is allowed, the services decide. To change a limit is an act: POST previews."""

import time
from dataclasses import dataclass

from flask import request

from gpudeck.action_views import ActionPlanView, CommandView, KeepView, OrderResultView, PreviewView

from ..access.policy import PEOPLE, Actor, PermissionReach, Role
from ..access.requests import asker
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
        return self.actions.visible(asker())

    def preview(self, asked: NewPreview) -> PreviewView:
        return self.actions.previews.preview(asker(), asked.action, asked.targets, asked.params,
                                             asked.plan)

    def order(self, asked: NewCommands) -> OrderResultView:
        actor = asker()
        records, plan = self.actions.order(actor, asked.preview, asked.reason,
                                            asked.despite_maintenance)
        shown = None if plan is None else self.actions.plan_view(actor, plan)
        return self._ordered(actor, records, shown)

    def _ordered(self, actor: Actor, records: list[CommandRecord], plan: ActionPlanView | None
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
        found, more = page((((repr(one.requested_at), one.id), one) for one in newest
                            if visible.sees_node(one.node_id)
                            and owner in (None, one.owner)), limit, None)
        return CommandList([command_view(one, visible.reads) for one in found], more)

    def command(self, command_id: str) -> CommandView:
        record, visible = self.store.find(command_id), self._visible()
        if record is None or not visible.sees_node(record.node_id):
            raise NotFoundError(f"there is no command {command_id[:64]!r} here")
        return command_view(record, visible.reads)

    def plans(self) -> ActionPlanList:
        return ActionPlanList(self.actions.plan_views(asker()))

    def approve(self, plan_id: str) -> OrderResultView:
        actor = asker()
        records, plan = self.actions.approve_plan(actor, plan_id)
        return self._ordered(actor, records, self.actions.plan_view(actor, plan))

    def withdraw(self, plan_id: str) -> None:
        self.actions.withdraw_plan(asker(), plan_id)

    # -- hold and keep

    def hold_state(self) -> HoldStateView:
        return self.holds.state(self._visible())

    def hold(self, asked: NewHold) -> HoldStateView:
        actor, node_id = asker(), asked.node
        self.holds.hold(actor, node_id and self.names.id_of(actor, node_id), asked.reason)
        return self.hold_state()

    def release(self) -> HoldStateView:
        self.holds.release(asker(), _node("; without it actions of the whole fleet are resumed"))
        return self.hold_state()

    def keep(self, asked: NewKeep, task_id: str) -> KeepView:
        made = self.keeps.set(asker(), task_id, asked.until, asked.because)
        return KeepView(made.until, made.because, made.by)

    def keep_no_more(self, task_id: str) -> None:
        self.keeps.remove(asker(), task_id)

    # -- MPS and limits, as they are

    def mps(self) -> MpsList:
        return mps_list(self.fleet, self._visible(), _node(LISTED))

    def limits(self) -> LimitsList:
        return limits_list(self.fleet, self._visible(), _node(LISTED))

    def mig(self) -> MigList:
        return mig_list(self.fleet, self._visible(), _node(LISTED), time.monotonic())

    def repairs(self) -> RepairList:
        return repair_list(self.fleet, self._visible(), _node(LISTED), time.time())


def _node(otherwise: str) -> str | None:
    given = request.args.getlist("node")
    if len(given) > 1 or set(request.args) - {"node"} or "" in given:
        raise bad(f"the one parameter here is `node`{otherwise}")
    return given[0] if given else None


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
    # With the victims in hand, the service asks for more.
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
    # Stopping must be quick; letting go needs the password.
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
    Route("DELETE tasks/<path:task_id>/keep", ActionsApi.keep_no_more, "keep_task_no_more",
          change(Role.USER, PermissionReach.VISIBLE, is_fresh=False),
          "Withdraw that request.", errors=(404,)),
)
