"""`gpudeck pool import gpu_config.yaml`: a resource manager's configuration as gpudeck's."""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudeck.action_words import printable
from gpudeck.client import Client, add_hub_flags
from gpudeck.errors import CommandError, ExitCode
from gpudeck.pool.connection import PoolConnection
from gpudeck.pool.messages import PoolShown, ShowPool
from gpudeck.settings import parser

if TYPE_CHECKING:
    from gpudeck.pool.gpu_config import Board


def import_config(argv: Sequence[str]) -> int:
    made = parser("pool import", (), "Translate a gpu_config.yaml into gpudeck "
                                     "settings, key by key; changes nothing.")
    made.add_argument("file", metavar="FILE", type=Path, help="the gpu_config.yaml")
    add_hub_flags(made, os.environ, "compare its memory table with the boards of this "
                                    "hub; default: those of this machine's agent")
    asked = made.parse_args(list(argv))
    try:
        from gpudeck.pool.gpu_config import GpuConfigError, read
    except ModuleNotFoundError as error:
        raise CommandError("YAML cannot be read here: pip install 'gpudeck[hub]'",
                           ExitCode.CANNOT_START) from error
    try:
        text = asked.file.read_text()
        keys = read(text, _boards(asked))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{asked.file}: {error}", ExitCode.USAGE) from None
    except GpuConfigError as error:
        raise CommandError("\n".join(printable(f"{asked.file}: {each}") for each in error.args),
                           ExitCode.USAGE) from None
    print("# For `gpudeck pool manifest --config FILE`.\n[pool]")
    for each in keys:
        value = "" if each.setting else f" = {json.dumps(each.value)[:80]}"
        print(printable(f"# line {each.line}, {each.path}{value}: {each.means}"))
        if each.setting is not None:
            print(f"{each.setting[0]} = {json.dumps(each.setting[1])}")
    return ExitCode.OK


def _boards(asked: Namespace) -> "list[Board] | None":
    """None: nobody is there to say."""
    if asked.hub:
        return [(each["name"], each["facts"].get("mem_total_bytes"))
                for each in Client.asked(asked).gpus(metrics="util_pct")]
    try:
        pool = PoolConnection(os.environ)
        with pool.socket:
            pool.send(ShowPool())
            shown = pool.receive()
    except CommandError as error:
        print(f"gpudeck: the memory table was not compared with any board: {error}",
              file=sys.stderr)
        return None
    return [(each.name, each.mem_bytes) for each in shown.gpus] if isinstance(
        shown, PoolShown) else None
