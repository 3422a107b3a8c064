"""`gpudeck link`, `gpudeck user` and `gpudeck token`, on the folder of a hub, running or not.

Anyone who may write there is trusted with all of it already; a running hub sees a change at once.
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

from gpudeck.cli.command_parser import parsed
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.printable import printable
from gpudeck.language.times import parse_span
from gpudeck.service.installed import is_installed
from gpudeck.service.units import ROLES
from gpudeck.settings import read_secret
from gpudeck.words.actions import text_table

from ..access.passwords import flaw, hash_password
from ..access.policy import DEFAULT_GROUP, EVERYTHING, Role, Scope, name_flaw, scope_flaw
from ..access.store import AccountsStore, ApiToken, User, new_token
from ..access.views import token_view, user_view
from ..actions.hub_key import HubKey
from ..errors import AuditWriteError, InvalidChangeError
from ..fleet.members import LASTS_MOST_S, LASTS_S, MAX_USES, NewEnrolment
from ..nodes.enrolment import about, command, create
from ..nodes.store import NodeStore
from ..runtime.data_folder import open_folder
from ..runtime.state_location import is_there
from ..runtime.state_store import StateUnavailableError
from ..settings import link_folder
from ..state import HubState
from .parts import Item, Verb, make_parser, make_verb, record_change

DAY_S = 86_400.0


def link(argv: Sequence[str]) -> int:
    """Print a sign-in link for the first admin; once there are users, refuse and name the other
    command."""
    with open_state(link_folder(argv, os.environ)) as state:
        if state.store(AccountsStore).users():
            raise CommandError("this hub has its first admin; for a sign-in link for one user, "
                               "run: gpudeck user link NAME")
        print(code_url(state, state.store(AccountsStore).add_code(None, time.time())))
    return ExitCode.OK


def open_state(folder: Path) -> closing[HubState]:
    """Open the state of a hub that runs or ran in this folder."""
    try:
        if not is_there(folder):
            raise CommandError(f"there is no hub state in {folder}; {_where_it_is()}",
                               ExitCode.CANNOT_START)
    except PermissionError as error:
        raise CommandError(f"{folder} is closed to this user; {_where_it_is()}",
                           ExitCode.CANNOT_START) from error
    open_folder(folder)
    return closing(HubState.open(folder))


def _where_it_is() -> str:
    if not is_installed("hub"):
        return "name its folder with --data"
    role = ROLES["hub"]
    return (f"the hub of this machine is a service: as root, run: runuser -u {role.user} -- "
            f"gpudeck … --data {role.state}")


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
    args = parser.parse_args(list(argv))
    with open_state(args.data) as state:
        try:
            output = verbs[args.verb](state, args)
        except (InvalidChangeError, AuditWriteError, StateUnavailableError) as error:
            raise CommandError(str(error)) from error
    print(json.dumps(output, indent=2) if args.json else _as_text(output))
    return ExitCode.OK


# -- users


def _add(state: HubState, args: argparse.Namespace) -> Item:
    if (problem := name_flaw(args.name)) is not None:
        _refuse(f"{args.name!r}: {problem}")
    scope = _scope(args.groups or [EVERYTHING], args.unix_names or [])
    hashed = _password(args, args.name)
    detail = {"person": args.name, "role": args.role, "groups": [*scope.groups],
              "unix_names": [*scope.unix_names]}
    with record_change(state, "user", "add", detail):
        state.store(AccountsStore).add_user(
            User(args.name, Role(args.role), scope, hashed, time.time()))
    return _user_item(state, args.name) | _link_to_set(state, args.name, hashed)


def _link_to_set(state: HubState, name: str, hashed: str | None) -> Item:
    if hashed is not None:
        return {}
    return {"link": code_url(state, state.store(AccountsStore).add_code(name, time.time()))}


def _list(state: HubState, args: argparse.Namespace) -> Item:
    return {"items": [_user_item(state, user.name) for user in state.store(AccountsStore).users()],
            "next": None}


def _set(state: HubState, args: argparse.Namespace) -> Item:
    existing = state.store(AccountsStore).user(args.name)
    scope = None
    if args.groups is not None or args.unix_names is not None:
        scope = _scope(existing.scope.groups if args.groups is None else args.groups,
                       existing.scope.unix_names if args.unix_names is None else args.unix_names)
    role, hashed = None if args.role is None else Role(args.role), _password(args, args.name)
    detail = {"person": args.name, "role": args.role, "groups": args.groups,
              "unix_names": args.unix_names, "password": None if hashed is None else "new"}
    with record_change(state, "user", "change", detail):
        state.store(AccountsStore).change_user(args.name, role, scope, hashed)
    return _user_item(state, args.name)


def _remove(state: HubState, args: argparse.Namespace) -> Item:
    with record_change(state, "user", "remove", {"person": args.name}):
        state.store(AccountsStore).remove_user(args.name)
    return {"removed": args.name}


def _link(state: HubState, args: argparse.Namespace) -> Item:
    with record_change(state, "user", "reset_password" if args.reset else "link",
                       {"person": args.name}):
        if args.reset:
            state.store(AccountsStore).change_user(args.name, is_password_gone=True)
        code = state.store(AccountsStore).add_code(args.name, time.time())
    return {"name": args.name, "link": code_url(state, code)}


USER_VERBS: dict[str, Verb] = {
    "add": _add, "list": _list, "set": _set, "remove": _remove, "link": _link}


def _user_item(state: HubState, name: str) -> Item:
    return Item(msgspec.to_builtins(user_view(state.store(AccountsStore).user(name))))


def _password(args: argparse.Namespace, name: str) -> str | None:
    """Return the new password's hash, or None. It is never an argument: those are public on a
    machine."""
    if args.password_file is not None:
        typed = read_secret(args.password_file)
    elif args.password:
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


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise CommandError(problem, ExitCode.USAGE)


# -- tokens


def _create(state: HubState, args: argparse.Namespace) -> Item:
    return _create_agent(state, args) if args.kind == "agent" else _create_api(state, args)


def _create_agent(state: HubState, args: argparse.Namespace) -> Item:
    """Create an enrolment token and a line to paste, which has the secret in the environment:
    arguments are public."""
    url = hub_url(state)
    hub = HubKey(args.data).fingerprint
    request = NewEnrolment(args.host, args.approve, args.group, args.uses, args.networks,
                           args.lasts_s)
    with record_change(state, "enrolment", "add", about(request)):
        [(enrolment_token, enrolment)] = create(state.store(NodeStore), hub, [request],
                                                "this folder")
    if not args.json:
        print(f"Paste this on {'the node' if enrolment.uses == 1 else 'each node'}. It works "
              f"{'once' if enrolment.uses == 1 else f'for {enrolment.uses} nodes'}, until "
              f"{_cell(enrolment.expires_at)} UTC:", file=sys.stderr)
    return {"id": enrolment.id, "host": enrolment.host, "approve": enrolment.approve,
            "group": enrolment.group, "uses": enrolment.uses, "networks": enrolment.networks,
            "expires_at": enrolment.expires_at, "token": enrolment_token.text,
            "command": command(url, enrolment_token)}


def _create_api(state: HubState, args: argparse.Namespace) -> Item:
    scope = _scope(args.groups or [EVERYTHING], args.unix_names or [])
    word, api_token = new_token(args.name, Role(args.role), scope, "this folder", time.time(),
                                time.time() + args.days * DAY_S)
    with record_change(state, "token", "add", {
            "token": api_token.id, "name": args.name, "role": args.role, "groups": [*scope.groups],
            "unix_names": [*scope.unix_names], "expires_at": api_token.expires_at}):
        state.store(AccountsStore).add_token(api_token)
    return _token_item(api_token) | {"token": word}


def _tokens(state: HubState, args: argparse.Namespace) -> Item:
    tokens = state.store(AccountsStore).tokens()
    return {"items": [_token_item(token) for token in tokens], "next": None}


def _revoke(state: HubState, args: argparse.Namespace) -> Item:
    with record_change(state, "token", "remove", {"token": args.id[:64]}):
        state.store(AccountsStore).remove_token(args.id)
    return {"revoked": args.id}


TOKEN_VERBS: dict[str, Verb] = {"create": _create, "list": _tokens, "revoke": _revoke}


def _token_item(token: ApiToken) -> Item:
    return Item(msgspec.to_builtins(token_view(token)))


# -- parsers


def _user_parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("user", "Users who may sign in.")
    for verb, text in (("add", "create a user; without a password, prints a link to set one"),
                       ("set", "change role, scope or password; ends the user's sessions")):
        verb_parser = make_verb(verbs, verb, text)
        verb_parser.add_argument("name")
        verb_parser.add_argument("--role", choices=[*Role],
                                 default="viewer" if verb == "add" else None)
        _add_scope(verb_parser)
        verb_parser.add_argument("--password", action="store_true", help="ask for a password here")
        verb_parser.add_argument("--password-file", metavar="FILE",
                                 help="read the password from this file")
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


def _as_text(output: Item) -> str:
    if "command" in output:
        return str(output["command"])
    if "items" not in output:
        return "\n".join(f"{key:16} {_cell(value)}" for key, value in output.items())
    if not output["items"]:
        return "none"
    return text_table([[*output["items"][0]], *(list(map(_cell, item.values()))
                                                for item in output["items"])])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M")
    if isinstance(value, list):
        return ",".join(value) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value), "?")
