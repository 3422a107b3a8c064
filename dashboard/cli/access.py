"""`gpudeck link`, `gpudeck user` and `gpudeck token`, on the folder of a hub that runs or not.

Whoever may write there is trusted with all of it already; a running hub sees the change at once.
"""

import argparse
import getpass
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.action_words import text_table
from gpudeck.command_parser import parsed
from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import read_secret
from gpudeck.times import parse_span

from ..access.passwords import flaw, hash_password
from ..access.policy import DEFAULT_GROUP, EVERYTHING, Role, Scope, name_flaw, scope_flaw
from ..access.store import ApiToken, User, new_token
from ..access.views import token_view, user_view
from ..actions.hub_key import HubKey
from ..errors import AuditWriteError, InvalidChangeError
from ..fleet.members import LASTS_MOST_S, LASTS_S, MAX_USES, NewEnrolment
from ..nodes.enrolment import about, command, create
from ..runtime.data_folder import open_folder
from ..runtime.state_location import is_there
from ..runtime.state_store import StateUnavailableError
from ..settings import link_folder
from ..state import HubState
from .parts import Item, Verb, make_parser, make_verb, recorded

DAY_S = 86_400.0


def link(argv: Sequence[str]) -> int:
    """For the first admin; with users present, make a link for one of them."""
    with open_state(link_folder(argv, os.environ)) as state:
        if state.accounts.users():
            raise CommandError("this hub has its first admin; for a sign-in link for one user, "
                               "run: gpudeck user link NAME")
        print(code_url(state, state.accounts.add_code(None, time.time())))
    return ExitCode.OK


def open_state(folder: Path) -> closing[HubState]:
    """Of a hub that runs or ran in this folder."""
    if not is_there(folder):
        raise CommandError(f"there is no hub state in {folder}; name its folder with --data",
                           ExitCode.CANNOT_START)
    open_folder(folder)
    return closing(HubState.open(folder))


def code_url(state: HubState, code: str) -> str:
    return f"{hub_url(state)}/sign-in?code={code}"


def hub_url(state: HubState) -> str:
    url = state.get("url")
    if url is None:
        raise CommandError("this hub was never started; run: gpudeck hub", ExitCode.CANNOT_START)
    return url


def user(argv: Sequence[str]) -> int:
    return run_verb(_user_parser(), USER_VERBS, argv)


def token(argv: Sequence[str]) -> int:
    return run_verb(_token_parser(), TOKEN_VERBS, argv)


def run_verb(parser: argparse.ArgumentParser, verbs: Mapping[str, Verb], argv: Sequence[str]
             ) -> int:
    asked = parser.parse_args(list(argv))
    with open_state(asked.data) as state:
        try:
            told = verbs[asked.verb](state, asked)
        except (InvalidChangeError, AuditWriteError, StateUnavailableError) as error:
            raise CommandError(str(error)) from error
    print(json.dumps(told, indent=2) if asked.json else _as_text(told))
    return ExitCode.OK


# -- users


def _add(state: HubState, asked: argparse.Namespace) -> Item:
    if (wrong := name_flaw(asked.name)) is not None:
        _refuse(f"{asked.name!r}: {wrong}")
    scope = _scope(asked.groups or [EVERYTHING], asked.unix_names or [])
    hashed = _password(asked, asked.name)
    granted = {"person": asked.name, "role": asked.role, "groups": [*scope.groups],
               "unix_names": [*scope.unix_names]}
    with recorded(state, "user", "add", granted):
        state.accounts.add_user(User(asked.name, Role(asked.role), scope, hashed, time.time()))
    return _user_item(state, asked.name) | _link_to_set(state, asked.name, hashed)


def _link_to_set(state: HubState, name: str, hashed: str | None) -> Item:
    if hashed is not None:
        return {}
    return {"link": code_url(state, state.accounts.add_code(name, time.time()))}


def _list(state: HubState, asked: argparse.Namespace) -> Item:
    return {"items": [_user_item(state, user.name) for user in state.accounts.users()],
            "next": None}


def _set(state: HubState, asked: argparse.Namespace) -> Item:
    known = state.accounts.user(asked.name)
    scope = None
    if asked.groups is not None or asked.unix_names is not None:
        scope = _scope(known.scope.groups if asked.groups is None else asked.groups,
                       known.scope.unix_names if asked.unix_names is None else asked.unix_names)
    role, hashed = None if asked.role is None else Role(asked.role), _password(asked, asked.name)
    granted = {"person": asked.name, "role": asked.role, "groups": asked.groups,
               "unix_names": asked.unix_names, "password": None if hashed is None else "new"}
    with recorded(state, "user", "change", granted):
        state.accounts.change_user(asked.name, role, scope, hashed)
    return _user_item(state, asked.name)


def _remove(state: HubState, asked: argparse.Namespace) -> Item:
    with recorded(state, "user", "remove", {"person": asked.name}):
        state.accounts.remove_user(asked.name)
    return {"removed": asked.name}


def _link(state: HubState, asked: argparse.Namespace) -> Item:
    with recorded(state, "user", "reset_password" if asked.reset else "link",
                  {"person": asked.name}):
        if asked.reset:
            state.accounts.change_user(asked.name, is_password_gone=True)
        code = state.accounts.add_code(asked.name, time.time())
    return {"name": asked.name, "link": code_url(state, code)}


USER_VERBS: dict[str, Verb] = {
    "add": _add, "list": _list, "set": _set, "remove": _remove, "link": _link}


def _user_item(state: HubState, name: str) -> Item:
    return Item(msgspec.to_builtins(user_view(state.accounts.user(name))))


def _password(asked: argparse.Namespace, name: str) -> str | None:
    """Never an argument: those are public on a machine."""
    if asked.password_file is not None:
        typed = read_secret(asked.password_file)
    elif asked.password:
        typed = getpass.getpass(f"Password for {name}: ")
        if getpass.getpass("Repeat the password: ") != typed:
            raise CommandError("the two passwords are not the same", ExitCode.USAGE)
    else:
        return None
    _refuse(flaw(typed, name))
    return hash_password(typed)


def _scope(groups: Sequence[str], unix_names: Sequence[str]) -> Scope:
    scope = Scope.of(groups, unix_names)
    _refuse(scope_flaw(scope))
    return scope


def _refuse(wrong: str | None) -> None:
    if wrong is not None:
        raise CommandError(wrong, ExitCode.USAGE)


# -- tokens


def _create(state: HubState, asked: argparse.Namespace) -> Item:
    return _create_agent(state, asked) if asked.kind == "agent" else _create_api(state, asked)


def _create_agent(state: HubState, asked: argparse.Namespace) -> Item:
    """The secret is in a line to paste, and there in the environment: arguments are public."""
    url = hub_url(state)
    hub = HubKey(asked.data).fingerprint
    wanted = NewEnrolment(asked.host, asked.approve, asked.group, asked.uses, asked.networks,
                          asked.lasts_s)
    with recorded(state, "enrolment", "add", about(wanted)):
        [(made, place)] = create(state.registry, hub, [wanted], "this folder")
    if not asked.json:
        print(f"Paste this on {'the node' if place.uses == 1 else 'each node'}. It works "
              f"{'once' if place.uses == 1 else f'for {place.uses} nodes'}, until "
              f"{_cell(place.expires_at)} UTC:", file=sys.stderr)
    return {"id": place.id, "host": place.host, "approve": place.approve, "group": place.group,
            "uses": place.uses, "networks": place.networks,
            "expires_at": place.expires_at, "token": made.text, "command": command(url, made)}


def _create_api(state: HubState, asked: argparse.Namespace) -> Item:
    scope = _scope(asked.groups or [EVERYTHING], asked.unix_names or [])
    word, made = new_token(asked.name, Role(asked.role), scope, "this folder", time.time(),
                           time.time() + asked.days * DAY_S)
    with recorded(state, "token", "add", {
            "token": made.id, "name": asked.name, "role": asked.role, "groups": [*scope.groups],
            "unix_names": [*scope.unix_names], "expires_at": made.expires_at}):
        state.accounts.add_token(made)
    return _token_item(made) | {"secret": word}


def _tokens(state: HubState, asked: argparse.Namespace) -> Item:
    return {"items": [_token_item(token) for token in state.accounts.tokens()], "next": None}


def _revoke(state: HubState, asked: argparse.Namespace) -> Item:
    with recorded(state, "token", "remove", {"token": asked.id[:64]}):
        state.accounts.remove_token(asked.id)
    return {"revoked": asked.id}


TOKEN_VERBS: dict[str, Verb] = {"create": _create, "list": _tokens, "revoke": _revoke}


def _token_item(token: ApiToken) -> Item:
    return Item(msgspec.to_builtins(token_view(token)))


# -- the words


def _user_parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("user", "Users who may sign in.")
    for verb, text in (("add", "create a user; without a password, prints a link to set one"),
                       ("set", "change role, scope or password; ends the user's sessions")):
        one = make_verb(verbs, verb, text)
        one.add_argument("name")
        one.add_argument("--role", choices=[*Role], default="viewer" if verb == "add" else None)
        _add_scope(one)
        one.add_argument("--password", action="store_true", help="ask for a password here")
        one.add_argument("--password-file", metavar="FILE", help="read the password from this file")
    make_verb(verbs, "list", "all of them")
    make_verb(verbs, "remove", "remove a user; ends their sessions").add_argument("name")
    link = make_verb(verbs, "link",
                     "create a one-time link that signs a user in, or sets a password if there is "
                     "none")
    link.add_argument("name")
    link.add_argument("--reset", action="store_true", help="clear the present password")
    return parser


def _token_parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("token", "API and enrolment tokens.")
    kinds = verbs.add_parser("create", help="create a token; it is shown only once").add_subparsers(
        dest="kind", required=True, metavar="KIND")
    api = make_verb(kinds, "api", "for a program")
    api.add_argument("name", help="what it is for")
    api.add_argument("--role", choices=[*Role], default="viewer")
    api.add_argument("--days", type=_days, default=90, help="until it expires; at most 366")
    _add_scope(api)
    agent = make_verb(kinds, "agent",
                      "for new nodes; prints the command to run there")
    agent.add_argument("--host", "--hosts", metavar="NAMES",
                       help="only for this host name, or for a list such as gpu[01-40]")
    agent.add_argument("--uses", metavar="N", type=_uses,
                       help="for how many nodes; default: 1, or as many as --hosts names")
    agent.add_argument("--from", dest="networks", metavar="NETWORKS", default="",
                       help="only from these addresses or networks, comma-separated")
    agent.add_argument("--lasts", dest="lasts_s", metavar="SPAN", type=parsed(_lasts),
                       default=LASTS_S, help="valid for so long, from 1m to 90d; default: 1h")
    agent.add_argument("--approve", action="store_true",
                       help="an admin must compare its fingerprint and approve it first")
    agent.add_argument("--group", default=DEFAULT_GROUP, metavar="GROUP",
                       help="group of nodes that it joins")
    make_verb(verbs, "list", "list tokens, without their secrets")
    make_verb(verbs, "revoke", "end one").add_argument("id")
    return parser


def _add_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", action="append", dest="groups", metavar="GROUP",
                        help="group of nodes; may be repeated; * or none: all")
    parser.add_argument("--unix-name", action="append", dest="unix_names", metavar="NAME",
                        help="Unix name whose tasks are the user's own; may be repeated")


def _uses(raw: str) -> int:
    if not raw.isascii() or not raw.isdigit() or not 1 <= int(raw) <= MAX_USES:
        raise argparse.ArgumentTypeError(f"a whole number from 1 to {MAX_USES}")
    return int(raw)


def _lasts(raw: str) -> float:
    seconds = parse_span(raw)
    if not 60 <= seconds <= LASTS_MOST_S:
        raise ValueError("from 1m to 90d")
    return seconds


def _days(raw: str) -> float:
    if not raw.isascii() or not raw.isdigit() or not 1 <= int(raw) <= 366:
        raise argparse.ArgumentTypeError("a whole number from 1 to 366")
    return float(raw)


def _as_text(told: Item) -> str:
    if "command" in told:
        return str(told["command"])
    if "items" not in told:
        return "\n".join(f"{key:16} {_cell(value)}" for key, value in told.items())
    if not told["items"]:
        return "none"
    return text_table([[*told["items"][0]], *(list(map(_cell, item.values()))
                                              for item in told["items"])])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M")
    if isinstance(value, list):
        return ",".join(value) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "".join(char if char.isprintable() else "?" for char in str(value))
