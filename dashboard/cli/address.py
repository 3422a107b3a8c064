"""`gpudeck address list|set|remove`: e-mail addresses of task owners."""

import argparse
from collections.abc import Sequence

from gpudeck.errors import CommandError, ExitCode

from ..actions.standing_store import StandingStore
from ..errors import NotFoundError
from ..notifications.addresses import address_flaw
from ..state import HubState
from .access import run_verb
from .parts import Item, Verb, make_parser, make_verb, record_change


def address(argv: Sequence[str]) -> int:
    return run_verb(_parser(), VERBS, argv)


def _list(state: HubState, args: argparse.Namespace) -> Item:
    addresses = state.store(StandingStore).addresses()
    return {"items": [{"unix_name": name, "address": address}
                      for name, address in addresses.items()], "next": None}


def _set(state: HubState, args: argparse.Namespace) -> Item:
    problem = address_flaw(args.unix_name, args.address)
    if problem is not None:
        raise CommandError(problem, ExitCode.USAGE)
    entry = {"unix_name": args.unix_name, "address": args.address}
    with record_change(state, "address", "set", entry):
        state.store(StandingStore).put_address(args.unix_name, args.address)
    return entry


def _remove(state: HubState, args: argparse.Namespace) -> Item:
    with record_change(state, "address", "remove", {"unix_name": args.unix_name[:128]}):
        if not state.store(StandingStore).drop_address(args.unix_name):
            raise NotFoundError(f"there is no address of {args.unix_name!r}")
    return {"removed": args.unix_name}


VERBS: dict[str, Verb] = {"list": _list, "set": _set, "remove": _remove}


def _parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("address", "E-mail addresses of task owners.")
    make_verb(verbs, "list", "all of them")
    verb_parser = make_verb(verbs, "set", "of one Unix name")
    verb_parser.add_argument("unix_name", metavar="NAME")
    verb_parser.add_argument("address", metavar="ADDRESS")
    make_verb(verbs, "remove", "of one Unix name").add_argument("unix_name", metavar="NAME")
    return parser
