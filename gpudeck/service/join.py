"""`gpudeck join HUB`: makes this machine a node of a hub, with a token that no history keeps."""

import argparse
import os
import sys
from collections.abc import Sequence
from getpass import getpass
from pathlib import Path

from gpudeck.cli.command_parser import CommandParser, parsed
from gpudeck.cli.main import main
from gpudeck.errors import CommandError, ExitCode
from gpudeck.network.keys import EnrolmentToken
from gpudeck.pool.connection import new_socket
from gpudeck.service.install import Machine, install, missing_grants, present_grants
from gpudeck.service.units import ROLES
from gpudeck.settings import folder, hub_url, read_secret


def join(argv: Sequence[str]) -> int:
    """Join a hub: as root with systemd as a service, else in the foreground."""
    args = _parser().parse_args(list(argv))
    token = _token(args.token_file)
    try:
        EnrolmentToken.read(token)
    except ValueError as error:
        raise CommandError(f"the token: {error}", ExitCode.USAGE) from error
    machine = Machine(Path("/"))
    if args.foreground or not machine.runs_systemd or os.geteuid() != 0:
        return _in_foreground(args, token)
    role = ROLES["agent"]
    settings = {"hub": ",".join(args.hubs), "token_file": str(role.state / "enrolment.token")}
    if args.ca_file is not None:
        settings["ca_file"] = str(args.ca_file)
    present = present_grants(machine, role, gets_hub=True)
    grants = role.default_grants if present is None else present
    report = install(machine, role, str(Path(sys.executable).with_name("gpudeck")), settings,
                     grants, args.pool, token, True)
    print("\n".join([*report, *missing_grants(role, grants),
                     "grant more: gpudeck service install agent --grant NAMES",
                     f"look: systemctl status {role.unit}; journalctl -u {role.unit}"]))
    return ExitCode.OK


def _in_foreground(args: argparse.Namespace, token: str) -> int:
    os.environ["GPUDECK_TOKEN"] = token  # arguments are public on a machine
    more = [] if args.ca_file is None else ["--ca-file", str(args.ca_file)]
    more += [] if args.data is None else ["--data", str(args.data)]
    more += ["--pool-socket", str(new_socket(os.environ))] if args.pool else []
    return main(["agent", "--hub", ",".join(args.hubs), *more])


def _token(path: str | None) -> str:
    if path not in (None, "-"):
        return read_secret(Path(path)).strip()
    if path is None and sys.stdin.isatty():
        return getpass("enrolment token (from `gpudeck token create agent`): ").strip()
    return sys.stdin.read().strip()


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="gpudeck join", description=(
        "Make this machine a node of a hub: as a service where systemd runs and you are root, else "
        "in the foreground. The enrolment token is read from standard input."))
    add = parser.add_argument
    add("hubs", metavar="HUB", nargs="+", type=parsed(hub_url),
        help="the hub's URL; several of one hub are tried in order")
    add("--token-file", metavar="FILE", help="read the token from this file; - is standard input")
    add("--ca-file", metavar="FILE", type=folder,
        help="PEM file of the CA that issued the hub's certificate")
    add("--data", metavar="DIR", type=folder, help="in the foreground: the agent's folder")
    add("--pool", action="store_true", help="take part in the pool of GPUs")
    add("--foreground", action="store_true", help="install no service, even where one could be")
    return parser
