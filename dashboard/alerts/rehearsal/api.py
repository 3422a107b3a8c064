"""REST of rehearsals, which are always of the whole fleet. The service checks rights."""

from http import HTTPStatus

from flask import Blueprint, Flask, Response, request

from ...access.requests import asker, body
from ...fleet.visibility import VisibilityScope, VisibleFleetCache
from ...web.answers import PREFIX, ApiError, answer, bad, check_names
from ...web.openapi_parts import MAX_WORD
from ..core.rule import InvalidRuleError, read
from .service import RehearsalService
from .views import BacktestList, NewBacktest, backtest_view


class RehearsalsApi:
    def __init__(self, rehearsals: RehearsalService, lenses: VisibleFleetCache) -> None:
        self._rehearsals = rehearsals
        self._lenses = lenses

    def _of_whole_fleet(self) -> None:
        if not self._lenses.of(VisibilityScope.of(asker())).is_whole:
            raise ApiError(HTTPStatus.FORBIDDEN,
                           "a rehearsal tells of the whole fleet, and you see a part of it")

    def begin(self) -> Response:
        asked = body(NewBacktest)
        self._of_whole_fleet()
        try:
            made = self._rehearsals.begin(asker(), read(asked.rule), asked.start, asked.end)
        except InvalidRuleError as error:
            raise bad("; ".join(map(str, error.problems))) from None
        return answer(backtest_view(made), HTTPStatus.ACCEPTED)

    def all_of_them(self) -> Response:
        check_names(("rule",))
        rule = request.args.get("rule")
        if len(rule or "") > MAX_WORD:
            raise bad(f"rule has at most {MAX_WORD} characters")
        self._of_whole_fleet()
        return answer(BacktestList([backtest_view(each, is_short=True)
                                    for each in self._rehearsals.of_rule(rule)]))

    def one(self, backtest_id: str) -> Response:
        self._of_whole_fleet()
        return answer(backtest_view(self._rehearsals.get(backtest_id)))

    def approve(self, backtest_id: str) -> Response:
        self._of_whole_fleet()
        return answer(backtest_view(self._rehearsals.approve(asker(), backtest_id)))


def add_rehearsals_api(server: Flask, api: RehearsalsApi) -> None:
    routes = Blueprint("rehearsals", __name__, url_prefix=PREFIX)
    for method, rule, view in (
        ("GET", "/rules/backtests", api.all_of_them), ("POST", "/rules/backtests", api.begin),
        ("GET", "/rules/backtests/<backtest_id>", api.one),
        ("POST", "/rules/backtests/<backtest_id>/approve", api.approve),
    ):
        routes.add_url_rule(rule, f"{view.__name__} {method}", view, methods=[method],
                            provide_automatic_options=False)
    server.register_blueprint(routes)
