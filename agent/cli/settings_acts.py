"""How `gpudeck mps` and `gpudeck gpu` act: one setting, with the same preview, gate and audit as
any act."""

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import msgspec

from gpudeck.action_views import PreviewView
from gpudeck.action_words import preview_lines, printable
from gpudeck.actions import NO_TASK, ShownAction
from gpudeck.client import Client
from gpudeck.errors import CommandError, ExitCode
from gpudeck.limits import GPU_SETTINGS, Setting

from ..limits.mps import LocalMpsDaemons
from ..settings import ConnectionSettings
from .acts import TerminalOutput, client_of, desk_of, followed, is_sure, is_sure_despite

_SETTINGS: msgspec.json.Decoder[Setting] = msgspec.json.Decoder(Setting)


def checked(setting: Setting) -> Setting:
    """Types alone check nothing: the strict reader does."""
    try:
        return _SETTINGS.decode(msgspec.json.encode(setting))
    except msgspec.ValidationError as error:
        raise CommandError(f"this cannot be set: {error}", ExitCode.USAGE) from error


def pipes_of(asked: argparse.Namespace, reach: ConnectionSettings) -> str:
    if asked.pipes is not None:
        return str(asked.pipes)
    if reach.hub is None:
        return str(LocalMpsDaemons().daemons()[0].folder)
    daemons = _node_mps(client_of(reach, reach.hub), asked.node)["daemons"]
    if not daemons:
        raise CommandError("no MPS control daemon runs on this node, and none has left anything "
                           "behind; say where to start one with --pipes")
    if len(daemons) != 1:
        raise CommandError("say which pipe directory with --pipes; there are "
                           f"{', '.join(each['pipes'] for each in daemons)}",
                           ExitCode.USAGE)
    return str(daemons[0]["pipes"])


def _node_mps(client: Client, name: str | None) -> dict[str, Any]:
    items = client.mps(node_id(client, name))
    if not items:
        raise CommandError("this node has not said whether MPS is there")
    return items[0]


@dataclass(frozen=True, slots=True)
class SettingRequest:
    action: ShownAction
    target: str
    params: dict[str, Any]


def do(reach: ConnectionSettings, asked: argparse.Namespace, action: ShownAction,
       task_id: str | None,
        setting: Setting | None) -> int:
    if asked.yes and not asked.reason:
        raise CommandError("say why with --reason", ExitCode.USAGE)
    if not (asked.yes or sys.stdin.isatty()):
        raise CommandError("this asks before it acts, and there is no terminal to ask at; with "
                           "--yes --reason TEXT it does not ask, where nobody's work is ended",
                           ExitCode.USAGE)
    return _act_on(reach, asked, SettingRequest(action, _target(reach, asked, task_id, setting),
                                                _params(setting, asked.grace)))


def _params(setting: Setting | None, grace_s: float) -> dict[str, Any]:
    if setting is None:
        return {}
    if not 1 <= grace_s <= 600:
        raise CommandError("--grace is from 1 to 600 seconds", ExitCode.USAGE)
    return {"grace_s": grace_s, "setting": msgspec.to_builtins(setting)}


def _target(reach: ConnectionSettings, asked: argparse.Namespace, task_id: str | None,
            setting: Setting | None) -> str:
    if task_id is not None:
        return task_id
    if reach.hub is None:
        return NO_TASK
    if isinstance(setting, GPU_SETTINGS):
        return setting.gpu_uuid
    return node_id(client_of(reach, reach.hub), asked.node)


def _act_on(reach: ConnectionSettings, asked: argparse.Namespace, wanted: SettingRequest) -> int:
    teller = TerminalOutput(reach.json)
    with desk_of(reach) as desk:
        view = desk.preview(wanted.action, [wanted.target], wanted.params, False)
        teller.tell("preview", preview=view)
        teller.say(*preview_lines(view))
        if not view.possible:
            teller.say("", "nothing was done: it would be refused")
            return ExitCode.REFUSED
        if asked.yes and _ends_work(view):
            raise CommandError("somebody's work would be ended: that is confirmed at a terminal, "
                               "without --yes", ExitCode.USAGE)
        if not asked.yes and not is_sure(view, teller):
            teller.say("nothing was done")
            return ExitCode.FAILED
        if view.needs.maintenance and (asked.yes or not is_sure_despite(teller)):
            teller.say("nothing was done: people work on this node; without --yes it is asked "
                       "for twice")
            return ExitCode.REFUSED
        return followed(teller, desk, desk.order(
            view.id, asked.reason or "from the terminal", view.needs.maintenance))


def _ends_work(view: PreviewView) -> bool:
    return any(item.processes for item in view.items)


def node_id(client: Client, name: str | None) -> str:
    if name is None:
        raise CommandError("name the node with --node", ExitCode.USAGE)
    found = [node for node in client.nodes() if name in (node["id"], node["host"])]
    if len(found) != 1:
        raise CommandError(f"{len(found)} nodes are called {printable(name)!r}; `gpudeck status "
                           "--hub URL` lists them", ExitCode.USAGE)
    return str(found[0]["id"])
