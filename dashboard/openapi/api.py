"""The REST interface: its routes, the answers where there is no route, and errors as answers. Its
description is at `/api/v1/openapi.json`."""

import re
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException

from ..access.credentials import SignInError
from ..access.gate import denial_error
from ..access.passwords import PasswordQueueFullError
from ..access.policy import RefusedError
from ..access.routes import NodeNamed, serve_routes
from ..alerts.core.rule import InvalidRuleError
from ..errors import AuditWriteError, InvalidChangeError, NotFoundError, RecoveringError
from ..runtime.state_store import StateUnavailableError
from ..web.answers import PREFIX, ApiError, answer, problem
from .document import document
from .routes import ROUTES

DOCUMENT = f"{PREFIX}/openapi.json"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


def add_api(server: Flask, apis: Collection[object], node_named: NodeNamed) -> None:
    """Register the routes and error handlers. `apis`: the objects with the routes' handlers."""
    serve_routes(server, apis, ROUTES, node_named)
    for rule, view, methods in ((DOCUMENT, openapi, ("GET",)),
                                ("/api/<path:path>", _no_route, METHODS)):
        server.add_url_rule(rule, view_func=view, methods=methods,
                            provide_automatic_options=False)
    for kind, handler in ERRORS.items():
        server.register_error_handler(kind, handler)


def openapi() -> Response:
    return answer(document())


def _no_route(path: str) -> Response:
    """Answer paths and methods without a route. Without this Dash would show its page there, as it
    does at every address."""
    takers = {method: rule for method in METHODS if (rule := _taker(method)) is not None}
    # The most specific rule counts: `/tasks/<path:…>` also matches paths below a task, and
    # `/nodes/<node_id>` also `/nodes/approvals`.
    closest = max(takers.values(), key=_literal_length, default="")
    allowed_methods = [method for method, rule in takers.items() if rule == closest]
    if not allowed_methods:
        return problem(HTTPStatus.NOT_FOUND, f"there is nothing at {request.path[:128]!r}; "
                       f"{DOCUMENT} says what there is")
    response = problem(HTTPStatus.METHOD_NOT_ALLOWED,
                       f"{' and '.join(allowed_methods)} may be asked here")
    response.headers["Allow"] = ", ".join(allowed_methods)
    return response


def _literal_length(rule: str) -> int:
    """Return the number of literal characters in a rule."""
    return len(re.sub("<[^>]*>", "", rule))


def _taker(method: str) -> str | None:
    """Return the rule with a view for this method, other than `_no_route`; None: there is none."""
    adapter = current_app.create_url_adapter(request)
    assert adapter is not None, "there is a request"
    try:
        rule, _ = adapter.match(method=method, return_rule=True)
    except HTTPException:  # `<path:…>` matches no line break, so not even _no_route's rule fits
        return None
    return None if rule.endpoint == _no_route.__name__ else str(rule.rule)


def _http_problem(error: HTTPException) -> Any:
    """Answer an HTTP error: the API has one form of error; pages keep Flask's own answers."""
    if not request.path.startswith(PREFIX + "/"):
        return error
    if error.code == HTTPStatus.METHOD_NOT_ALLOWED:
        return _no_route(request.path)
    return problem(error.code or 500, error.description or "")


def _api_problem(error: ApiError) -> Response:
    return problem(error.status, error.detail, error.type)


def _sign_in_problem(error: SignInError) -> Response:
    return _with_retry_after(problem(error.status, error.sentence), error.retry_s)


def _with_retry_after(response: Response, retry_s: float) -> Response:
    if retry_s:
        response.headers["Retry-After"] = str(int(retry_s) + 1)
    return response


ERRORS: dict[type[Exception], Callable[[Any], Any]] = {
    ApiError: _api_problem,
    HTTPException: _http_problem,
    RefusedError: lambda error: _api_problem(denial_error(error.refusal)),
    NotFoundError: lambda error: problem(HTTPStatus.NOT_FOUND, str(error)),
    InvalidChangeError: lambda error: problem(HTTPStatus.CONFLICT, str(error)),
    InvalidRuleError: lambda error: problem(HTTPStatus.BAD_REQUEST, str(error)),
    SignInError: _sign_in_problem,
    RecoveringError: lambda error: _with_retry_after(problem(
        HTTPStatus.SERVICE_UNAVAILABLE, str(error), "urn:gpudeck:problem:recovering"),
        error.retry_s),
    PasswordQueueFullError: lambda _: problem(HTTPStatus.SERVICE_UNAVAILABLE,
                                              "too many at once; try again"),
    AuditWriteError: lambda error: problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error),
                                           "urn:gpudeck:problem:audit"),
    StateUnavailableError: lambda error: problem(
        HTTPStatus.SERVICE_UNAVAILABLE, f"the hub's database cannot be used now: {error}; live "
        "data and history continue, and nothing was done", "urn:gpudeck:problem:state"),
}
