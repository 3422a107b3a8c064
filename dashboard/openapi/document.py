"""OpenAPI 3.1 document of the REST interface, made from the rows of its routes."""

import re
from http import HTTPStatus
from typing import Any

import msgspec

from gpudeck import __version__
from gpudeck.contract import action_views
from gpudeck.contract.actions import ActionParams
from gpudeck.measures.metrics import COLUMNS, SLOW, Metric

from ..access.routes import Query, Route
from ..web.answers import MAX_CURSOR, MAX_LIMIT, PREFIX, ProblemDetails
from .routes import ROUTES


def document() -> dict[str, Any]:
    structs = [ProblemDetails, ActionParams, *(
        struct for route in ROUTES for struct in (_answer(route), _body(route))
        if struct is not None)]
    _, schemas = msgspec.json.schema_components(
        structs, ref_template="#/components/schemas/{name}")
    _require_sent_fields(schemas)
    paths: dict[str, Any] = {f"{PREFIX}/openapi.json": {"get": {
        "operationId": "openapi", "summary": "This document.", "parameters": [IF_CHANGED],
        "tags": ["openapi"], "responses": {"200": {"description": "Success.", "content": {
            "application/json": {"schema": {"type": "object"}}}}} | _errors(GET_ERRORS)}}}
    for route in ROUTES:
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route.path)
        paths.setdefault(f"{PREFIX}/{path}", {})[route.method.lower()] = _operation(route, path)
    _plain_tuples(schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "gpudeck", "version": __version__, "description": _metrics_text()},
        "servers": [{"url": "/", "description": "This hub, under the name by which it was asked."}],
        "tags": [{"name": name} for name in sorted({*map(tag_of, ROUTES), "openapi"})],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "gpudeck_session"}}},
    }


def tag_of(route: Route) -> str:
    """Return the route's tag, which is the name of its package: client generators make a module of
    each."""
    return route.handler.__module__.partition("dashboard.")[2].partition(".")[0]


def _require_sent_fields(schemas: dict[str, Any]) -> None:
    """Mark all fields of action views as required: only older hubs leave some out, so clients have
    defaults for them."""
    for name, struct in vars(action_views).items():
        if isinstance(struct, type) and struct.__module__ == action_views.__name__:
            schemas[name]["required"] = list(schemas[name]["properties"])
            for field in schemas[name]["properties"].values():
                field.pop("default", None)
    for name in ("PreviewView", "ActionPlanView"):
        schemas[name]["properties"]["params"] = _ref(ActionParams)


def _plain_tuples(schema: Any) -> None:
    """Remove `items: false` next to `prefixItems`: it is valid in 3.1, but common client generators
    fail on it. `maxItems` says the same."""
    if isinstance(schema, dict):
        if "prefixItems" in schema and schema.get("items") is False:
            del schema["items"]
        for part in schema.values():
            _plain_tuples(part)
    elif isinstance(schema, list):
        for part in schema:
            _plain_tuples(part)


def _metrics_text() -> str:
    rows = [f"- `{metric.key}` [{_unit(metric)}]: {metric.meaning}" for metric in (*COLUMNS, *SLOW)]
    return "\n".join(["Keys of `values`, `missing` and `last_values`:", "", *rows])


def _unit(metric: Metric) -> str:
    if metric.words is not None:
        return ", ".join(f"{code}: {word}" for code, word in metric.words.items())
    return metric.unit or ("bit mask" if metric.key == "throttle_bits" else "a count")


def _parameter(where: str, name: str, schema: dict[str, Any], text: str = "") -> dict[str, Any]:
    is_needed = where == "path" or schema.get("required", False)
    text = text or (NODE_TEXT if name in ("node", "node_id") else "")
    plain = {key: value for key, value in schema.items() if key != "required"}
    return {"name": name, "in": where, "required": is_needed, "schema": plain} | (
        {"description": text} if text else {})


NODE_TEXT = "Its id, or its host name if unique."
CURSOR = {"type": "string", "pattern": "^[A-Za-z0-9_=-]+$", "maxLength": MAX_CURSOR}
# Errors that any request may get, in addition to those in its row.
ANY_ERRORS = (401, 403, 405, 406, 413, 414)
GET_ERRORS = (304, *ANY_ERRORS)


def _errors(statuses: tuple[int, ...]) -> dict[str, Any]:
    return {str(status): ERRORS[status] for status in sorted({*statuses})}


def _pages(route: Route) -> Query:
    if not route.is_list:
        return ()
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": route.page_size}
    return ("limit", limit), ("cursor", CURSOR)


def _body(route: Route) -> type | None:
    return route.reads or route.body


def _answer(route: Route) -> type | None:
    return route.answer or (
        route.return_type if issubclass(route.return_type, msgspec.Struct) else None)


def _operation(route: Route, path: str) -> dict[str, Any]:
    is_get = route.method == "GET"
    parameters = [_parameter("path", name, {"type": "string", "minLength": 1})
                  for name in re.findall(r"\{(\w+)\}", path)]
    parameters += [_parameter("query", name, schema, schema.get("description", ""))
                   for name, schema in (*_pages(route), *route.query)]
    statuses = (*route.errors, *(GET_ERRORS if is_get else (503, *ANY_ERRORS)))
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.text,
                                 "tags": [tag_of(route)], "parameters": parameters}
    if (body := _body(route)) is not None:
        operation["requestBody"] = {"required": True, "content": {
            "application/json": {"schema": _ref(body)}}}
        statuses = (400, 411, 415, *statuses)
    if route.query or route.is_list:
        statuses = (400, *statuses)
    if route.names_node:
        statuses = (409, *statuses)
    if route.version:
        statuses = (412, *statuses)
        parameters += [_parameter("header", name, STRING, text.format(route.version))
                       for name, text in CONDITIONS]
    if route.method == "POST":
        parameters.append(_ONCE)
        statuses = (400, 409, 422, *statuses)
    if is_get:
        parameters.append(IF_CHANGED)
    status = HTTPStatus.NO_CONTENT.value if route.return_type is type(None) else route.status
    return operation | {"responses": {str(status): _success(route)} | _errors(statuses)}


def _success(route: Route) -> dict[str, Any]:
    response: dict[str, Any] = {"description": "Done."}
    if (answer := _answer(route)) is not None:
        response["content"] = {"application/json": {"schema": _ref(answer)}}
    elif route.media != "application/json":
        response["content"] = {route.media: {"schema": STRING}}
    if route.is_file:
        response["content"] |= {"text/csv": {"schema": STRING},
                                "application/vnd.apache.parquet": {"schema": {
                                "type": "string", "format": "binary"}}}
    if route.method == "GET":
        response["headers"] = {"ETag": {"schema": STRING}}
    return response


STRING = {"type": "string"}
IF_CHANGED = _parameter("header", "If-None-Match", STRING)
CONDITIONS = (
    ("If-None-Match", "`*`: only where there is none yet."),
    ("If-Match", "Only while its `{}` is this one, such as `\"7\"`: so that what somebody else has "
     "changed meanwhile is not lost."))
_ONCE = {
    "name": "Idempotency-Key", "in": "header", "required": False,
    "description": "A new one for each request, such as a UUID. The same one with the same "
    "body within a day is not carried out twice: it gets the first answer, "
    "with `Idempotency-Replayed: true`. A restarted hub does not know it.",
    "schema": {"type": "string", "pattern": "^[\\x21-\\x7e]{1,128}$"}}


def _ref(struct: type) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}


def _problem(text: str) -> dict[str, Any]:
    return {"description": text,
            "content": {"application/problem+json": {"schema": _ref(ProblemDetails)}}}


ERRORS = {
    304: {"description": "Unchanged since the ETag that was sent."},
    400: _problem("A parameter or the body is wrong; `detail` says which and why."),
    401: _problem("No session or API token, or an expired one."),
    403: _problem("Not for this role or scope. With the type `urn:gpudeck:problem:stale`: give the "
                  "password again first."),
    404: _problem("It does not exist, or is outside your scope."),
    405: _problem("`Allow` lists the supported methods."),
    406: _problem("It is not served in any form that `Accept` names."),
    409: _problem("It would break a rule, such as removing the last admin; or the same request "
                  "is in progress."),
    411: _problem("A body without Content-Length."),
    412: _problem("It is not the version that `If-Match` names, or there is one already."),
    413: _problem("The body is too large."),
    414: {"description": "A request line of more than 64 kB."},
    415: _problem("Only application/json is read."),
    422: _problem("The `Idempotency-Key` was used for another request."),
    429: _problem("Too many failed attempts; `Retry-After` says how long to wait."),
    503: _problem("Not possible at the moment, such as while too many passwords are being checked; "
                  "or it cannot be recorded and was not carried out."),
}
