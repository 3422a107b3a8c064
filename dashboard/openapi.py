"""OpenAPI 3.1 of the REST interface, made from the structs that answer."""

from typing import Any

import msgspec

from gpudeck import __version__
from gpudeck.metrics import COLUMNS

from .core.filters import MAX_LENGTH
from .views import Gpus, GpuView, Nodes, NodeView, TaskList, TaskView

MAX_LIMIT = 1_000
MAX_CURSOR = 512


class Problem(msgspec.Struct):
    """RFC 9457: what is wrong and what to do."""

    type: str
    title: str
    status: int
    detail: str


# Path, the struct of one answer, what it is.
LISTS = (
    ("nodes", Nodes, "Nodes, by id. `filter` keeps those with a Gpu that matches."),
    ("gpus", Gpus, "Gpus, by slot. `filter` as on the Fleet page."),
    ("tasks", TaskList, "Tasks, by node and id. `filter` keeps those on a Gpu that matches."),
)
ITEMS = (
    ("nodes/{id}", NodeView, "One Node."),
    ("gpus/{uuid}", GpuView, "One Gpu, by its UUID."),
    ("tasks/{id}", TaskView, "One Task."),
)


def document() -> dict[str, Any]:
    structs = [struct for _, struct, _ in (*LISTS, *ITEMS)] + [Problem]
    _, schemas = msgspec.json.schema_components(
        structs, ref_template="#/components/schemas/{name}")
    paths = {f"/api/v1/{path}": {"get": _list(path, struct, text)} for path, struct, text in LISTS}
    paths |= {f"/api/v1/{path}": {"get": _item(path, struct, text)} for path, struct, text in ITEMS}
    paths["/api/v1/openapi.json"] = {
        "get": _operation("openapi", "This document.", {"type": "object"}, [], {})}
    return {
        "openapi": "3.1.0",
        "info": {"title": "gpudeck", "version": __version__, "description": _metrics_text()},
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "gpudeck_session"}}},
    }


def _metrics_text() -> str:
    rows = [f"- `{metric.key}` [{metric.unit or 'bit mask'}]: {metric.meaning}"
            for metric in COLUMNS]
    return "\n".join(["Keys of `values`, `missing` and `last_values`:", "", *rows])


def _list(path: str, struct: type, text: str) -> dict[str, Any]:
    parameters = [
        _query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 100}),
        _query("cursor", {"type": "string", "pattern": "^[A-Za-z0-9_=-]+$",
                          "maxLength": MAX_CURSOR}),
        _query("filter", {"type": "string", "maxLength": MAX_LENGTH}),
        _if_none_match(),
    ]
    return _operation(f"list_{path}", text, _ref(struct), parameters,
                      {"400": _problem("A parameter is wrong; `detail` says which and why.")})


def _item(path: str, struct: type, text: str) -> dict[str, Any]:
    name = path.partition("{")[2][:-1]
    parameters = [{"name": name, "in": "path", "required": True,
                   "schema": {"type": "string", "minLength": 1}}, _if_none_match()]
    return _operation(f"get_{path.partition('/')[0]}", text, _ref(struct), parameters,
                      {"400": _problem("A parameter is wrong."), "404": _problem("There is none.")})


def _operation(name: str, text: str, schema: dict[str, Any], parameters: list[dict[str, Any]],
               more: dict[str, Any]) -> dict[str, Any]:
    answers = {
        "200": {"description": "Here it is.",
                "headers": {"ETag": {"schema": {"type": "string"}}},
                "content": {"application/json": {"schema": schema}}},
        "304": {"description": "Unchanged since the ETag that was sent."},
        "401": _problem("Neither a session nor the API token."),
        "403": _problem("A token together with an Origin."),
        "405": _problem("Only GET and HEAD."),
        "406": _problem("Only JSON is served."),
        "414": {"description": "A request line of more than 64 kB."},
    }
    return {"operationId": name, "summary": text, "parameters": parameters,
            "responses": answers | more}


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _if_none_match() -> dict[str, Any]:
    return {"name": "If-None-Match", "in": "header", "required": False,
            "schema": {"type": "string"}}


def _ref(struct: type) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}


def _problem(text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/problem+json": {"schema": _ref(Problem)}}}
