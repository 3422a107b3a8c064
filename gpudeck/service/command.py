"""`gpudeck service`: hub and agent run by systemd, hardened, from boot on."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gpudeck.cli.command_parser import CommandParser
from gpudeck.errors import CommandError, ExitCode
from gpudeck.service.install import (
    Machine,
    install,
    missing_grants,
    present_grants,
)
from gpudeck.service.remove import undo, uninstall
from gpudeck.service.units import ALONE, GRANT, ROLES, ServiceRole, files
from gpudeck.settings import folder, read_secret


def service(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    role = ROLES[args.role]
    if args.verb == "show":
        print("\n".join(f"# {path}\n{text}" for path, text in
                        files(role, args.program, _chosen_grants(role, args))))
        return ExitCode.OK
    machine = Machine(args.root.resolve())
    if args.verb == "undo":
        return _undo(machine, role)
    if args.verb == "uninstall":
        report = uninstall(machine, role, args.purge)
    else:
        report = _install(machine, role, args)
    print("\n".join(report))
    return ExitCode.OK


def _undo(machine: Machine, role: ServiceRole) -> int:
    report, remaining = undo(machine, role)
    print("\n".join(report or ["nothing was left in force"] * (not remaining)))
    if remaining:
        raise CommandError("\n".join(remaining), ExitCode.REFUSED)
    return ExitCode.OK


def _install(machine: Machine, role: ServiceRole, args: argparse.Namespace) -> list[str]:
    values = {name: getattr(args, name) for name in role.settings}
    settings = {name: value for name, value in values.items() if value is not None}
    token = None
    is_alone = role.name == "agent" and args.alone
    if is_alone:
        if "hub" in settings or args.token_file is not None:
            raise CommandError("--alone is without a hub; leave --hub and --token-file out",
                               ExitCode.USAGE)
        settings |= ALONE
    elif role.name == "agent":
        if "hub" not in settings and not machine.path(role.config).exists():
            raise CommandError("name the hub: --hub https://HUB:8050; or --alone, without one",
                               ExitCode.USAGE)
        token = None if args.token_file is None else _token(args.token_file)
        if token is not None:
            settings["token_file"] = str(role.state / "enrolment.token")
    starts = not args.no_start and not machine.is_image
    present = present_grants(machine, role, gets_hub="hub" in settings)
    grants = (_chosen_grants(role, args) if args.grant is not None or present is None
              else present)
    report = install(machine, role, args.program, settings, grants, args.pool or is_alone, token,
                     starts)
    return [*report, *missing_grants(role, grants),
            f"look: systemctl status {role.unit}; journalctl -u {role.unit}"]


def _token(path: str) -> str:
    """Read a token; `-` is standard input, so that it is in no shell's history."""
    return sys.stdin.read().strip() if path == "-" else read_secret(path)


def _chosen_grants(role: ServiceRole, args: argparse.Namespace) -> tuple[str, ...]:
    if args.grant is None:
        return role.default_grants_alone if getattr(args, "alone", False) else role.default_grants
    names = tuple(name for name in args.grant.split(",") if name not in ("", "none"))
    if unknown := [name for name in names if name not in role.grants]:
        raise CommandError(f"--grant {unknown[0]}: there are {', '.join(role.grants)}, and none",
                           ExitCode.USAGE)
    return names


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="gpudeck service", description="Run the hub or this node's agent "
                           "as a hardened service of systemd.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, text in (("install", "write unit, user and settings, and start it"),
                       ("uninstall", "stop it and remove what `install` wrote"),
                       ("undo", "undo what it has left in force on this machine: paused tasks, "
                        "memory limits, timed limits"),
                       ("show", "print the files that `install` would write")):
        roles = verbs.add_parser(verb, help=text, description=text).add_subparsers(
            dest="role", required=True, metavar="hub|agent")
        for role in ROLES.values():
            command = roles.add_parser(role.name, help=role.about, description=text,
                                       allow_abbrev=False)
            ADD[verb](command, role)
    return parser


def _add_common(command: argparse.ArgumentParser, role: ServiceRole) -> None:
    command.add_argument("--program", metavar="PATH",
                         default=str(Path(sys.executable).with_name("gpudeck")),
                         help="the gpudeck command to run; default: this one")
    command.set_defaults(grant=None)
    if role.grants:
        grants = "; ".join(f"{name}: {GRANT[name].gives}" for name in role.grants)
        command.add_argument("--grant", metavar="NAMES",
                             help=f"comma-separated, or none. {grants}. "
                             f"Default: those it has, at first {','.join(role.default_grants)}")


def _add_root(command: argparse.ArgumentParser) -> None:
    command.add_argument("--root", metavar="DIR", type=folder, default=Path("/"),
                         help="the root folder of an image, in place of this machine")


def _add_install(command: argparse.ArgumentParser, role: ServiceRole) -> None:
    _add_common(command, role)
    _add_root(command)
    for name in role.settings:
        command.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE",
                             help=f"`{name}` of docs/settings.md")
    if role.name == "agent":
        command.add_argument("--token-file", metavar="FILE",
                             help="the enrolment token; - reads it from standard input")
        command.add_argument("--alone", action="store_true",
                             help="without a hub: lease this machine's GPUs to its users")
    command.add_argument("--pool", action="store_true", help="take part in the pool of GPUs")
    command.add_argument("--no-start", action="store_true", help="start at the next boot only")


def _add_uninstall(command: argparse.ArgumentParser, role: ServiceRole) -> None:
    _add_root(command)
    command.add_argument("--purge", action="store_true",
                         help=f"also delete {role.config}, {role.state} and the user: settings, "
                           "keys, history")


def _add_undo(command: argparse.ArgumentParser, role: ServiceRole) -> None:
    _add_root(command)


ADD = {"install": _add_install, "uninstall": _add_uninstall, "undo": _add_undo,
       "show": _add_common}
