"""The REST interface: its routes, what it answers where there is none, and each refusal as an
answer. Its description is at `/api/v1/openapi.json`."""

import re
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException

from ..access.credentials import SignInError
from ..access.gate import denied
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
    """`apis`: those that have the handlers of the routes."""
    serve_routes(server, apis, ROUTES, node_named)
    for rule, view, methods in ((DOCUMENT, openapi, ("GET",)),
                                ("/api/<path:path>", _nothing, METHODS)):
        server.add_url_rule(rule, view_func=view, methods=methods,
                            provide_automatic_options=False)
    for kind, told in ERRORS.items():
        server.register_error_handler(kind, told)


def openapi() -> Response:
    return answer(document())


def _nothing(path: str) -> Response:
    """At paths and methods that nothing else here takes. Without it Dash would: it shows its page
    at every address."""
    takers = {method: rule for method in METHODS if (rule := _taker(method)) is not None}
    # What is here is named by the rule that says most of it: `/tasks/<path:…>` also takes what is
    # below a task, `/nodes/<node_id>` also `/nodes/approvals`.
    closest = max(takers.values(), key=_said, default="")
    allowed = [method for method, rule in takers.items() if rule == closest]
    if not allowed:
        return problem(HTTPStatus.NOT_FOUND, f"there is nothing at {request.path[:128]!r}; "
                       f"{DOCUMENT} says what there is")
    found = problem(HTTPStatus.METHOD_NOT_ALLOWED, f"{' and '.join(allowed)} may be asked here")
    found.headers["Allow"] = ", ".join(allowed)
    return found


def _said(rule: str) -> int:
    """Letters of an address that stand in it as they are."""
    return len(re.sub("<[^>]*>", "", rule))


def _taker(method: str) -> str | None:
    """The rule of a view of its own."""
    adapter = current_app.create_url_adapter(request)
    assert adapter is not None, "there is a request"
    try:
        rule, _ = adapter.match(method=method, return_rule=True)
    except HTTPException:  # `<path:…>` takes no line break, so that not even _nothing does
        return None
    return None if rule.endpoint == _nothing.__name__ else str(rule.rule)


def _http_problem(error: HTTPException) -> Any:
    """Pages keep Flask's own answers; the API has one shape of error only."""
    if not request.path.startswith(PREFIX + "/"):
        return error
    if error.code == HTTPStatus.METHOD_NOT_ALLOWED:
        return _nothing(request.path)
    return problem(error.code or 500, error.description or "")


def _told(error: ApiError) -> Response:
    return problem(error.status, error.detail, error.type)


def _not_in(error: SignInError) -> Response:
    return _later(problem(error.status, error.sentence), error.retry_s)


def _later(found: Response, retry_s: float) -> Response:
    if retry_s:
        found.headers["Retry-After"] = str(int(retry_s) + 1)
    return found


ERRORS: dict[type[Exception], Callable[[Any], Any]] = {
    ApiError: _told,
    HTTPException: _http_problem,
    RefusedError: lambda error: _told(denied(error.refusal)),
    NotFoundError: lambda error: problem(HTTPStatus.NOT_FOUND, str(error)),
    InvalidChangeError: lambda error: problem(HTTPStatus.CONFLICT, str(error)),
    InvalidRuleError: lambda error: problem(HTTPStatus.BAD_REQUEST, str(error)),
    SignInError: _not_in,
    RecoveringError: lambda error: _later(problem(
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
