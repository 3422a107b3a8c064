"""REST of actions: parse, ask the service, answer. What is allowed, it decides."""

from collections.abc import Callable
from http import HTTPStatus

from flask import Blueprint, Flask, Response, request

from gpudeck.action_views import ActionPlanView, OrderResultView

from ..access.policy import Actor
from ..access.requests import asker, body
from ..errors import AuditWriteError
from ..web.answers import PREFIX, ApiError, answer, give_cursor, problem, read_cursor, read_limit
from .errors import ActionRefusedError
from .lifecycle import CommandRecord
from .service import ActionService
from .store import CommandsStore
from .views import (
    ActionPlanList,
    CommandList,
    NewCommands,
    NewPreview,
    command_view,
)

KNOWN = ("limit", "cursor", "state", "task", "node")


class ActionsApi:
    def __init__(self, actions: ActionService, store: CommandsStore) -> None:
        self._actions = actions
        self._store = store

    def preview(self) -> Response:
        asked = body(NewPreview)
        return answer(self._actions.previews.preview(asker(), asked.action, asked.targets,
                                                     asked.params, asked.plan), HTTPStatus.CREATED)

    def order(self) -> Response:
        asked, actor = body(NewCommands), asker()
        records, plan = self._actions.order(actor, asked.preview, asked.reason,
                                            asked.despite_maintenance)
        shown = None if plan is None else self._actions.plans.view(actor, plan)
        return answer(self._ordered(actor, records, shown), HTTPStatus.ACCEPTED)

    def _ordered(self, actor: Actor, records: list[CommandRecord], plan: ActionPlanView | None
                 ) -> OrderResultView:
        reads = self._actions.visible(actor).reads
        return OrderResultView(tuple(command_view(record, reads) for record in records), plan)

    def commands(self) -> Response:
        args = request.args
        for name in args:
            if name not in KNOWN or len(args.getlist(name)) > 1:
                raise ApiError(HTTPStatus.BAD_REQUEST,
                               f"{name[:40]!r} is no parameter, or is given "
                               f"twice; there are {', '.join(KNOWN)}")
        if args.get("state", "all") not in ("open", "all"):
            raise ApiError(HTTPStatus.BAD_REQUEST, "state is open or all")
        limit, lens = read_limit(args.get("limit")), self._actions.visible(asker())
        found: list[CommandRecord] = []
        more = None
        for record in self._store.newest(_before(args.get("cursor")), args.get("state") == "open",
                                         args.get("task"), args.get("node")):
            if not lens.sees_node(record.node_id):
                continue
            if len(found) == limit:
                more = give_cursor((repr(found[-1].requested_at), found[-1].id))
                break
            found.append(record)
        return answer(CommandList([command_view(one, lens.reads) for one in found], more))

    def command(self, command_id: str) -> Response:
        record, lens = self._store.find(command_id), self._actions.visible(asker())
        if record is None or not lens.sees_node(record.node_id):
            raise ApiError(HTTPStatus.NOT_FOUND, f"there is no command {command_id[:64]!r} here")
        return answer(command_view(record, lens.reads))

    def plans(self) -> Response:
        return answer(ActionPlanList(self._actions.plans.views(asker())))

    def approve(self, plan_id: str) -> Response:
        actor = asker()
        records, plan = self._actions.plans.approve(actor, plan_id)
        return answer(self._ordered(actor, records, self._actions.plans.view(actor, plan)),
                      HTTPStatus.ACCEPTED)

    def withdraw(self, plan_id: str) -> Response:
        self._actions.plans.withdraw(asker(), plan_id)
        return Response(status=HTTPStatus.NO_CONTENT)


def _before(raw: str | None) -> tuple[float, str] | None:
    cursor = read_cursor(raw)
    if cursor is None:
        return None
    try:
        at, command_id = cursor
        return float(at), command_id
    except ValueError as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, "this cursor was not given out by this list; start "
                       "again without it") from error


def add_actions_api(server: Flask, api: ActionsApi) -> None:
    routes = Blueprint("acts", __name__, url_prefix=PREFIX)
    table: tuple[tuple[str, str, Callable[..., Response]], ...] = (
        ("POST", "/previews", api.preview),
        ("GET", "/commands", api.commands), ("POST", "/commands", api.order),
        ("GET", "/commands/<command_id>", api.command),
        ("GET", "/plans", api.plans), ("POST", "/plans/<plan_id>/approve", api.approve),
        ("DELETE", "/plans/<plan_id>", api.withdraw),
    )
    for method, rule, view in table:
        routes.add_url_rule(rule, view_func=view, methods=[method],
                            provide_automatic_options=False)
    server.register_blueprint(routes)
    server.register_error_handler(ActionRefusedError, lambda error: problem(
        error.status, str(error), f"urn:gpudeck:problem:{error.code}"))
    server.register_error_handler(AuditWriteError, lambda error: problem(
        503, str(error), "urn:gpudeck:problem:audit"))
