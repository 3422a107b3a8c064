"""Commands that act on tasks, and `gpudeck follow`: preview, confirm, order, follow."""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.contract.action_plan import (
    ActionPlanDocument,
    InvalidPlanError,
    changes,
    decode,
    encode,
    plan_of,
)
from gpudeck.contract.action_table import TaskAction
from gpudeck.contract.action_views import CommandView, PreviewView
from gpudeck.contract.actions import FINAL
from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import parser
from gpudeck.words.actions import (
    end_line,
    exit_code,
    many,
    moment,
    preview_lines,
    printable,
    question,
    step_line,
)

from ..actions.standalone import StandaloneNode
from ..settings import ConnectionSettings, read_reach, this_host
from ..tasks.terminals import who_is_here
from .action_settings import TABLE, ActionSettings, read_act
from .local_target import LocalTarget
from .targets import HubTarget

ActionTarget = HubTarget | LocalTarget


def follow(argv: Sequence[str]) -> int:
    flags = parser("follow", TABLE, "Follow commands of a hub until they finish.")
    flags.add_argument("ids", nargs="+", metavar="COMMAND", help="the commands' ids")
    args = flags.parse_args(list(argv))
    reach = read_reach("follow", TABLE, args, os.environ)
    if reach.hub is None:
        raise CommandError("name the hub with --hub", ExitCode.USAGE)
    client = reach.client()
    commands = [client.command(command_id) for command_id in dict.fromkeys(args.ids)]
    return _follow(TerminalOutput(reach.json), HubTarget(client, reach.hub), commands)


class TerminalOutput:
    """Output for people; with --json, one document per line for machines, and people read
    stderr."""

    def __init__(self, is_json: bool) -> None:
        self._is_json = is_json
        self._stream = sys.stderr if is_json else sys.stdout

    def say(self, *lines: str) -> None:
        print(*lines, sep="\n", file=self._stream, flush=True)

    def emit(self, event: str, **what: Any) -> None:
        if self._is_json:
            print(json.dumps({"event": event, **msgspec.to_builtins(what)}), flush=True)

    def preview(self, view: PreviewView) -> None:
        self.emit("preview", preview=view)
        self.say(*preview_lines(view))

    def command(self, command: CommandView) -> None:
        self.emit("command", command=command)
        self.say(step_line(command, time.time()))

    def ask(self, prompt: str) -> str:
        """Ask on stderr, so that what stdout is piped into is not spoilt."""
        print(prompt, end="", file=sys.stderr, flush=True)
        return sys.stdin.readline()


def answer(reach: ConnectionSettings, document: dict[str, Any], *lines: str) -> int:
    print(json.dumps(document) if reach.json else "\n".join(lines))
    return ExitCode.OK


def _act(action: TaskAction, argv: Sequence[str]) -> int:
    settings = read_act(action, argv)
    if settings.plan_out is None:
        _check_somebody_answers(settings)
    plan = None if settings.plan is None else _read_plan(settings.plan, action)
    with target_of(settings.reach) as target:
        return act_on(target, settings, plan)


notify = partial(_act, "notify")
pause = partial(_act, "pause")
resume = partial(_act, "resume")
suspend = partial(_act, "suspend")
restore = partial(_act, "restore")
end = partial(_act, "end")


def act_on(target: ActionTarget, settings: ActionSettings, plan: ActionPlanDocument | None) -> int:
    output = TerminalOutput(settings.reach.json)
    view = _preview(settings, target, plan)
    output.preview(view)
    if settings.plan_out is not None:
        return _write_plan(output, settings.plan_out, view)
    if plan is not None and (differences := changes(plan, view)):
        return _changed(output, differences)
    if not view.possible:
        output.say("", "nothing was done: all of it would be refused")
        return ExitCode.REFUSED
    return order(output, target, view, _reason(settings, output), settings.yes)


def order(output: TerminalOutput, target: ActionTarget, view: PreviewView, reason: str,
          is_yes: bool) -> int:
    if not is_yes and not _is_sure(view, output):
        output.say("nothing was done")
        return ExitCode.FAILED
    if view.needs.maintenance and (is_yes or not _is_sure_despite(output)):
        output.say("nothing was done: this node is in maintenance; run without --yes to confirm "
                   "twice")
        return ExitCode.REFUSED
    result = target.order(view.id, reason, view.needs.maintenance)
    if result.plan is not None:
        output.emit("waiting", plan=result.plan)
        output.say(f"waiting for a second person until {moment(result.plan.ends_at)}; another "
                   "operator approves it on the Tasks page")
        return ExitCode.WAITING
    return _follow(output, target, result.items)


def _check_somebody_answers(settings: ActionSettings) -> None:
    if not (settings.yes or sys.stdin.isatty()):
        raise CommandError(
            "this needs confirmation, and there is no terminal to ask on; write a plan with "
            "--plan-out FILE, read it, then run with --plan FILE --yes", ExitCode.USAGE)
    if settings.yes and not settings.reason:
        raise CommandError("give a reason with --reason", ExitCode.USAGE)


@contextmanager
def target_of(reach: ConnectionSettings) -> Iterator[ActionTarget]:
    if reach.hub is not None:
        yield HubTarget(reach.client(), reach.hub)
        return
    with StandaloneNode(reach.data, reach.backend, reach.simulate, reach.ceiling) as local:
        yield LocalTarget(local, this_host(), who_is_here())


def _preview(settings: ActionSettings, target: ActionTarget, plan: ActionPlanDocument | None
             ) -> PreviewView:
    if plan is not None:
        return target.preview(settings.action, plan.targets, plan.params, True)
    targets = target.choose(settings.targets, settings.filter, settings.user)
    return target.preview(settings.action, targets, settings.params, settings.plan_out is not None)


def _read_plan(path: Path, action: TaskAction) -> ActionPlanDocument:
    try:
        plan = decode(path.read_bytes())
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", ExitCode.USAGE) from error
    except InvalidPlanError as error:
        raise CommandError(f"{path}: {error}", ExitCode.USAGE) from error
    if plan.action != action:
        raise CommandError(f"{path} is a plan to {plan.action}; run: gpudeck {plan.action} "
                           f"--plan {path}", ExitCode.USAGE)
    return plan


def _write_plan(output: TerminalOutput, path: Path, view: PreviewView) -> int:
    try:
        plan = plan_of(view, time.time())
        # Command lines are nobody's business but the planner's.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(encode(plan))
    except InvalidPlanError as error:
        raise CommandError(f"no plan was written: {error}", ExitCode.REFUSED) from error
    except FileExistsError as error:
        raise CommandError(f"{path} is there already; choose another name",
                           ExitCode.USAGE) from error
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}",
                           ExitCode.CANNOT_START) from error
    output.emit("planned", file=str(path), jobs=len(plan.jobs))
    output.say("", f"nothing was done. {path} holds {many(len(plan.jobs), 'job')}; to do it: "
                   f"gpudeck {view.action} --plan {path} --reason TEXT")
    return ExitCode.OK


def _changed(output: TerminalOutput, differences: list[str]) -> int:
    output.emit("changed", changes=differences)
    output.say("", "REFUSED, nothing was done: the targets changed since the plan was written "
                   "(changed)",
               *(f"  {printable(line)}" for line in differences),
               "write a new plan with --plan-out")
    return ExitCode.REFUSED


def _reason(settings: ActionSettings, output: TerminalOutput) -> str:
    reason = settings.reason or settings.params.get("text")
    while not reason:
        line = output.ask("why? ")
        if not line:
            raise CommandError("nothing was done: give a reason with --reason", ExitCode.USAGE)
        reason = line.strip()
    return str(reason)


def _is_sure(view: PreviewView, output: TerminalOutput) -> bool:
    confirmation = question(view)
    output.say("")
    return confirmation.is_yes(output.ask(confirmation.prompt))


def _is_sure_despite(output: TerminalOutput) -> bool:
    return output.ask("This node is in maintenance. To go ahead anyway, type maintenance: "
                      ).strip() == "maintenance"


def _follow(output: TerminalOutput, target: ActionTarget, commands: Sequence[CommandView]) -> int:
    now = {command.id: command for command in commands}
    for command in commands:
        output.command(command)
    try:
        _watch(output, target, now)
    except KeyboardInterrupt:
        output.say("", target.interrupted(_running(now)))
        if target.goes_on_alone:
            raise
        _watch(output, target, now)
    output.say("", *(end_line(command) for command in now.values()))
    code = exit_code(command.state for command in now.values())
    output.emit("end", exit_code=int(code),
                states={command.id: command.state for command in now.values()})
    return code


def _watch(output: TerminalOutput, target: ActionTarget, now: dict[str, CommandView]) -> None:
    for command in target.follow(_running(now)):
        now[command.id] = command
        output.command(command)


def _running(now: dict[str, CommandView]) -> list[CommandView]:
    return [command for command in now.values() if command.state not in FINAL]
