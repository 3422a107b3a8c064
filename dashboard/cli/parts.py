"""Shared parts of the commands on a hub's data folder."""

import argparse
import getpass
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from gpudeck.cli.command_parser import CommandParser
from gpudeck.settings import folder, state_folder

from ..audit.recorder import AuditRecorder
from ..audit.store import AuditStore
from ..runtime.dispatcher import Dispatcher
from ..state import HubState

Verb = Callable[[HubState, argparse.Namespace], Any]


Item = dict[str, Any]


def record_change(state: HubState, kind: str, action: str,
                  detail: Item) -> AbstractContextManager[None]:
    """Return a context that records a change made in the folder, in the name of the Unix user."""
    changes = {name: value for name, value in detail.items() if value is not None}
    return AuditRecorder(state.store(AuditStore), None, Dispatcher()).change(kind, {
        "actor": getpass.getuser(), "actor_kind": "terminal", "action": action, "detail": changes})


def make_parser(name: str, text: str) -> tuple[Any, argparse.ArgumentParser]:
    parser = CommandParser(prog=f"gpudeck {name}", description=text)
    return parser.add_subparsers(dest="verb", required=True, metavar="VERB"), parser


def make_verb(verbs: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text,
                                                       allow_abbrev=False)
    data = os.environ.get("GPUDECK_DATA") or str(state_folder("hub", os.environ))
    parser.add_argument("--data", type=folder, metavar="DIR", default=folder(data),
                        help="the hub's folder")
    parser.add_argument("--json", action="store_true", help="as JSON")
    return parser
