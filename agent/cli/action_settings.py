"""Arguments of the commands that act on tasks, such as `gpudeck end`.

Which tasks an action hits, and how, comes from flags and never from the environment or a file:
nobody shall find out afterwards that a forgotten variable said yes.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudeck.cli.command_parser import parsed
from gpudeck.contract.action_table import (
    CHECKPOINT_MOST_S,
    GRACE_LEAST_S,
    GRACE_MOST_S,
    GRACE_S,
    NEXT_CHECKPOINT,
    ROWS,
    TERMINAL_ACTIONS,
    TaskAction,
)
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.times import parse_seconds
from gpudeck.settings import Setting, flag, folder, hub_url, parser

from .. import settings

HUB = Setting("hub", hub_url, None, "act through this hub; default: on this machine")
NEEDED_HUB = Setting("hub", hub_url, None, "the hub to ask; required")
DATA = Setting("data", folder, None, "without --hub: the folder of this machine's agent",
               default_words="for root the installed service's; else "
                             "$XDG_STATE_HOME/gpudeck/agent")
JSON = Setting("json", flag, False, "one JSON document per line, at each state")
TABLE: tuple[Setting, ...] = (
    HUB, settings.TOKEN_FILE, settings.CA_FILE, DATA, settings.BACKEND, settings.SIMULATE,
    settings.CEILING, JSON)

FLAGS = {param.flag.replace("-", "_")
         for action in TERMINAL_ACTIONS for param in ROWS[action].params}


@dataclass(frozen=True, slots=True)
class ActionSettings:
    action: TaskAction
    reach: settings.ConnectionSettings
    targets: tuple[str, ...]
    filter: str | None
    user: str | None
    params: dict[str, Any]
    reason: str | None
    plan_out: Path | None
    plan: Path | None
    yes: bool


def read_act(action: TaskAction, argv: Sequence[str], env: Mapping[str, str] = os.environ
             ) -> ActionSettings:
    args = _parser(action).parse_args(list(argv))
    _check(args)
    return ActionSettings(
        action, settings.read_reach(action, TABLE, args, env), tuple(dict.fromkeys(args.targets)),
        args.filter, args.user, _params(action, args), args.reason, args.plan_out, args.plan,
        args.yes)


def _parser(action: TaskAction) -> argparse.ArgumentParser:
    flags = parser(action, TABLE, ROWS[action].does)
    flags.add_argument("targets", nargs="*", metavar="TASK",
                       help="task ids, as `gpudeck tasks` lists them")
    flags.add_argument("--filter", metavar="EXPR",
                       help="with --hub: the tasks all of whose GPUs match, see docs/filters.md")
    flags.add_argument("--user", metavar="NAME", help="only tasks of this owner")
    flags.add_argument("--reason", metavar="TEXT", help="why; it goes into the audit log, and the "
                                                        "owner is notified")
    flags.add_argument("--plan-out", metavar="FILE", type=Path,
                       help="do nothing; write a plan of exactly what would be affected")
    flags.add_argument("--plan", metavar="FILE", type=Path,
                       help="carry out this plan, if nothing in it has changed")
    flags.add_argument("--yes", action="store_true", help="with --plan: do not ask")
    for param in ROWS[action].params:
        how: dict[str, Any] = {"metavar": "SPAN", "type": parsed(parse_seconds)}
        if param.default is None:
            how = {"choices": param.choices} if param.choices else {"metavar": "TEXT"}
        flags.add_argument(f"--{param.flag}", default=None, help=param.help, **how)
    return flags


def _check(args: argparse.Namespace) -> None:
    problem = next((sentence for is_wrong, sentence in (
        (args.yes and args.plan is None,
         "--yes needs a plan that somebody has reviewed: write one with --plan-out "
         "FILE, read it, then run with --plan FILE --yes"),
        (args.plan is not None and (args.targets or args.filter or args.user),
         "the plan names its targets; give --plan alone"),
        (args.plan is not None and args.plan_out is not None,
         "--plan carries out a plan, --plan-out writes one; give one of them"),
        (args.plan is not None and any(getattr(args, flag, None) is not None
                                       for flag in FLAGS),
         "the plan sets these; give --plan without --text, --grace, --signal, --wait and "
         "--after-checkpoint"),
        (args.targets and args.filter is not None, "name tasks or give a --filter, not both"),
        (args.user is not None and args.filter is None, "--user goes with --filter"),
        (getattr(args, "wait", None) is not None and args.signal is None,
         "--wait goes with --signal: it is the time for what that signal starts"),
        (args.plan is None and not args.targets and args.filter is None,
         "name a task; `gpudeck tasks` lists them with their ids"),
    ) if is_wrong), None)
    if problem is not None:
        raise CommandError(problem, ExitCode.USAGE)


def _params(action: TaskAction, args: argparse.Namespace) -> dict[str, Any]:
    if args.plan is not None:
        return {}
    params: dict[str, Any] = {
        param.name: param.default if value is None else value for param in ROWS[action].params
        # An older agent refuses what it does not know, so it is sent only if requested.
        if (value := getattr(args, param.flag.replace("-", "_"))) is not None
        or param is not NEXT_CHECKPOINT}
    if "text" in params and not params["text"]:
        raise CommandError("give the message with --text", ExitCode.USAGE)
    grace_s, wait_s = params.get("grace_s", GRACE_S), params.get("checkpoint_wait_s", 0.0)
    within_s = params.get("checkpoint_within_s", 0.0)
    if not (GRACE_LEAST_S <= grace_s <= GRACE_MOST_S and 0 <= wait_s <= CHECKPOINT_MOST_S
            and 0 <= within_s <= CHECKPOINT_MOST_S):
        raise CommandError("--grace is from 1 to 600 seconds, --wait and --after-checkpoint from 0 "
                           "to 3600",
                           ExitCode.USAGE)
    return params
