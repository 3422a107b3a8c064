"""`gpudeck free`: CUDA_VISIBLE_DEVICES=$(gpudeck free --count 2), or an exit code if too few are
free.

Free is defined by gpudeck.measures.availability, here as on every page.
"""

import json
import os
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence

from gpudeck.cli.command_parser import parsed
from gpudeck.contract.pool_messages import PoolShown, ShowPool
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.sizes import parse_size, sold_bytes
from gpudeck.pool.connection import PoolConnection
from gpudeck.settings import parser

from ..actions.ceiling import foreign_pids
from ..backends import backend_named
from ..settings import ConnectionSettings, read_reach, this_host
from ..telemetry import status_table as show
from .action_settings import TABLE
from .available_here import with_availability
from .local_reading import read_once
from .nodes import node_id_of
from .pool_request import number

POOL_WITHIN_S = 2.0
WHYS = 3


def free(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    reach = read_reach("free", TABLE, args, os.environ)
    if reach.hub is None and args.node is not None:
        raise CommandError("--node needs --hub; without --hub it is this machine",
                           ExitCode.USAGE)
    gpus = _of_hub(reach, args.node) if reach.hub is not None else _here(reach)
    gpus = [gpu for gpu in gpus if _why(gpu, "reason") != "split"]
    matches = [gpu for gpu in gpus if _fits(gpu, args.memory, args.model)]
    count = 1 if args.count is None else args.count
    if len(matches) < count:
        raise CommandError(f"{len(matches)} of {len(gpus)} GPUs are free"
                           f"{' that fit' if args.memory or args.model else ''}, and {count} "
                           f"{'is' if count == 1 else 'are'} wanted{_whys(gpus)}")
    matches = matches[:args.count]
    if reach.json:
        print(json.dumps({"items": [{key: gpu[key] for key in ("uuid", "host", "place", "name")}
                                    for gpu in matches], "next": None}))
    else:
        print(",".join(_uuid(gpu) if args.uuid else gpu["place"] for gpu in matches))
    return ExitCode.OK


def _whys(gpus: Sequence[show.Item]) -> str:
    """Return why the others are not free, the most frequent reason first."""
    whys = Counter(why for gpu in gpus if (why := _why(gpu, "why")))
    reasons = [why if count == 1 else f"{why} ({count})" for why, count in whys.most_common(WHYS)]
    return "".join(f"; {why}" for why in reasons) + ("; and others" if len(whys) > WHYS else "")


def _why(gpu: show.Item, part: str) -> str:
    """Return a part of the reason. "": the GPU is free, or its hub is older and does not say."""
    return str((gpu.get("why_not_free") or {}).get(part, ""))


def _uuid(gpu: show.Item) -> str:
    """Return the UUID as CUDA knows it: where its hub is only viewed, it is prefixed by the site's
    name."""
    uuid = str(gpu["uuid"])
    return uuid.partition(":")[2] if gpu.get("link") else uuid


def _parser() -> ArgumentParser:
    flags = parser("free", TABLE, "Free GPUs, comma-separated: CUDA_VISIBLE_DEVICES=$(gpudeck free "
                                  "--count 2). This reserves nothing; use `gpudeck claim` for "
                                  "that. Exit code 1: there are too few.")
    flags.add_argument("--count", metavar="N", type=number(1, 1_024),
                       help="exactly this many, or none; default: all that are free")
    flags.add_argument("--uuid", action="store_true", help="UUIDs instead of indices")
    flags.add_argument("--memory", "--mem", metavar="SIZE", type=parsed(parse_size),
                       help="only boards with at least this much memory, such as 40G")
    flags.add_argument("--model", metavar="NAME", default="",
                       help="only of this model: words of its name, such as h100")
    flags.add_argument("--node", metavar="NODE", help="with --hub: of this node, by name or id")
    return flags


def _fits(gpu: show.Item, memory: int | None, model: str) -> bool:
    total = gpu["facts"].get("mem_total_bytes")
    return gpu["is_free"] and model.lower() in str(gpu["name"]).lower() and (
        memory is None or (total is not None and total >= sold_bytes(memory)))


def _here(reach: ConnectionSettings) -> list[show.Item]:
    if unseen := foreign_pids(backend_named(reach.backend), reach.ceiling):
        raise CommandError(f"no GPU is known to be free: {unseen}")
    reading, processes = read_once(reach, readings=1, lists=1)
    return with_availability(
        [{**gpu, "host": this_host()} for gpu in show.gpu_items(reading, this_host())],
        reading, processes, _pool_shown())


def _pool_shown() -> PoolShown | None:
    """Return the pool of this machine's agent. None: it has no pool."""
    try:
        pool = PoolConnection(os.environ)
    except CommandError:
        return None
    try:
        pool.send(ShowPool())
        reply = pool.receive(POOL_WITHIN_S)
    finally:
        pool.close()
    if not isinstance(reply, PoolShown):
        raise CommandError("no GPU is known to be free: the agent does not say which are leased")
    return reply


def _of_hub(reach: ConnectionSettings, node: str | None) -> list[show.Item]:
    if node is None:
        raise CommandError("name the node with --node: a job runs on the GPUs of one node",
                           ExitCode.USAGE)
    client = reach.client()
    return client.gpus(node_id=node_id_of(client, node))
