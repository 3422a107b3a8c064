"""REST of rehearsals, which are always of the whole fleet. The service checks rights."""

from dataclasses import dataclass
from http import HTTPStatus

from flask import request

from ...access.policy import PermissionReach, Role
from ...access.requests import caller
from ...access.routes import Route, change, see
from ...fleet.visibility import VisibleFleetCache
from ...web.answers import ApiError, bad, check_names
from ...web.openapi_parts import MAX_WORD
from ..core.rule import read
from .service import RehearsalService
from .views import BacktestList, BacktestView, NewBacktest, backtest_view


@dataclass(eq=False, slots=True)
class RehearsalsApi:
    rehearsals: RehearsalService
    visible_fleets: VisibleFleetCache

    def _check_scope(self) -> None:
        if not self.visible_fleets.seen_by(caller()).is_whole:
            raise ApiError(HTTPStatus.FORBIDDEN,
                           "a rehearsal covers the whole fleet, and your scope is a part of it")

    def begin(self, new_backtest: NewBacktest) -> BacktestView:
        self._check_scope()
        return backtest_view(self.rehearsals.begin(
            caller(), read(new_backtest.rule), new_backtest.start, new_backtest.end))

    def list_all(self) -> BacktestList:
        check_names(("rule",))
        rule = request.args.get("rule")
        if len(rule or "") > MAX_WORD:
            raise bad(f"rule has at most {MAX_WORD} characters")
        self._check_scope()
        return BacktestList([backtest_view(record, is_short=True)
                             for record in self.rehearsals.of_rule(rule)])

    def get(self, backtest_id: str) -> BacktestView:
        self._check_scope()
        return backtest_view(self.rehearsals.get(backtest_id))

    def approve(self, backtest_id: str) -> BacktestView:
        self._check_scope()
        return backtest_view(self.rehearsals.approve(caller(), backtest_id))


ROUTES = (
    # A rehearsal covers the whole fleet: the handlers check the caller's scope.
    Route("GET rules/backtests", RehearsalsApi.list_all, "list_backtests",
          see(Role.OPERATOR, PermissionReach.NONE),
          "Rehearsals of Rules, newest first; with `rule`, of that one.", errors=(403,),
          query=(("rule", {"type": "string", "maxLength": MAX_WORD}),)),
    Route("POST rules/backtests", RehearsalsApi.begin, "begin_backtest",
          change(Role.OPERATOR, is_fresh=False),
          "Rehearse a Rule on history: the alerts it would have raised, and the tasks its ladder "
          "would have reached.", status=202, errors=(403,)),
    Route("GET rules/backtests/<backtest_id>", RehearsalsApi.get, "get_backtest",
          see(Role.OPERATOR, PermissionReach.NONE),
          "One rehearsal, with its progress or report.", errors=(403, 404)),
    Route("POST rules/backtests/<backtest_id>/approve", RehearsalsApi.approve, "approve_backtest",
          change(Role.ADMIN),
          "Approve a report as proof of what this version of the Rule would do.",
          errors=(403, 404)),
)
