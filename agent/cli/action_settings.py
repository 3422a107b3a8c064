"""Arguments of the commands that act on tasks, such as `gpudeck end`.

What says whom it hits and how is a flag and never comes from the environment or a file: nobody
shall find out afterwards that a forgotten variable said yes.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudeck.action_table import (
    CHECKPOINT_MOST_S,
    GRACE_LEAST_S,
    GRACE_MOST_S,
    GRACE_S,
    NEXT_CHECKPOINT,
    ROWS,
    TERMINAL_ACTIONS,
    TaskAction,
)
from gpudeck.command_parser import parsed
from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import Setting, flag, folder, hub_url, parser
from gpudeck.times import parse_seconds

from .. import settings

HUB = Setting("hub", hub_url, None, "act through this hub; default: on this machine")
NEEDED_HUB = Setting("hub", hub_url, None, "the hub to ask; required")
DATA = Setting("data", folder, None, "without --hub: the folder of this machine's agent",
               default_words="$XDG_STATE_HOME/gpudeck/agent")
JSON = Setting("json", flag, False, "one JSON document per line, at each state")
TABLE: tuple[Setting, ...] = (
    HUB, settings.TOKEN_FILE, settings.CA_FILE, DATA, settings.BACKEND, settings.SIMULATE,
    settings.CEILING, JSON)

FLAGS = {each.flag.replace("-", "_") for action in TERMINAL_ACTIONS for each in ROWS[action].params}


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
    asked = _parser(action).parse_args(list(argv))
    _check(asked)
    return ActionSettings(
        action, settings.read_reach(action, TABLE, asked, env), tuple(dict.fromkeys(asked.targets)),
        asked.filter, asked.user, _params(action, asked), asked.reason, asked.plan_out, asked.plan,
        asked.yes)


def _parser(action: TaskAction) -> argparse.ArgumentParser:
    made = parser(action, TABLE, ROWS[action].does)
    made.add_argument("targets", nargs="*", metavar="TASK",
                      help="task ids, as `gpudeck tasks` lists them")
    made.add_argument("--filter", metavar="EXPR",
                      help="with --hub: the tasks all of whose GPUs match, see docs/filters.md")
    made.add_argument("--user", metavar="NAME", help="only tasks of this owner")
    made.add_argument("--reason", metavar="TEXT", help="why; it goes into the audit log, and the "
                                                       "owner is notified")
    made.add_argument("--plan-out", metavar="FILE", type=Path,
                      help="do nothing; write a plan of exactly what would be affected")
    made.add_argument("--plan", metavar="FILE", type=Path,
                      help="carry out this plan, if nothing in it has changed")
    made.add_argument("--yes", action="store_true", help="with --plan: do not ask")
    for each in ROWS[action].params:
        how: dict[str, Any] = {"metavar": "SPAN", "type": parsed(parse_seconds)}
        if each.default is None:
            how = {"choices": each.choices} if each.choices else {"metavar": "TEXT"}
        made.add_argument(f"--{each.flag}", default=None, help=each.help, **how)
    return made


def _check(asked: argparse.Namespace) -> None:
    wrong = next((sentence for is_wrong, sentence in (
        (asked.yes and asked.plan is None,
         "--yes needs a plan that somebody has reviewed: write one with --plan-out "
         "FILE, read it, then run with --plan FILE --yes"),
        (asked.plan is not None and (asked.targets or asked.filter or asked.user),
         "the plan names its targets; give --plan alone"),
        (asked.plan is not None and asked.plan_out is not None,
         "--plan carries out a plan, --plan-out writes one; give one of them"),
        (asked.plan is not None and any(getattr(asked, flag, None) is not None
                                        for flag in FLAGS),
         "the plan sets these; give --plan without --text, --grace, --signal, --wait and "
         "--after-checkpoint"),
        (asked.targets and asked.filter is not None, "name tasks or give a --filter, not both"),
        (asked.user is not None and asked.filter is None, "--user goes with --filter"),
        (getattr(asked, "wait", None) is not None and asked.signal is None,
         "--wait goes with --signal: it is the time for what that signal starts"),
        (asked.plan is None and not asked.targets and asked.filter is None,
         "name a task; `gpudeck tasks` lists them with their ids"),
    ) if is_wrong), None)
    if wrong is not None:
        raise CommandError(wrong, ExitCode.USAGE)


def _params(action: TaskAction, asked: argparse.Namespace) -> dict[str, Any]:
    if asked.plan is not None:
        return {}
    given: dict[str, Any] = {
        each.name: each.default if value is None else value for each in ROWS[action].params
        # An agent of before refuses what it does not know, so that it is said only if asked for.
        if (value := getattr(asked, each.flag.replace("-", "_"))) is not None
        or each is not NEXT_CHECKPOINT}
    if "text" in given and not given["text"]:
        raise CommandError("give the message with --text", ExitCode.USAGE)
    grace_s, wait_s = given.get("grace_s", GRACE_S), given.get("checkpoint_wait_s", 0.0)
    within_s = given.get("checkpoint_within_s", 0.0)
    if not (GRACE_LEAST_S <= grace_s <= GRACE_MOST_S and 0 <= wait_s <= CHECKPOINT_MOST_S
            and 0 <= within_s <= CHECKPOINT_MOST_S):
        raise CommandError("--grace is from 1 to 600 seconds, --wait and --after-checkpoint from 0 "
                           "to 3600",
                           ExitCode.USAGE)
    return given
