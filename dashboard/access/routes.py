"""Routes of the REST interface, one row each: name, permission, request and answer types, handler.
Access table, OpenAPI document and docs are made from these rows."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, get_type_hints

from flask import Flask, Response, request
from msgspec import Struct
from werkzeug.datastructures import ImmutableMultiDict

from ..web.answers import DEFAULT_LIMIT, PREFIX, answer
from .policy import (
    PEOPLE_AND_PROGRAMS,
    Actor,
    CsrfProof,
    Kind,
    Permission,
    PermissionReach,
    Role,
)
from .requests import body, caller

Query = tuple[tuple[str, dict[str, Any]], ...]


def see(role: Role, reach: PermissionReach = PermissionReach.VISIBLE) -> Permission:
    return Permission("", PEOPLE_AND_PROGRAMS, role, reach)


def change(role: Role, reach: PermissionReach = PermissionReach.NONE, is_fresh: bool = True,
           kinds: tuple[Kind, ...] = PEOPLE_AND_PROGRAMS) -> Permission:
    return Permission("", kinds, role, reach, CsrfProof.HEADER, is_fresh)


@dataclass(frozen=True, slots=True)
class Route:
    """A route. `verb`: `GET tasks/<path:task_id>`, below the API's prefix. `handler`: a method of
    the class that serves it; it takes the body, then the names in the path, and returns the answer,
    so its signature says what types these are. `version`: the field by which a change names the
    version it was made from. `errors`: statuses that do not follow from the rest."""

    verb: str
    handler: Callable[..., Any]
    name: str
    access: Permission  # without its verb, which `permission` fills in
    text: str
    answer: type | None = None  # for a handler that returns it encoded
    reads: type | None = None  # for a handler that parses the body itself, to report every mistake
    status: int = 200
    errors: tuple[int, ...] = ()
    query: Query = ()
    is_list: bool = False  # in pages: `limit` and `cursor`
    page_size: int = DEFAULT_LIMIT
    is_file: bool = False  # CSV and Parquet as well
    media: str = "application/json"
    version: str = ""

    @property
    def method(self) -> str:
        return self.verb.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.verb.partition(" ")[2]

    @property
    def names_node(self) -> bool:
        """Tell whether path or query name a node; a host name of several nodes is answered 409."""
        return "<node_id>" in self.verb or any(name == "node" for name, _ in self.query)

    @property
    def permission(self) -> Permission:
        return replace(self.access, verb=f"{self.method} {PREFIX}/{self.path}")

    @property
    def body(self) -> type[Struct] | None:
        """Type of the body that the handler takes; None: it takes none."""
        hints = get_type_hints(self.handler)
        return next((hint for name, hint in hints.items() if name != "return"
                     and issubclass(hint, Struct)), None)

    @property
    def return_type(self) -> type:
        """Type that the handler returns."""
        hint: type = get_type_hints(self.handler)["return"]
        return hint


NodeNamed = Callable[[Actor, str], str]  # returns the id of the node with this name


def serve_routes(server: Flask, apis: Collection[object], routes: Iterable[Route],
                 node_named: NodeNamed) -> None:
    """Register each route with the object of `apis` whose class has its handler."""
    for route in routes:
        api = next(candidate for candidate in apis
                   if getattr(type(candidate), route.handler.__name__, None) is route.handler)
        server.add_url_rule(f"{PREFIX}/{route.path}", route.name, _view(route, api, node_named),
                            methods=[route.method], provide_automatic_options=False)


def _view(route: Route, api: object, node_named: NodeNamed) -> Callable[..., Response]:
    handler, kind = route.handler.__get__(api), route.body

    def view(**names: str) -> Response:
        # Handlers get ids only, in the path and in the query.
        if "node_id" in names:
            names["node_id"] = node_named(caller(), names["node_id"])
        if "node" in request.args:
            request.args = ImmutableMultiDict(
                (name, node_named(caller(), value) if name == "node" else value)
                for name, value in request.args.items(multi=True))
        reply = handler(**names) if kind is None else handler(body(kind), **names)
        if isinstance(reply, Response):
            return reply
        return Response(status=HTTPStatus.NO_CONTENT) if reply is None else answer(
            reply, route.status)

    return view
