"""`gpudeck team list|set|remove`: owners who share a bill in reports."""

import argparse
from collections.abc import Sequence

import msgspec

from gpudeck.errors import CommandError, ExitCode

from ..errors import NotFoundError
from ..jobs.core.teams import Team, teams_flaw
from ..state import HubState
from .access import run_verb
from .parts import Item, Verb, make_parser, make_verb, recorded


def team(argv: Sequence[str]) -> int:
    return run_verb(_parser(), VERBS, argv)


def _list(state: HubState, asked: argparse.Namespace) -> Item:
    return {"items": msgspec.to_builtins(state.jobs.teams()), "next": None}


def _set(state: HubState, asked: argparse.Namespace) -> Item:
    wanted = {"name": asked.name, "users": asked.users, "groups": asked.groups,
              "patterns": asked.patterns, "price_gpu_hour": asked.price}
    try:
        made = msgspec.convert(wanted, Team)
    except msgspec.ValidationError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    had = state.jobs.teams()
    teams = tuple(made if one.name == made.name else one for one in had)
    teams = teams if made in teams else (*had, made)
    wrong = teams_flaw(teams)
    if wrong is not None:
        raise CommandError(wrong, ExitCode.USAGE)
    with recorded(state, "team", "set", {"name": made.name}):
        state.jobs.put_teams(teams)
    found: Item = msgspec.to_builtins(made)
    return found


def _remove(state: HubState, asked: argparse.Namespace) -> Item:
    with recorded(state, "team", "remove", {"name": asked.name[:128]}):
        had = state.jobs.teams()
        left = [one for one in had if one.name != asked.name]
        if len(left) == len(had):
            raise NotFoundError(f"there is no team {asked.name!r}")
        state.jobs.put_teams(left)
    return {"removed": asked.name}


VERBS: dict[str, Verb] = {"list": _list, "set": _set, "remove": _remove}


def _parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("team", "Teams: owners who share a bill in reports.")
    make_verb(verbs, "list", "all of them")
    one = make_verb(verbs, "set", "add one, or replace it")
    one.add_argument("name", metavar="NAME")
    for name, text in (("users", "Unix names"), ("groups", "Unix groups"),
                       ("patterns", "patterns such as 'lab3-*'")):
        one.add_argument(f"--{name}", nargs="+", default=[], metavar="NAME", help=text)
    one.add_argument("--price", type=float, metavar="N",
                     help="of a GPU-hour; without it, that of the report")
    make_verb(verbs, "remove", "one of them").add_argument("name", metavar="NAME")
    return parser
