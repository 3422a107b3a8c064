"""A route of the REST interface is one row: what it is called, who may ask it, what it takes and
answers, and who serves it. Access table, OpenAPI document and docs are made of these rows."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, get_type_hints

from flask import Flask, Response
from msgspec import Struct

from ..web.answers import DEFAULT_LIMIT, PREFIX, answer
from .policy import PEOPLE_AND_PROGRAMS, CsrfProof, Kind, Permission, PermissionReach, Role
from .requests import body

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


def serve_routes(server: Flask, apis: Collection[object], routes: Iterable[Route]) -> None:
    """Each by the one of `apis` whose class has its handler."""
    for route in routes:
        api = next(each for each in apis
                   if getattr(type(each), route.handler.__name__, None) is route.handler)
        server.add_url_rule(f"{PREFIX}/{route.path}", route.name, _view(route, api),
                            methods=[route.method], provide_automatic_options=False)


def _view(route: Route, api: object) -> Callable[..., Response]:
    handler, kind = route.handler.__get__(api), route.body

    def view(**names: str) -> Response:
        found = handler(**names) if kind is None else handler(body(kind), **names)
        if isinstance(found, Response):
            return found
        return Response(status=HTTPStatus.NO_CONTENT) if found is None else answer(
            found, route.status)

    return view
