"""Actions of `gpudeck mps` and `gpudeck gpu`: one setting, with the same preview, gate and audit as
any action."""

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.client.hub import Client
from gpudeck.contract.action_table import GRACE_LEAST_S, GRACE_MOST_S, ShownAction
from gpudeck.contract.actions import NO_TASK
from gpudeck.contract.limits import Setting, gpu_of
from gpudeck.errors import CommandError, ExitCode

from ..limits.mps import LocalMpsDaemons, path_trouble
from ..settings import ConnectionSettings
from .actions import TerminalOutput, order, target_of
from .local_reading import read_once
from .nodes import node_id_of

_SETTINGS: msgspec.json.Decoder[Setting] = msgspec.json.Decoder(Setting)


def validate(setting: Setting) -> Setting:
    """Validate a setting by the strict reader: types alone check nothing."""
    try:
        return _SETTINGS.decode(msgspec.json.encode(setting))
    except msgspec.ValidationError as error:
        raise CommandError(f"this cannot be set: {error}", ExitCode.USAGE) from error


def pipes_of(args: argparse.Namespace, reach: ConnectionSettings) -> str:
    if args.pipes is not None:
        if trouble := path_trouble(Path(args.pipes)):
            raise CommandError(trouble, ExitCode.USAGE)
        return str(args.pipes)
    if reach.hub is None:
        return str(LocalMpsDaemons().daemons()[0].folder)
    daemons = _node_mps(reach.client(), args.node)["daemons"]
    if not daemons:
        raise CommandError("no MPS control daemon runs on this node, and none ran before; give "
                           "the pipe directory to start one with --pipes")
    if len(daemons) != 1:
        raise CommandError("give the pipe directory with --pipes; there are "
                           f"{', '.join(daemon['pipes'] for daemon in daemons)}",
                           ExitCode.USAGE)
    return str(daemons[0]["pipes"])


def _node_mps(client: Client, name: str | None) -> dict[str, Any]:
    items = client.mps(node_id(client, name))
    if not items:
        raise CommandError("this node has not reported its MPS state")
    return items[0]


def do(reach: ConnectionSettings, args: argparse.Namespace, action: ShownAction,
       task_id: str | None, setting: Setting | None) -> int:
    if args.yes and not args.reason:
        raise CommandError("give a reason with --reason", ExitCode.USAGE)
    if not (args.yes or sys.stdin.isatty()):
        raise CommandError("this needs confirmation, and there is no terminal to ask on; --yes "
                           "--reason TEXT skips it where nobody's work is ended",
                           ExitCode.USAGE)
    target_id, params = _target(reach, args, task_id, setting), _params(setting, args.grace)
    output = TerminalOutput(reach.json)
    with target_of(reach) as target:
        view = target.preview(action, [target_id], params, False)
        output.preview(view)
        if not view.possible:
            output.say("", "nothing was done: it would be refused")
            return ExitCode.REFUSED
        if args.yes and any(item.processes for item in view.items):
            raise CommandError("somebody's work would be ended: confirm this at a terminal, "
                               "without --yes", ExitCode.USAGE)
        return order(output, target, view, args.reason or "from the terminal", args.yes)


def _params(setting: Setting | None, grace_s: float) -> dict[str, Any]:
    if setting is None:
        return {}
    if not GRACE_LEAST_S <= grace_s <= GRACE_MOST_S:
        raise CommandError("--grace is from 1 to 600 seconds", ExitCode.USAGE)
    return {"grace_s": grace_s, "setting": msgspec.to_builtins(setting)}


def _target(reach: ConnectionSettings, args: argparse.Namespace, task_id: str | None,
            setting: Setting | None) -> str:
    if task_id is not None:
        return task_id
    if reach.hub is None:
        return NO_TASK
    gpu_uuid = None if setting is None else gpu_of(setting)
    return node_id(reach.client(), args.node) if gpu_uuid is None else gpu_uuid


def node_id(client: Client, name: str | None) -> str:
    if name is None:
        raise CommandError("name the node with --node", ExitCode.USAGE)
    return node_id_of(client, name)


def board_uuid(reach: ConnectionSettings, args: argparse.Namespace) -> str:
    """Return the UUID of a board, given it or a number. UUIDs are taken as they are, for the node
    knows its own."""
    if not args.gpu.isascii() or not args.gpu.isdigit():
        return str(args.gpu)
    if reach.hub is None:
        boards = [(gpu.index, gpu.uuid) for gpu in read_once(reach, 1)[0].facts
                  if gpu.parent_uuid is None]
    else:
        client = reach.client()
        gpus = client.gpus(node_id=node_id(client, args.node))
        boards = [(gpu["index"], gpu["uuid"]) for gpu in gpus
                  if gpu["facts"]["parent_uuid"] is None]
    matches = [uuid for index, uuid in boards if index == int(args.gpu)]
    if not matches:
        numbers = ", ".join(str(index) for index, _ in sorted(boards)) or "none"
        raise CommandError(f"there is no GPU {args.gpu[:20]} there; there are: {numbers}",
                           ExitCode.USAGE)
    return matches[0]
