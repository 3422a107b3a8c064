"""`gpudeck address list|set|remove`: where the owners of tasks read their mail."""

import argparse
from collections.abc import Sequence

from gpudeck.errors import CommandError, ExitCode

from ..errors import NotFoundError
from ..notifications.addresses import address_flaw
from ..state import HubState
from .access import run_verb
from .parts import Item, Verb, make_parser, make_verb, recorded


def address(argv: Sequence[str]) -> int:
    return run_verb(_parser(), VERBS, argv)


def _list(state: HubState, asked: argparse.Namespace) -> Item:
    return {"items": [{"unix_name": name, "address": address}
                      for name, address in state.standing.addresses().items()], "next": None}


def _set(state: HubState, asked: argparse.Namespace) -> Item:
    wrong = address_flaw(asked.unix_name, asked.address)
    if wrong is not None:
        raise CommandError(wrong, ExitCode.USAGE)
    told = {"unix_name": asked.unix_name, "address": asked.address}
    with recorded(state, "address", "set", told):
        state.standing.put_address(asked.unix_name, asked.address)
    return told


def _remove(state: HubState, asked: argparse.Namespace) -> Item:
    with recorded(state, "address", "remove", {"unix_name": asked.unix_name[:128]}):
        if not state.standing.drop_address(asked.unix_name):
            raise NotFoundError(f"there is no address of {asked.unix_name!r}")
    return {"removed": asked.unix_name}


VERBS: dict[str, Verb] = {"list": _list, "set": _set, "remove": _remove}


def _parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("address", "E-mail addresses of task owners.")
    make_verb(verbs, "list", "all of them")
    one = make_verb(verbs, "set", "of one Unix name")
    one.add_argument("unix_name", metavar="NAME")
    one.add_argument("address", metavar="ADDRESS")
    make_verb(verbs, "remove", "of one Unix name").add_argument("unix_name", metavar="NAME")
    return parser
