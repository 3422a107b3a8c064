"""`gpudeck team list|set|remove`: owners who share a bill in reports."""

import argparse
from collections.abc import Sequence

import msgspec

from gpudeck.errors import CommandError, ExitCode

from ..errors import NotFoundError
from ..jobs.core.teams import Team, teams_flaw
from ..jobs.store import JobsStore
from ..state import HubState
from .access import run_verb
from .parts import Item, Verb, make_parser, make_verb, record_change


def team(argv: Sequence[str]) -> int:
    return run_verb(_parser(), VERBS, argv)


def _list(state: HubState, args: argparse.Namespace) -> Item:
    return {"items": msgspec.to_builtins(state.store(JobsStore).teams()), "next": None}


def _set(state: HubState, args: argparse.Namespace) -> Item:
    fields = {"name": args.name, "users": args.users, "groups": args.groups,
              "patterns": args.patterns, "price_gpu_hour": args.price}
    try:
        new_team = msgspec.convert(fields, Team)
    except msgspec.ValidationError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    old_teams = state.store(JobsStore).teams()
    teams = tuple(new_team if entry.name == new_team.name else entry for entry in old_teams)
    teams = teams if new_team in teams else (*old_teams, new_team)
    problem = teams_flaw(teams)
    if problem is not None:
        raise CommandError(problem, ExitCode.USAGE)
    with record_change(state, "team", "set", {"name": new_team.name}):
        state.store(JobsStore).put_teams(teams)
    item: Item = msgspec.to_builtins(new_team)
    return item


def _remove(state: HubState, args: argparse.Namespace) -> Item:
    with record_change(state, "team", "remove", {"name": args.name[:128]}):
        teams = state.store(JobsStore).teams()
        remaining = [entry for entry in teams if entry.name != args.name]
        if len(remaining) == len(teams):
            raise NotFoundError(f"there is no team {args.name!r}")
        state.store(JobsStore).put_teams(remaining)
    return {"removed": args.name}


VERBS: dict[str, Verb] = {"list": _list, "set": _set, "remove": _remove}


def _parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("team", "Teams: owners who share a bill in reports.")
    make_verb(verbs, "list", "all of them")
    verb_parser = make_verb(verbs, "set", "add one, or replace it")
    verb_parser.add_argument("name", metavar="NAME")
    for name, text in (("users", "Unix names"), ("groups", "Unix groups"),
                       ("patterns", "patterns such as 'lab3-*'")):
        verb_parser.add_argument(f"--{name}", nargs="+", default=[], metavar="NAME", help=text)
    verb_parser.add_argument("--price", type=float, metavar="N",
                             help="of a GPU-hour; without it, that of the report")
    make_verb(verbs, "remove", "one of them").add_argument("name", metavar="NAME")
    return parser
