"""The access table: one row for everything that can be asked of a hub; no row means no access.
The rows of the REST interface are defined with its handlers (routes.py) and installed into it.

The gate asks `may` before anything runs, and the services that change something ask it again with
the target in hand. A handler without a row stops the hub at its start (dashboard/app.py).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Literal

from gpudeck.contract.action_table import TERMINAL_ACTIONS

EVERYTHING = "*"
DEFAULT_GROUP = "default"

Kind = Literal["person", "program", "agent", "rule"]


class Role(StrEnum):
    VIEWER = "viewer"  # looks
    USER = "user"  # acts on their own tasks
    OPERATOR = "operator"  # acts on others' tasks
    ADMIN = "admin"  # people, programs, nodes

    def covers(self, other: "Role") -> bool:
        return RANKS[self] >= RANKS[other]


RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Scope:
    """Groups of nodes (`*`: all), and the Unix names whose tasks belong to the actor."""

    groups: tuple[str, ...] = ()
    unix_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, groups: Iterable[str], unix_names: Iterable[str]) -> "Scope":
        """Return a scope with each name once, in order."""
        return cls(tuple(dict.fromkeys(groups)), tuple(dict.fromkeys(unix_names)))

    def sees(self, group: str) -> bool:
        return EVERYTHING in self.groups or group in self.groups

    def owns(self, unix_name: str | None) -> bool:
        return unix_name is not None and unix_name in self.unix_names

    def holds(self, other: "Scope") -> bool:
        """Tell whether `other` is no wider than this scope."""
        return (EVERYTHING in self.groups or set(other.groups) <= set(self.groups)) and (
            EVERYTHING in self.groups or set(other.unix_names) <= set(self.unix_names))


@dataclass(frozen=True, slots=True)
class Actor:
    """The sender of a request. `credential`: the session or token that identified them; when it
    ends, so does what depends on it."""

    kind: Kind
    name: str = ""
    role: Role | None = None
    scope: Scope = Scope()
    credential: str = ""
    fresh_until: float | None = None
    address: str = ""  # from where this request came


class DenialReason(Enum):
    UNKNOWN = "nobody has shown who they are"
    FORBIDDEN = "not for this actor"
    HIDDEN = "outside this actor's scope"
    STALE = "the password must be given again"


@dataclass(frozen=True, slots=True)
class AccessDenial:
    why: DenialReason
    sentence: str


class PermissionReach(Enum):
    """Ways in which a permission depends on its target."""

    NONE = "the same for all who have the role"
    VISIBLE = "what is shown is seen through the actor's scope"
    SELF = "one's own; an admin's reaches everyone's"
    GRANT = "may hand out no more than the actor has"
    TASKS = "a user's own tasks; an operator's reaches everyone's in scope"


class CsrfProof(Enum):
    """Proof a request must carry that it was not made by a page of another site."""

    NONE = "nothing: it changes nothing, or a token is no browser's to send"
    HEADER = "the CSRF header, from the hub's own origin"
    FORM = "the form's own token, from the hub's own origin"


@dataclass(frozen=True, slots=True)
class AccessTarget:
    """The target of a verb; fields that do not apply are None."""

    person: str | None = None
    role: Role | None = None
    scope: Scope | None = None
    owners: tuple[str | None, ...] | None = None  # Unix names behind all processes it would hit
    is_harmful: bool = True  # it stops the owners' work


@dataclass(frozen=True, slots=True)
class Permission:
    verb: str
    kinds: tuple[Kind, ...]  # none: see `is_open` and `is_local`
    role: Role = Role.VIEWER  # of persons and programs; at least
    reach: PermissionReach = PermissionReach.NONE
    proof: CsrfProof = CsrfProof.NONE
    is_fresh: bool = False  # persons must have given their password within FRESH_S
    is_open: bool = False  # anyone may
    is_local: bool = False  # who may read and write the folder may, and nobody else


FRESH_S = 300.0

PEOPLE: tuple[Kind, ...] = ("person",)
PEOPLE_AND_PROGRAMS: tuple[Kind, ...] = ("person", "program")


def _open(verb: str, proof: CsrfProof = CsrfProof.NONE) -> Permission:
    return Permission(verb, (), proof=proof, is_open=True)


def _page(path: str) -> Permission:
    return Permission(f"GET {path}", PEOPLE)


ROUTES = (
    _open("GET /healthz"),
    _open("GET /readyz"),
    _open("GET /sign-in"),
    _open("GET /sign-in/oidc"),
    _open("GET /sign-in/oidc/callback"),
    _open("POST /sign-in/oidc/logout"),  # by the provider, whose signature is the proof
    _open("POST /sign-in", CsrfProof.FORM),
    _open("POST /sign-in/first", CsrfProof.FORM),
    _open("POST /sign-in/password", CsrfProof.FORM),
    _open("GET /assets/<path:filename>"),
    _open("GET /assets/bundle/<file>"),
    Permission("GET /metrics", PEOPLE_AND_PROGRAMS, reach=PermissionReach.VISIBLE),
    Permission("POST /sign-out", PEOPLE, proof=CsrfProof.HEADER),
    Permission("GET /socket.io/", ("person", "program", "agent")),
    Permission("GET /api/v1/openapi.json", PEOPLE_AND_PROGRAMS),
    # Nothing is there, and only those who are signed in learn that.
    *(Permission(f"{method} /api/<path:path>", PEOPLE_AND_PROGRAMS, proof=CsrfProof.HEADER)
      for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")),
    _page("/"),
    _page("/<path:path>"),
    _page("/_dash-layout"),
    _page("/_dash-dependencies"),
    _page("/_dash-component-suites/<string:package_name>/<path:fingerprinted_path>"),
    _page("/_reload-hash"),
    _page("/_favicon.ico"),
    # The entry point of all callbacks; each has its own row below.
    Permission("POST /_dash-update-component", PEOPLE, proof=CsrfProof.HEADER),
)

# Dash callbacks, by their output; the wrapper around each calls `may`.
CALLBACKS = (
    Permission("callback main.children", PEOPLE),
    Permission("callback page-answer.answer", PEOPLE, reach=PermissionReach.VISIBLE),
    *(Permission(f"callback ..{figure}.children...{figure}.facts..", PEOPLE,
                 reach=PermissionReach.VISIBLE)
      for figure in ("past-graph", "reports-graph", "rehearsal-graph", "forecasts-graph",
                     "audit-graph", "quota-graph")),
)

EVENTS = (
    Permission("/agent connect", ("agent",)),
    Permission("/agent wire", ("agent",)),
    Permission("/live connect", PEOPLE_AND_PROGRAMS, reach=PermissionReach.VISIBLE),
    Permission("/live watch", PEOPLE_AND_PROGRAMS, reach=PermissionReach.VISIBLE),
    Permission("/live hide", PEOPLE_AND_PROGRAMS),
    Permission("/live lines", PEOPLE_AND_PROGRAMS, reach=PermissionReach.VISIBLE),
    Permission("/live numbers", ("program",), reach=PermissionReach.VISIBLE),
    Permission("/live tap", ("program",), reach=PermissionReach.VISIBLE),
)

# Commands on this machine; with --hub they use the routes above, with a token.
_VERBS = dict.fromkeys((
    "hub", "demo", "up", "agent", "simulate", "status", "tasks", "top", "free", "doctor", "events",
    "advise",
    "run", "claim", "pool", "import",
    *TERMINAL_ACTIONS, "follow", "hold", "release", "keep", "mps", "gpu", "node", "mig", "link",
    "completion", "service", "join", "mcp"),
    "") | {
        "user": "add list set remove link", "audit": "tail verify export",
        "hub": "backup restore", "history": "info verify backup restore",
        "runs": "logs cancel again remove",
        "quota": "list set remove check", "estimate": "inference training",
        "rules": "check test pack backtest import export", "address": "list set remove",
        "team": "list set remove",
        "token": "create list revoke"}
VERBS = tuple(Permission(f"gpudeck {name}", (), is_local=True) for verb, more in _VERBS.items()
              for name in (verb, *(f"{verb} {word}" for word in more.split())))

TABLE: dict[str, Permission] = {row.verb: row for row in (*ROUTES, *CALLBACKS, *EVENTS, *VERBS)}


def install(rows: Iterable[Permission]) -> None:
    """Add the rows of the REST interface, which are defined with its handlers. Until then nobody
    may use these routes."""
    for row in rows:
        if TABLE.setdefault(row.verb, row) != row:
            raise ValueError(f"two rows for {row.verb}")


_SIGNED_IN = Permission("anything else", PEOPLE_AND_PROGRAMS)


def row_of(verb: str | None) -> Permission | None:
    """Return the row of a verb; None: the table has none. Verb None: nothing is there, which only
    signed-in actors learn."""
    return _SIGNED_IN if verb is None else TABLE.get(verb)


def unlisted(verbs: Iterable[str]) -> list[str]:
    return sorted({verb for verb in verbs if verb not in TABLE})


def may(actor: Actor | None, verb: str | None, target: AccessTarget | None, now: float
        ) -> AccessDenial | None:
    """Return why the actor may not do this; None: they may. `target` None: the target is checked
    elsewhere, or there is none."""
    row = row_of(verb)
    if row is not None and row.is_open:
        return None
    if actor is None:
        return AccessDenial(DenialReason.UNKNOWN, "sign in, or send an API token as a Bearer token")
    if row is None:
        return AccessDenial(DenialReason.FORBIDDEN, "nobody may use this")
    if actor.kind not in row.kinds:
        return AccessDenial(DenialReason.FORBIDDEN, f"{_PLURAL[actor.kind]} may not use this")
    if actor.kind == "agent":
        return None
    if actor.role is None or not actor.role.covers(row.role):
        return AccessDenial(DenialReason.FORBIDDEN,
                            f"this needs the role {row.role}; yours is {actor.role}")
    if row.is_fresh and actor.kind == "person" and not is_fresh(actor, now):
        return AccessDenial(DenialReason.STALE,
                            "confirm your password again; it is valid for five minutes")
    return None if target is None else _check_target(actor, row, target, now)


_PLURAL: dict[Kind, str] = {
    "person": "people", "program": "programs", "agent": "agents", "rule": "rules"}


def is_fresh(actor: Actor, now: float) -> bool:
    return actor.fresh_until is not None and now < actor.fresh_until


def _check_target(actor: Actor, row: Permission, target: AccessTarget, now: float
                  ) -> AccessDenial | None:
    role = actor.role or Role.VIEWER
    if row.reach is PermissionReach.SELF and not role.covers(Role.ADMIN):
        is_own = actor.kind == "person" and target.person == actor.name
        if not is_own:
            return AccessDenial(DenialReason.FORBIDDEN,
                                "only an admin may do this for someone else")
        if target.role is not None or target.scope is not None:
            return AccessDenial(DenialReason.FORBIDDEN,
                                "only an admin may change a role or a scope")
    if row.reach is PermissionReach.TASKS and target.owners is not None:
        foreign_owners = [name for name in target.owners if not actor.scope.owns(name)]
        if foreign_owners and not role.covers(Role.OPERATOR):
            # A setting, such as a MIG layout, is nobody's.
            return AccessDenial(DenialReason.FORBIDDEN, (
                "these are not your own tasks; an operator may do this" if any(foreign_owners)
                else f"this needs the role {Role.OPERATOR}; yours is {role}"))
        if (foreign_owners and target.is_harmful and actor.kind == "person"
                and not is_fresh(actor, now)):
            return AccessDenial(DenialReason.STALE,
                                "these are other users' tasks: confirm your password again; it "
                                "is valid for five minutes")
    if target.role is not None and not role.covers(target.role):
        return AccessDenial(DenialReason.FORBIDDEN, f"a {role} cannot give the role {target.role}")
    if target.scope is not None and not actor.scope.holds(target.scope):
        return AccessDenial(DenialReason.FORBIDDEN, "you cannot give a wider scope than your own")
    return None


# -- names

NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")
GROUP = re.compile(r"\*|[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
UNIX_NAME = re.compile(r"[^\s\x00-\x1f\x7f,:/]{1,128}")
MAX_NAMES = 100


def name_flaw(name: str) -> str | None:
    """Return why this cannot be the name of a person or program; None: it can."""
    if NAME.fullmatch(name):
        return None
    return ("a name has 1 to 64 of the characters a-z 0-9 . _ @ + - and starts with a letter or a "
            "digit")


def scope_flaw(scope: Scope) -> str | None:
    if not scope.groups:
        return "name at least one group of nodes; * means all"
    if max(len(scope.groups), len(scope.unix_names)) > MAX_NAMES:
        return f"at most {MAX_NAMES} groups and {MAX_NAMES} Unix names fit"
    wrong = [group for group in scope.groups if not GROUP.fullmatch(group)]
    if wrong:
        return f"{wrong[0][:80]!r} is not a group: 1 to 64 of A-Z a-z 0-9 . _ - or * alone"
    wrong = [name for name in scope.unix_names if not UNIX_NAME.fullmatch(name)]
    return f"{wrong[0][:80]!r} is not a Unix name" if wrong else None


class RefusedError(Exception):
    def __init__(self, refusal: AccessDenial) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


def actor_fields(actor: Actor) -> dict[str, Any]:
    """Return the audit log's fields about an actor: who, and from where."""
    return {"actor": actor.name, "actor_kind": actor.kind, "credential": actor.credential or None,
            "address": actor.address or None}
