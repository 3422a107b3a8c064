"""`gpudeck free`: CUDA_VISIBLE_DEVICES=$(gpudeck free --count 2), or an exit code that says no.

Free is what is known to be free: it answers, nothing is on it, nobody has leased it.
"""

import json
import os
from argparse import ArgumentParser
from collections.abc import Collection, Sequence

from gpudeck.command_parser import parsed
from gpudeck.errors import CommandError, ExitCode
from gpudeck.metrics import HELD_AT_LEAST_BYTES, IDLE_AT_MOST_PCT
from gpudeck.pool.connection import PoolConnection
from gpudeck.pool.messages import PoolShown, ShowPool
from gpudeck.settings import parser
from gpudeck.sizes import parse_size, sold_bytes

from ..actions.ceiling import foreign_pids
from ..backends import backend_named
from ..settings import ConnectionSettings, read_reach, this_host
from ..telemetry import status_table as show
from .action_settings import TABLE
from .local_reading import read_once
from .nodes import node_id_of
from .pool_request import number

POOL_WITHIN_S = 2.0


def free(argv: Sequence[str]) -> int:
    asked = _parser().parse_args(list(argv))
    reach = read_reach("free", TABLE, asked, os.environ)
    if reach.hub is None and asked.node is not None:
        raise CommandError("--node needs --hub; without --hub it is this machine",
                           ExitCode.USAGE)
    gpus = _of_hub(reach, asked.node) if reach.hub is not None else _here(reach)
    found = [gpu for gpu in gpus if _fits(gpu, asked.memory, asked.model)]
    wanted = 1 if asked.count is None else asked.count
    if len(found) < wanted:
        raise CommandError(f"{len(found)} of {len(gpus)} GPUs are free"
                           f"{' that fit' if asked.memory or asked.model else ''}, and {wanted} "
                           f"{'is' if wanted == 1 else 'are'} wanted")
    found = found[:asked.count]
    if reach.json:
        print(json.dumps({"items": [{key: gpu[key] for key in ("uuid", "host", "place", "name")}
                                    for gpu in found], "next": None}))
    else:
        print(",".join(_uuid(gpu) if asked.uuid else gpu["place"] for gpu in found))
    return ExitCode.OK


def _uuid(gpu: show.Item) -> str:
    """As CUDA knows it: where its hub is only viewed, the name of the site stands before it."""
    uuid = str(gpu["uuid"])
    return uuid.partition(":")[2] if gpu.get("link") else uuid


def _parser() -> ArgumentParser:
    made = parser("free", TABLE, "Free GPUs, comma-separated: CUDA_VISIBLE_DEVICES=$(gpudeck free "
                                 "--count 2). This reserves nothing; use `gpudeck claim` for "
                                 "that. Exit code 1: there are too few.")
    made.add_argument("--count", metavar="N", type=number(1, 1_024),
                      help="exactly this many, or none; default: all that are free")
    made.add_argument("--uuid", action="store_true", help="UUIDs instead of indices")
    made.add_argument("--memory", "--mem", metavar="SIZE", type=parsed(parse_size),
                      help="only boards with at least this much memory, such as 40G")
    made.add_argument("--model", metavar="NAME", default="",
                      help="only of this model: words of its name, such as h100")
    made.add_argument("--node", metavar="NODE", help="with --hub: of this node, by name or id")
    return made


def _fits(gpu: show.Item, memory: int | None, model: str) -> bool:
    total = gpu["facts"].get("mem_total_bytes")
    return gpu["is_free"] and model.lower() in str(gpu["name"]).lower() and (
        memory is None or (total is not None and total >= sold_bytes(memory)))


def _here(reach: ConnectionSettings) -> list[show.Item]:
    if unseen := foreign_pids(backend_named(reach.backend), reach.ceiling):
        raise CommandError(f"no GPU is known to be free: {unseen}")
    reading, processes = read_once(reach, readings=1, lists=1)
    gpus = show.gpu_items(reading, this_host())
    return _marked([{**gpu, "host": this_host()} for gpu in gpus],
                   {each.gpu_uuid for each in processes}, _given_out())


def _given_out() -> Collection[str]:
    """Leased, or not given out for a reason of the pool; none where there is no pool."""
    try:
        pool = PoolConnection(os.environ)
    except CommandError:
        return ()
    try:
        pool.send(ShowPool())
        shown = pool.receive(POOL_WITHIN_S)
    finally:
        pool.close()
    if not isinstance(shown, PoolShown):
        raise CommandError("no GPU is known to be free: the agent does not say which are leased")
    return {uuid for each in shown.held for uuid in each.uuids} | {
        each.uuid for each in shown.unavailable}


def _of_hub(reach: ConnectionSettings, node: str | None) -> list[show.Item]:
    if node is None:
        raise CommandError("name the node with --node: indices are of one node", ExitCode.USAGE)
    client = reach.client()
    node_id = node_id_of(client, node)
    gpus = client.gpus(node_id=node_id)
    answers = {gpu["uuid"] for gpu in client.gpus("state:free", node_id=node_id)}
    leased = {uuid for lease in client.hub.all("leases") for uuid in lease["gpus"]}
    trouble = {gpu["uuid"] for each in client.hub.all("pool/nodes") for gpu in each["gpus"]
               if gpu["trouble"]}
    return _marked(gpus, {gpu["uuid"] for gpu in gpus} - answers, leased | trouble)


def _marked(gpus: Sequence[show.Item], used: Collection[str], given_out: Collection[str]
            ) -> list[show.Item]:
    """Whether each is free. A board that is split by MIG is none to give out: its parts are."""
    split = {gpu["facts"].get("parent_uuid") for gpu in gpus}
    return [{**gpu, "is_free": gpu["state"] == "ok" and gpu["uuid"] not in used
             and gpu["uuid"] not in given_out
             and _is_quiet(gpu["values"], gpu["facts"].get("parent_uuid") is not None)}
            for gpu in gpus if gpu["uuid"] not in split]


def _is_quiet(values: show.Item, is_part: bool) -> bool:
    """Of what no list of processes shows, such as a task in another container. The driver knows no
    utilization of a part of a board."""
    util, used = values.get("util_pct"), values.get("mem_used_bytes")
    if used is None or used >= HELD_AT_LEAST_BYTES:
        return False
    return is_part if util is None else util <= IDLE_AT_MOST_PCT
