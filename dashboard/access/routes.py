"""A route of the REST interface is one row: what it is called, who may ask it, what it takes and
answers, and who serves it. Access table, OpenAPI document and docs are made of these rows."""

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
from .requests import asker, body

Query = tuple[tuple[str, dict[str, Any]], ...]


def see(role: Role, reach: PermissionReach = PermissionReach.VISIBLE) -> Permission:
    return Permission("", PEOPLE_AND_PROGRAMS, role, reach)


def change(role: Role, reach: PermissionReach = PermissionReach.NONE, is_fresh: bool = True,
           kinds: tuple[Kind, ...] = PEOPLE_AND_PROGRAMS) -> Permission:
    return Permission("", kinds, role, reach, CsrfProof.HEADER, is_fresh)


@dataclass(frozen=True, slots=True)
class Route:
    """`verb`: `GET tasks/<path:task_id>`, below the API's prefix. `handler`: of the class that
    serves it: takes the body, then the names in the path, and gives what is answered; so its
    signature says what these are. `version`: the field by which a change says what it is a change
    of. `errors`: those that do not follow from the rest."""

    verb: str
    handler: Callable[..., Any]
    name: str
    access: Permission  # of a verb that is still to be filled in
    text: str
    answer: type | None = None  # of a handler that gives it encoded
    reads: type | None = None  # of a handler that reads the body itself, to name all that is wrong
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
        """In its path or query; a host name that several nodes have is answered 409."""
        return "<node_id>" in self.verb or any(name == "node" for name, _ in self.query)

    @property
    def permission(self) -> Permission:
        return replace(self.access, verb=f"{self.method} {PREFIX}/{self.path}")

    @property
    def body(self) -> type[Struct] | None:
        """What the handler takes."""
        hints = get_type_hints(self.handler)
        return next((hint for name, hint in hints.items() if name != "return"
                     and issubclass(hint, Struct)), None)

    @property
    def given(self) -> type:
        """What the handler gives."""
        found: type = get_type_hints(self.handler)["return"]
        return found


NodeNamed = Callable[[Actor, str], str]  # the id of the node that is called so


def serve_routes(server: Flask, apis: Collection[object], routes: Iterable[Route],
                 node_named: NodeNamed) -> None:
    """Each by the one of `apis` whose class has its handler."""
    for route in routes:
        api = next(each for each in apis
                   if getattr(type(each), route.handler.__name__, None) is route.handler)
        server.add_url_rule(f"{PREFIX}/{route.path}", route.name, _view(route, api, node_named),
                            methods=[route.method], provide_automatic_options=False)


def _view(route: Route, api: object, node_named: NodeNamed) -> Callable[..., Response]:
    handler, kind = route.handler.__get__(api), route.body

    def view(**names: str) -> Response:
        # Handlers know ids alone, in the path and in the query.
        if "node_id" in names:
            names["node_id"] = node_named(asker(), names["node_id"])
        if "node" in request.args:
            request.args = ImmutableMultiDict(
                (name, node_named(asker(), value) if name == "node" else value)
                for name, value in request.args.items(multi=True))
        found = handler(**names) if kind is None else handler(body(kind), **names)
        if isinstance(found, Response):
            return found
        return Response(status=HTTPStatus.NO_CONTENT) if found is None else answer(
            found, route.status)

    return view
