"""`gpudeck node`: takes a GPU, or a whole node, out of service and returns it, with the same
preview, gate and audit as any action."""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.cli.command_parser import parsed
from gpudeck.contract.action_table import GRACE_S
from gpudeck.contract.limits import (
    Cordon,
    Drain,
    GpuDiagnosis,
    GpuReset,
    ReturnToService,
    ServiceSetting,
    action_of,
)
from gpudeck.contract.repairs import WHOLE_NODE, WORDS, GpuRepair, overdue
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.times import SPANS, parse_span
from gpudeck.settings import also_behind, parser
from gpudeck.words.actions import moment, printable

from ..journal.store import ActionJournal, ActionStore, JournalError
from ..limits.stores import RepairStore
from ..settings import ConnectionSettings, closed_here, read_reach
from .action_settings import TABLE
from .actions import answer
from .setting_actions import board_uuid, do, node_id, validate

DRAIN_WITHIN_S = 4 * 3_600.0
VERBS = (("cordon", "nothing new is assigned there; what runs continues"),
         ("drain", "cordon it, ask the owners of what runs to finish, and wait; nothing is ended"),
         ("return", "assign it again"),
         ("reset", "reset an empty GPU that is out of service; its node must permit it"),
         ("diagnose", "run the vendor's diagnosis on one; its node must permit it"))
APPROVAL = {"approved": "approved", "already": "was approved before",
            "revoked": "is revoked and stays so", "unknown": "no such node has come"}
OF_ONE_GPU = ("reset", "diagnose")


def node(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    reach = read_reach("node", TABLE, args, os.environ)
    if args.verb == "approve":
        return _approve(reach, args)
    if reach.hub is None and args.node is not None:
        raise CommandError("without --hub this machine is meant; name no node", ExitCode.USAGE)
    if args.verb == "show":
        return _show(reach, args)
    setting = _setting(reach, args)
    return do(reach, args, action_of(setting), None, setting)


def _parser() -> argparse.ArgumentParser:
    flags = parser("node", TABLE, "GPUs and nodes out of service: cordon, drain, repair, return.")
    verbs = flags.add_subparsers(dest="verb", metavar="VERB", required=True)
    _verb(verbs, "show", "GPUs out of service, the reason, and the next steps")
    words = "let waiting nodes in, by their fingerprints; needs --hub and the role admin"
    approve = verbs.add_parser("approve", help=words, description=words)
    approve.add_argument("fingerprints", metavar="FINGERPRINT", nargs="*",
                         help="as the agent prints it, in quotes or without its blanks")
    approve.add_argument("--file", metavar="FILE",
                         help="read them from this file, one on a line; - is standard input")
    also_behind(approve, TABLE)
    for name, words in VERBS:
        verb = _verb(verbs, name, words)
        is_one = name in OF_ONE_GPU
        verb.add_argument("--gpu", metavar="GPU", required=is_one,
                          help="by number or UUID" if is_one else
                          "this GPU alone, by number or UUID; default: the whole node")
        verb.add_argument("--reason", metavar="TEXT", help="why; everybody sees it")
        verb.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        verb.set_defaults(grace=GRACE_S)
        if name == "diagnose":
            verb.add_argument("--level", type=int, choices=(1, 2), default=1,
                              help="1: seconds; 2: minutes; default 1")
        if name == "drain":
            verb.add_argument("--within", metavar="SPAN", type=parsed(parse_span),
                              default=DRAIN_WITHIN_S,
                              help=f"the time that owners are given, {SPANS}; default 4h")
    return flags


def _verb(verbs: Any, name: str, words: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=words, description=words)
    verb.add_argument("node", metavar="NODE", nargs="?", help="with --hub: its name or id")
    also_behind(verb, TABLE)
    return verb


def _setting(reach: ConnectionSettings, args: argparse.Namespace) -> ServiceSetting:
    uuid = WHOLE_NODE if args.gpu is None else board_uuid(reach, args)
    setting = _service_setting(args, uuid)
    validate(setting)
    return setting


def _service_setting(args: argparse.Namespace, uuid: str) -> ServiceSetting:
    match args.verb:
        case "cordon":
            return Cordon(uuid)
        case "drain":
            return Drain(uuid, args.within)
        case "reset":
            return GpuReset(uuid)
        case "diagnose":
            return GpuDiagnosis(uuid, args.level)
    return ReturnToService(uuid)


def _show(reach: ConnectionSettings, args: argparse.Namespace) -> int:
    if reach.hub is not None:
        client = reach.client()
        items = client.repairs(None if args.node is None else node_id(client, args.node))
        return answer(reach, {"items": items}, *(_lines(items) or ["everything is in service"]))
    repairs = _here(reach)
    items = [msgspec.to_builtins(repair) | {
        "host": "here", "gpu": None if repair.gpu_uuid == WHOLE_NODE else repair.gpu_uuid,
        "says": WORDS[repair.state], "seen": repair.words, "index": None,
        "is_overdue": overdue(repair, time.time())} for repair in repairs]
    return answer(reach, {"items": items}, *(_lines(items) or ["everything is in service"]))


def _approve(reach: ConnectionSettings, args: argparse.Namespace) -> int:
    """Let waiting nodes in by their fingerprints. Text after a # on a line is a comment."""
    lines = [] if args.file is None else (
        sys.stdin.read() if args.file == "-" else read_text(args.file)).splitlines()
    fingerprints = [word for line in (*args.fingerprints, *lines)
                    if (word := line.partition("#")[0].strip())]
    if reach.hub is None or not fingerprints:
        raise CommandError("name the hub with --hub, and fingerprints or a file of them",
                           ExitCode.USAGE)
    items = reach.client().approve_nodes(fingerprints)
    answer(reach, {"items": items}, *(
        f"{item['fingerprint']}  {printable(item['host'] or '-')}  {APPROVAL[item['outcome']]}"
        for item in items))
    failed = any(item["outcome"] in ("unknown", "revoked") for item in items)
    return ExitCode.FAILED if failed else ExitCode.OK


def read_text(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {path}: {error}", ExitCode.USAGE) from error


def _here(reach: ConnectionSettings) -> tuple[GpuRepair, ...]:
    if closed := closed_here(reach):
        raise CommandError(closed, ExitCode.CANNOT_START)
    if not reach.data.is_dir():
        return ()
    try:
        with closing(ActionStore(reach.data / "acts.db")) as store:
            return RepairStore(ActionJournal(store)).all()
    except JournalError as why:
        raise CommandError(str(why), ExitCode.CANNOT_START) from why


def _lines(items: Iterable[dict[str, Any]]) -> list[str]:
    return [_line(item) for item in items]


def _line(item: dict[str, Any]) -> str:
    where = "the whole node" if item["gpu"] is None else (
        f"GPU {item['index']}" if item["index"] is not None else printable(item["gpu"]))
    until = "" if item["until"] is None else f" until {moment(item['until'])}"
    late = ", overdue: end the remaining tasks" if item["is_overdue"] else ""
    why = f": {printable(item['reason'])}" if item["reason"] else ""
    observation = f"  {printable(item['seen'])}" if item["seen"] else ""
    return (f"{printable(item['host'])}  {where}  {item['says']}{until}{late}  since "
            f"{moment(item['since'])}, by {printable(item['by'])}{why}{observation}")
