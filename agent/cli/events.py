"""`gpudeck events --hub URL`: what happened on the fleet, newest first."""

import json
import os
from collections.abc import Sequence

from gpudeck.client.hub import Item
from gpudeck.errors import CommandError, ExitCode
from gpudeck.measures.events import SEVERITIES
from gpudeck.settings import parser
from gpudeck.words.actions import moment, printable

from ..settings import CA_FILE, TOKEN_FILE, read_reach
from .action_settings import JSON, NEEDED_HUB
from .nodes import node_id_of

TABLE = (NEEDED_HUB, TOKEN_FILE, CA_FILE, JSON)
MOST = 1_000


def events(argv: Sequence[str]) -> int:
    flags = parser("events", TABLE,
                   "What happened to GPUs, drivers, nodes and tasks, newest first.")
    flags.add_argument("--node", metavar="NODE", help="of this node only: its id or host")
    flags.add_argument("--gpu", metavar="UUID", help="of this GPU only")
    flags.add_argument("--kind", metavar="KIND", help="of this kind only, such as xid")
    flags.add_argument("--severity", choices=SEVERITIES, help="these and worse")
    flags.add_argument("--limit", metavar="N", type=int, default=50, help="at most; default 50")
    args = flags.parse_args(list(argv))
    reach = read_reach("events", TABLE, args, os.environ)
    client = reach.client("events")
    if not 1 <= args.limit <= MOST:
        raise CommandError(f"--limit is from 1 to {MOST}", ExitCode.USAGE)
    query = {"gpu": args.gpu, "kind": args.kind, "severity": args.severity,
             "limit": str(args.limit),
             "node": None if args.node is None else node_id_of(client, args.node)}
    items = client.events(**{name: value for name, value in query.items() if value is not None})
    print(json.dumps({"items": items, "next": None}, indent=2) if reach.json
          else "\n".join(map(line, items)) or "no event")
    return ExitCode.OK


def line(item: Item) -> str:
    where = item["host"] if item["gpu"] is None else (
        f"{item['host']} GPU {item.get('place') or item['gpu']}")
    words = item["text"] or item["advice"]
    what = f"{item['label']}: {words}" if words else item["label"]
    return printable(f"{moment(item['at'])}  {item['severity']:<8}  {where}  {what}")
