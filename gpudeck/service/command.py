"""`gpudeck service install|uninstall|show hub|agent`: run by systemd, hardened, from boot on."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gpudeck.command_parser import CommandParser
from gpudeck.errors import CommandError, ExitCode
from gpudeck.service.install import Machine, install, uninstall
from gpudeck.service.units import ALONE, GRANT, ROLES, ServiceRole, files
from gpudeck.settings import folder, read_secret


def service(argv: Sequence[str]) -> int:
    asked = _parser().parse_args(list(argv))
    role = ROLES[asked.role]
    if asked.verb == "show":
        print("\n".join(f"# {path}\n{text}" for path, text in
                        files(role, asked.program, _granted(role, asked))))
        return ExitCode.OK
    machine = Machine(asked.root.resolve())
    if asked.verb == "uninstall":
        done = uninstall(machine, role, asked.purge)
    else:
        done = _install(machine, role, asked)
    print("\n".join(done))
    return ExitCode.OK


def _install(machine: Machine, role: ServiceRole, asked: argparse.Namespace) -> list[str]:
    given = {name: getattr(asked, name) for name in role.settings}
    settings = {name: value for name, value in given.items() if value is not None}
    token = None
    is_alone = role.name == "agent" and asked.alone
    if is_alone:
        if "hub" in settings or asked.token_file is not None:
            raise CommandError("--alone is without a hub; leave --hub and --token-file out",
                               ExitCode.USAGE)
        settings |= ALONE
    elif role.name == "agent":
        if "hub" not in settings and not machine.path(role.config).exists():
            raise CommandError("name the hub: --hub https://HUB:8050; or --alone, without one",
                               ExitCode.USAGE)
        token = None if asked.token_file is None else _token(asked.token_file)
        if token is not None:
            settings["token_file"] = str(role.state / "enrolment.token")
    starts = not asked.no_start and not machine.is_image
    done = install(machine, role, asked.program, settings, _granted(role, asked),
                   asked.pool or is_alone, token, starts)
    left = [GRANT[name].without for name in role.grants if name not in _granted(role, asked)]
    return [*done, *(f"not granted: {each}" for each in left),
            f"look: systemctl status {role.unit}; journalctl -u {role.unit}"]


def _token(path: str) -> str:
    """From standard input with `-`, so that it is in no history of a shell."""
    return sys.stdin.read().strip() if path == "-" else read_secret(path)


def _granted(role: ServiceRole, asked: argparse.Namespace) -> tuple[str, ...]:
    if asked.grant is None:
        return role.granted_alone if getattr(asked, "alone", False) else role.granted
    names = tuple(name for name in asked.grant.split(",") if name not in ("", "none"))
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
                       ("show", "print the files that `install` would write")):
        roles = verbs.add_parser(verb, help=text, description=text).add_subparsers(
            dest="role", required=True, metavar="hub|agent")
        for role in ROLES.values():
            made = roles.add_parser(role.name, help=role.about, description=text,
                                    allow_abbrev=False)
            ADD[verb](made, role)
    return parser


def _add_common(made: argparse.ArgumentParser, role: ServiceRole) -> None:
    made.add_argument("--program", metavar="PATH",
                      default=str(Path(sys.executable).with_name("gpudeck")),
                      help="the gpudeck command to run; default: this one")
    made.set_defaults(grant=None)
    if role.grants:
        grants = "; ".join(f"{name}: {GRANT[name].gives}" for name in role.grants)
        made.add_argument("--grant", metavar="NAMES", help=f"comma-separated, or none. {grants}. "
                          f"Default: {','.join(role.granted)}")


def _add_root(made: argparse.ArgumentParser) -> None:
    made.add_argument("--root", metavar="DIR", type=folder, default=Path("/"),
                      help="the root folder of an image, in place of this machine")


def _add_install(made: argparse.ArgumentParser, role: ServiceRole) -> None:
    _add_common(made, role)
    _add_root(made)
    for name in role.settings:
        made.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE",
                          help=f"`{name}` of docs/settings.md")
    if role.name == "agent":
        made.add_argument("--token-file", metavar="FILE",
                          help="the enrolment token; - reads it from standard input")
        made.add_argument("--alone", action="store_true",
                          help="without a hub: lease this machine's GPUs to its users")
    made.add_argument("--pool", action="store_true", help="take part in the pool of GPUs")
    made.add_argument("--no-start", action="store_true", help="start at the next boot only")


def _add_uninstall(made: argparse.ArgumentParser, role: ServiceRole) -> None:
    _add_root(made)
    made.add_argument("--purge", action="store_true",
                      help=f"also delete {role.config}, {role.state} and the user: settings, "
                           "keys, history")


ADD = {"install": _add_install, "uninstall": _add_uninstall, "show": _add_common}
