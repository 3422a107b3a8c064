"""Actions from the screen, by the same code as `gpudeck end` and the like: preview, reason,
question. There is no other way."""

import sys
from dataclasses import replace

from gpudeck.errors import CommandError
from gpudeck.words.actions import preview_lines, printable

from ..cli.action_settings import read_act
from ..cli.actions import TerminalOutput, act_on
from .keys import TopRequest
from .model import JobRow
from .screen import TerminalScreen
from .sources import TopSource


def act(screen: TerminalScreen, source: TopSource, request: TopRequest, job: JobRow) -> None:
    """Act on the terminal as it was before, where the messages stay to be read."""
    with screen.suspended():
        try:
            _act(source, request, job)
        except CommandError as error:
            print(f"gpudeck: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            print("\nback to the screen; the action is not repeated", file=sys.stderr)
        print("\npress Enter to go back", end="", flush=True)
        try:
            sys.stdin.readline()
        except KeyboardInterrupt:
            return


def _act(source: TopSource, request: TopRequest, job: JobRow) -> None:
    output = TerminalOutput(is_json=False)
    what = "preview of an end" if request.do == "preview" else request.action
    output.say("", f"{what}: {printable(job.command)}, {printable(job.owner)} on "
                   f"{printable(job.host)}")
    with source.target() as target:
        if request.do == "preview":
            view = target.preview("end", target.choose([job.task_id], None, None),
                                  read_act("end", ["--", job.task_id]).params, False)
            output.say(*preview_lines(view), "", "nothing was done: this was a preview")
            return
        words = []
        if request.action == "notify":
            if not (text := output.ask("message: ").strip()):
                output.say("nothing was done")
                return
            words = [f"--text={text}"]
        settings = read_act(request.action, [*words, "--", job.task_id])
        act_on(target, replace(settings, reach=replace(source.reach, json=False)), None)
