"""A route of the REST interface is one row: what it is called, who may ask it, what it takes and
answers, and who serves it. Access table, OpenAPI document and docs are made of these rows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from flask import Flask

from ..web.answers import PREFIX
from .policy import CsrfProof, Kind, Permission, PermissionReach, Role

PEOPLE: tuple[Kind, ...] = ("person",)
PEOPLE_AND_PROGRAMS: tuple[Kind, ...] = ("person", "program")
Query = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True, slots=True)
class RouteAccess:
    role: Role
    reach: PermissionReach
    proof: CsrfProof
    is_fresh: bool
    kinds: tuple[Kind, ...]


def see(role: Role, reach: PermissionReach = PermissionReach.LENS) -> RouteAccess:
    return RouteAccess(role, reach, CsrfProof.NONE, False, PEOPLE_AND_PROGRAMS)


def change(role: Role, reach: PermissionReach = PermissionReach.NONE, is_fresh: bool = True,
           kinds: tuple[Kind, ...] = PEOPLE_AND_PROGRAMS) -> RouteAccess:
    return RouteAccess(role, reach, CsrfProof.HEADER, is_fresh, kinds)


@dataclass(frozen=True, slots=True)
class Route:
    """`verb`: `GET tasks/<path:task_id>`, below the API's prefix. `handler`: of the class that
    serves it. `version`: the field by which a change says what it is a change of."""

    verb: str
    handler: Callable[..., Any]
    name: str
    access: RouteAccess
    text: str
    answer: type | None = None
    body: type | None = None
    status: int = 200
    errors: tuple[int, ...] = ()
    query: Query = ()
    is_list: bool = False  # in pages: `limit` and `cursor`
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
        access = self.access
        return Permission(f"{self.method} {PREFIX}/{self.path}", access.kinds, access.role,
                          access.reach, access.proof, access.is_fresh)


def serve_routes(server: Flask, api: object, routes: Iterable[Route]) -> None:
    for route in routes:
        server.add_url_rule(f"{PREFIX}/{route.path}", route.name, route.handler.__get__(api),
                            methods=[route.method], provide_automatic_options=False)
