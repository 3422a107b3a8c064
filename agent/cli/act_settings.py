"""What `gpudeck notify`, `pause`, `resume` and `end` can be told.

What says whom it hits and how is a flag and never comes from the environment or a file: nobody
shall find out afterwards that a forgotten variable said yes.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudeck.actions import GRACE_S, TaskAction
from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import Setting, flag, folder, hub_url, parser

from .. import settings

HUB = Setting("hub", hub_url, None, "act through this hub; without it, on this machine")
DATA = Setting("data", folder, None, "without --hub: the folder of this machine's agent",
               default_words="$XDG_STATE_HOME/gpudeck/agent")
JSON = Setting("json", flag, False, "one JSON document per line, at each state")
TABLE: tuple[Setting, ...] = (
    HUB, settings.TOKEN_FILE, settings.CA_FILE, DATA, settings.BACKEND, settings.SIMULATE,
    settings.CEILING, JSON)

SIGNALS = ("USR1", "USR2", "INT", "HUP")
DOES: dict[TaskAction, str] = {
    "notify": "Tell a task's owner something, on the terminals they have open.",
    "pause": "Stop a task's processes; its memory stays held.",
    "resume": "Let a paused task go on.",
    "end": "End a task and the whole job that it belongs to.",
}


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
    made = parser(action, TABLE, DOES[action])
    made.add_argument("targets", nargs="*", metavar="TASK",
                      help="task ids, as `gpudeck tasks` lists them")
    made.add_argument("--filter", metavar="EXPR",
                      help="with --hub: the tasks all of whose Gpus match, see docs/filters.md")
    made.add_argument("--user", metavar="NAME", help="of these, only this owner's")
    made.add_argument("--reason", metavar="TEXT", help="why; it is recorded, and the owner is told")
    made.add_argument("--plan-out", metavar="FILE", type=Path,
                      help="act on nothing; write down what would be hit, exactly")
    made.add_argument("--plan", metavar="FILE", type=Path,
                      help="do what this file says, if nothing of it has changed")
    made.add_argument("--yes", action="store_true", help="with --plan: do not ask")
    if action == "notify":
        made.add_argument("--text", metavar="TEXT", default=None, help="what to tell")
    if action == "end":
        made.add_argument("--grace", metavar="S", type=float, default=None,
                          help=f"seconds from SIGTERM to SIGKILL, 1 to 600; default {GRACE_S:.0f}")
        made.add_argument("--signal", choices=SIGNALS, default=None,
                          help="send this first, so that the task writes a checkpoint")
        made.add_argument("--wait", metavar="S", type=float, default=None,
                          help="with --signal: seconds to wait for the checkpoint, up to 3600")
    return made


def _check(asked: argparse.Namespace) -> None:
    wrong = next((sentence for is_wrong, sentence in (
        (asked.yes and asked.plan is None,
         "--yes is for a plan only, so that what nobody looks at was looked at before: write one "
         "with --plan-out FILE, read it, then run with --plan FILE --yes"),
        (asked.plan is not None and (asked.targets or asked.filter or asked.user),
         "the plan names its targets; give --plan alone"),
        (asked.plan is not None and asked.plan_out is not None,
         "--plan does a plan, --plan-out writes one; give one of them"),
        (asked.plan is not None and any(getattr(asked, name, None) is not None
                                        for name in ("text", "grace", "signal", "wait")),
         "the plan says how; give --plan without --text, --grace, --signal and --wait"),
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
    if action == "notify":
        if not asked.text:
            raise CommandError("say what to tell with --text", ExitCode.USAGE)
        return {"text": asked.text}
    if action != "end":
        return {}
    grace_s = GRACE_S if asked.grace is None else asked.grace
    wait_s = 0.0 if asked.wait is None else asked.wait
    if not 1 <= grace_s <= 600 or not 0 <= wait_s <= 3_600:
        raise CommandError("--grace is from 1 to 600 seconds, --wait from 0 to 3600",
                           ExitCode.USAGE)
    return {"grace_s": grace_s, "checkpoint_signal": asked.signal, "checkpoint_wait_s": wait_s}
