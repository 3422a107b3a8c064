"""The one `gpudeck` command: finds the subcommand by entry point and imports only that one."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from gpudeck import __version__
from gpudeck.cli.command_parser import near, verb_first
from gpudeck.contract.action_table import ROWS, TERMINAL_ACTIONS
from gpudeck.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "gpudeck.commands"

# What people and scripts call again and again is not looked up in the metadata of all that is
# installed: that takes longer than to show the first screen.
AT_ONCE = {
    "free": "gpudeck.agent.cli.free:free",
    "run": "gpudeck.agent.cli.run:run",
    "runs": "gpudeck.agent.cli.runs.command:runs",
    "status": "gpudeck.agent.cli.main:status",
    "tasks": "gpudeck.agent.cli.main:tasks",
    "top": "gpudeck.agent.top.command:top",
}

# One line each, here and not in the commands: listing them must not import Dash.
SUMMARY: dict[str, str] = {
    "demo": "a hub and a simulated fleet on this machine, without a GPU",
    "up": "hub and agent for this machine",
    "hub": "the server: pages, API, live socket",
    "agent": "the daemon of one node",
    "status": "the GPUs, once, as a table or JSON",
    "tasks": "the tasks on the GPUs, once, as a table or JSON",
    "top": "GPUs, jobs, host and queue, live on this terminal",
    "free": "indices of free GPUs, for scripts",
    "doctor": "check this machine and suggest fixes",
    "run": "run a command on GPUs of this node as soon as they are free",
    "runs": "your runs in the background: list, logs, cancel, again, remove",
    "claim": "lease GPUs of this node for commands you start yourself",
    "pool": "free GPUs, leases and the queue: of this node or of a fleet",
    "advise": "what would free GPU-hours on a fleet: idle holders, sharing, right-sizing",
    "estimate": "memory and speed of training or serving a model, and which GPUs fit",
    "events": "what happened on a fleet, newest first",
    **{verb: ROWS[verb].summary for verb in TERMINAL_ACTIONS},
    "follow": "follow commands of a hub until they finish",
    "hold": "stop all actions on this machine, a node or the fleet",
    "release": "resume actions",
    "keep": "ask for your task to be kept until a time",
    "quota": "limits per owner: list, set, remove, check",
    "mps": "show and change MPS settings",
    "gpu": "timed limits of GPUs",
    "node": "GPUs and nodes out of service: cordon, drain, repair, return",
    "mig": "plan layouts of MIG instances; changes nothing",
    "audit": "the audit log of all actions and attempts: tail, verify, export",
    "address": "e-mail addresses of task owners: list, set, remove",
    "team": "owners who share a bill in reports: list, set, remove",
    "history": "the hub's history: info, verify, backup, restore",
    "import": "recordings of other programs into a hub's history",
    "rules": "rules as files: check, test, pack",
    "link": "print the link for the first admin of a hub on this machine",
    "user": "users: add, list, set, remove, link",
    "completion": "completion for bash or zsh",
    "mcp": "read-only access for assistants, over standard input and output",
    "join": "make this machine a node of a hub, with a token from standard input",
    "service": "hub or agent as a service of systemd: install, uninstall, undo, show",
    "simulate": "many simulated nodes in one process, for load tests",
    "token": "API and enrolment tokens: create, list, revoke",
}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except CommandError as error:
        print(f"gpudeck: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output has gone; let the interpreter not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return ExitCode.OK
    if words[0] in ("-V", "--version"):
        print(f"gpudeck {__version__}")
        return ExitCode.OK
    # `--hub` and `--json` may stand in front, where people put what is true of all that follows.
    verb, *rest = verb_first(words)
    return find(verb)(rest)


def find(name: str) -> Callable[[list[str]], int]:
    if name in AT_ONCE:
        module, _, verb = AT_ONCE[name].partition(":")
        return getattr(import_module(module), verb)  # type: ignore[no-any-return]
    from importlib.metadata import entry_points

    commands = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in commands:
        raise CommandError(
            f"no command {name!r}" + near(name, commands,
                                          f"; there are {', '.join(sorted(commands))}"),
            ExitCode.USAGE)
    return _load(commands[name])


def _load(entry: "EntryPoint") -> Callable[[list[str]], int]:
    try:
        return entry.load()  # type: ignore[no-any-return]
    except ModuleNotFoundError as error:
        if not entry.extras or (error.name or "").partition(".")[0] == "gpudeck":
            raise
        extra = entry.extras[0]
        raise CommandError(f"`gpudeck {entry.name}` needs the {extra!r} extra, which is not "
                           f"installed ({error.name} is missing); run: pip install "
                           f"'gpudeck[{extra}]'", ExitCode.CANNOT_START) from error


def _overview() -> str:
    from importlib.metadata import entry_points

    installed = {entry.name for entry in entry_points(group=GROUP)}
    rows = [f"  {name:10} {summary}" for name, summary in SUMMARY.items() if name in installed]
    return "\n".join(
        ["usage: gpudeck COMMAND [options]", "", *rows, "",
         "`gpudeck COMMAND --help` lists the options of one. Exit codes: docs/cli.md."])


if __name__ == "__main__":
    sys.exit(main())
