"""`gpudeck pool import gpu_config.yaml`: a resource manager's configuration as gpudeck's."""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudeck.client.hub import Client, add_hub_flags
from gpudeck.contract.pool_messages import PoolShown, ShowPool
from gpudeck.errors import CommandError, ExitCode
from gpudeck.pool.connection import PoolConnection
from gpudeck.settings import parser
from gpudeck.words.actions import printable

if TYPE_CHECKING:
    from gpudeck.pool.gpu_config import Board


def import_config(argv: Sequence[str]) -> int:
    flags = parser("pool import", (), "Translate a gpu_config.yaml into gpudeck "
                                      "settings, key by key; changes nothing.")
    flags.add_argument("file", metavar="FILE", type=Path, help="the gpu_config.yaml")
    add_hub_flags(flags, os.environ, "compare its memory table with the boards of this "
                                     "hub; default: those of this machine's agent")
    args = flags.parse_args(list(argv))
    try:
        from gpudeck.pool.gpu_config import GpuConfigError, read
    except ModuleNotFoundError as error:
        raise CommandError("YAML cannot be read here: pip install 'gpudeck[hub]'",
                           ExitCode.CANNOT_START) from error
    try:
        text = args.file.read_text()
        keys = read(text, _boards(args))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{args.file}: {error}", ExitCode.USAGE) from None
    except GpuConfigError as error:
        raise CommandError(
            "\n".join(printable(f"{args.file}: {message}") for message in error.args),
            ExitCode.USAGE) from None
    print("# For `gpudeck pool manifest --config FILE`.\n[pool]")
    for key in keys:
        value = "" if key.setting else f" = {json.dumps(key.value)[:80]}"
        print(printable(f"# line {key.line}, {key.path}{value}: {key.means}"))
        if key.setting is not None:
            print(f"{key.setting[0]} = {json.dumps(key.setting[1])}")
    return ExitCode.OK


def _boards(args: Namespace) -> "list[Board] | None":
    """Return the boards to compare with, of the hub or of this machine's agent. None: no agent
    answers."""
    if args.hub:
        return [(gpu["name"], gpu["facts"].get("mem_total_bytes"))
                for gpu in Client.from_flags(args).gpus(metrics="util_pct")]
    try:
        pool = PoolConnection(os.environ)
        with pool.socket:
            pool.send(ShowPool())
            reply = pool.receive()
    except CommandError as error:
        print(f"gpudeck: the memory table was not compared with any board: {error}",
              file=sys.stderr)
        return None
    return [(gpu.name, gpu.mem_bytes) for gpu in reply.gpus] if isinstance(
        reply, PoolShown) else None
