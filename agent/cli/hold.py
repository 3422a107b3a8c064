"""`gpudeck hold`, `release` and `keep`: stop and resume actions, and request that a task be
kept."""

import argparse
import fcntl
import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from gpudeck.cli.command_parser import parsed
from gpudeck.client.hub import Client, Item
from gpudeck.contract.vendors import PCI
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.printable import printable
from gpudeck.language.times import parse_until
from gpudeck.settings import parser
from gpudeck.words.actions import moment

from ..actions import hold_files as files
from ..backends import BACKENDS, driver_modules
from ..runtime.data_lock import agent_pid
from ..settings import CA_FILE, TOKEN_FILE, ConnectionSettings, read_reach
from ..tasks.device_users import openers, readers
from ..tasks.terminals import who_is_here
from .action_settings import DATA, HUB, JSON, NEEDED_HUB
from .actions import answer
from .nodes import node_id_of
from .targets import no_such_task

TABLE = (HUB, TOKEN_FILE, CA_FILE, DATA, JSON)
KEEP_TABLE = (NEEDED_HUB, TOKEN_FILE, CA_FILE, JSON)
IN_EFFECT_WITHIN_S = 15.0
LOOK_EVERY_S = 0.1
QUIET_S = 1.0  # twice as long as an agent may take to see the file


def hold(argv: Sequence[str]) -> int:
    args, reach = _read_args(
        "hold", "Stop all actions on this machine, a node, or the fleet, at once.",
        "release the driver too, so that it can be reloaded; with a vendor's name, that one's "
        "alone", argv)
    if reach.hub is None:
        holds = _hold_here(reach, args.reason, args.driver)
        return (_answer_holds(reach, *holds) if args.driver is None
                else _answer_driver(reach, args.driver, holds))
    client = reach.client()
    node_id = _node(client, args)
    client.hold(node_id, args.reason)
    return _confirm(reach, client, node_id, is_held=True)


def release(argv: Sequence[str]) -> int:
    args, reach = _read_args("release", "Resume actions, and open the driver again.",
                             "open the driver again, and keep actions stopped; with a vendor's "
                             "name, that one's alone", argv)
    if reach.hub is None:
        before = files.holds(files.hold_files(reach.data))
        return _answer_holds(reach, *_release_here(reach, args.driver), before=before)
    client = reach.client()
    node_id = _node(client, args)
    client.release(node_id)
    return _confirm(reach, client, node_id, is_held=False)


def keep(argv: Sequence[str]) -> int:
    flags = parser("keep", KEEP_TABLE, "Ask for your task to be kept; people and rules see the "
                                       "request.")
    flags.add_argument("task", metavar="TASK", help="the task's id, as `gpudeck tasks` lists it")
    flags.add_argument("--until", metavar="WHEN", help="18:00, 2026-11-22T18:00, or +2h")
    flags.add_argument("--because", metavar="TEXT", help="the reason, shown with the task")
    flags.add_argument("--remove", action="store_true", help="withdraw the request")
    args = flags.parse_args(list(argv))
    reach = read_reach("keep", KEEP_TABLE, args, os.environ)
    client = reach.client("wish")
    if args.remove == bool(args.until or args.because) or not (
            args.remove or (args.until and args.because)):
        raise CommandError("give --until and --because, or --remove", ExitCode.USAGE)
    if client.task(args.task) is None:
        raise no_such_task(args.task, client.tasks())
    if args.remove:
        client.let_go(args.task)
        return answer(reach, {"kept": None}, f"{printable(args.task)} need not be kept any more")
    until = _until(args.until)
    client.keep(args.task, until, args.because)
    return answer(reach, {"kept": {"until": until, "because": args.because}},
                f"{printable(args.task)} is to be kept until {moment(until)}")


def _until(word: str) -> float:
    try:
        return parse_until(word, datetime.now().astimezone())
    except ValueError as error:
        raise CommandError(f"--until {word!r}: {error}", ExitCode.USAGE) from error


def _read_args(program: str, does: str, driver: str, argv: Sequence[str]
               ) -> tuple[argparse.Namespace, ConnectionSettings]:
    flags = parser(program, TABLE, does)
    flags.add_argument("--node", metavar="NODE", help="with --hub: this node, by name or id")
    flags.add_argument("--fleet", action="store_true", help="with --hub: every node")
    if program == "hold":
        flags.add_argument("--reason", metavar="TEXT", default="", help="why; shown to everybody")
    flags.add_argument("--driver", metavar="VENDOR", nargs="?", const="", type=parsed(_vendor),
                       help=f"on this machine: {driver}")
    args = flags.parse_args(list(argv))
    reach = read_reach(program, TABLE, args, os.environ)
    if reach.hub is None and (args.node is not None or args.fleet):
        raise CommandError("--node and --fleet go with --hub", ExitCode.USAGE)
    if reach.hub is not None and args.driver is not None:
        raise CommandError("--driver works on the machine itself: run it there, without --hub",
                           ExitCode.USAGE)
    return args, reach


# -- this machine


def _vendor(word: str) -> str:
    """Return a vendor's name; "": the flag came without one. Raises ValueError."""
    vendor = next((vendor for vendor in PCI if vendor.lower() == word.lower()), "")
    if word and not vendor:
        raise ValueError(f"no vendor that is known; there are {', '.join(PCI)}")
    return vendor


def _hold_here(reach: ConnectionSettings, reason: str, vendor: str | None) -> tuple[str, ...]:
    """Write the hold file of the machine if we may; else, or where a folder was named, that of the
    agent there. `vendor`: whose driver is released; "": every one; None: none."""
    lines = printable(reason, " ")[:files.REASON_MAX] + "\n"
    own, machine = files.hold_files(reach.data)[-1], files.MACHINE_FILES[0]
    if vendor is not None:
        lines += who_is_here() + "\n"
        own, machine = (path.with_name(files.driver_file(vendor)) for path in (own, machine))
    if reach.names_data or not _write_file(machine, lines):
        _check_agent(reach.data)
        if not _write_file(own, lines):
            raise CommandError(f"cannot write {own}; run it as root, or as the agent's user",
                               ExitCode.CANNOT_START)
    return files.holds(files.hold_files(reach.data))


def _answer_driver(reach: ConnectionSettings, vendor: str, holds: Sequence[str]) -> int:
    """Wait for reading processes to end, as the kernel says, and report what still has the driver
    open."""
    of_vendor = [backend for backend in BACKENDS.values() if vendor and backend.vendor == vendor]
    pids = _remaining_readers(agent_pid(reach.data) if reach.names_data else None,
                              [backend.name for backend in of_vendor])
    users = openers(driver_modules(of_vendor or BACKENDS.values()))
    lines = [f"reading process {pid} STILL has the driver open; see `dmesg`" for pid in pids] or [
        "released: no reader process of gpudeck is left here"]
    if users.processes:
        lines.append("the driver is still open for: "
                     + ", ".join(f"{printable(name)} ({pid})" for pid, name in users.processes))
    if users.unseen:
        lines.append(f"{users.unseen} processes of others could not be looked at; root may")
    document = {"holds": [*holds], "readers": pids, "unseen": users.unseen,
                "open_for": [{"pid": pid, "name": name} for pid, name in users.processes]}
    answer(reach, document, *(f"held: {reason}" for reason in holds), *lines)
    return ExitCode.UNKNOWN if pids else ExitCode.OK


def _remaining_readers(agent: int | None, backends: Sequence[str]) -> list[int]:
    now = time.monotonic()
    deadline, seen_at = now + IN_EFFECT_WITHIN_S, now
    while now < deadline and now - seen_at < QUIET_S:
        time.sleep(LOOK_EVERY_S)
        now = time.monotonic()
        seen_at = now if readers(agent, backends) else seen_at
    return readers(agent, backends)


def _check_agent(data: Path) -> None:
    """Raise CommandError if no agent would read the hold: it would reassure and stop nothing."""
    try:
        with open(data / "lock", "a") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # an agent runs
    except PermissionError as error:
        raise CommandError(f"{data} is closed to this user, so nothing was stopped; run this as "
                           "root", ExitCode.CANNOT_START) from error
    except OSError:
        pass
    raise CommandError(f"no agent runs with the folder {data}, so nothing would be stopped; "
                       "name the agent's folder with --data, or run this as root",
                       ExitCode.CANNOT_START)


def _write_file(path: Path, lines: str) -> bool:
    """Write the file whole, or not at all: an agent obeys it at once."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(new, "w", encoding="utf-8") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        return False
    return True


def _release_here(reach: ConnectionSettings, vendor: str | None) -> tuple[str, ...]:
    """Remove hold files; where a folder was named, the machine's own files stay. `vendor`: those of
    its driver alone; "": of every driver; None: all."""
    paths = files.hold_files(reach.data)
    names = (None if vendor is None else files.DRIVER_NAMES if not vendor
             else (files.driver_file(vendor),))
    for path in paths:
        if (reach.names_data and path.parent != reach.data) or (
                names is not None and path.name not in names):
            continue
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise CommandError(f"cannot remove {path}: {error.strerror}; run it as root",
                               ExitCode.CANNOT_START) from error
    return files.holds(paths)


def _answer_holds(reach: ConnectionSettings, *holds: str, before: Sequence[str] = ()) -> int:
    none = ("released: no hold file is left here" if before else "there is no hold file here")
    lines = [f"held: {reason}" for reason in holds] or [
        f"{none}; resume actions that a hub stopped at that hub"]
    return answer(reach, {"holds": [*holds]}, *lines)


# -- through a hub


def _node(client: Client, args: argparse.Namespace) -> str | None:
    """Return the node's id. None: the fleet, which must be named."""
    if (args.node is None) != args.fleet:
        raise CommandError("say --node NODE or --fleet", ExitCode.USAGE)
    if args.fleet:
        return None
    return node_id_of(client, args.node)


def _confirm(reach: ConnectionSettings, client: Client, node_id: str | None,
             is_held: bool) -> int:
    """Wait until the nodes themselves report it: the hub's own answer proves nothing."""
    deadline = time.monotonic() + IN_EFFECT_WITHIN_S
    while True:
        nodes = [_node_holds(node) for node in client.nodes()
                 if node_id in (None, node["id"]) and node["access"] != "revoked"]
        late = [node for node in nodes if bool(node["holds"]) != is_held]
        if not late or time.monotonic() > deadline:
            break
        time.sleep(LOOK_EVERY_S)
    lines = [_line(node, is_held) for node in nodes]
    answer(reach, {"nodes": nodes}, *(lines or ["there is no node that you may see"]))
    return ExitCode.UNKNOWN if late or not nodes else ExitCode.OK


def _node_holds(node: Item) -> Item:
    return {"node": node["id"], "host": node["host"], "state": node["state"],
            "holds": node.get("holds", [])}


def _line(node: Item, is_held: bool) -> str:
    host, why = printable(str(node["host"])), "; ".join(map(printable, node["holds"]))
    if not is_held:
        return f"{host}  STILL held: {why}" if why else f"{host}  not held"
    if why:
        return f"{host}  held: {why}"
    return (f"{host}  has not confirmed the stop yet ({node['state']}); the hub sends "
            "nothing there, and stops it when it is back")
