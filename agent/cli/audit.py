"""`gpudeck audit tail|verify|export`: the audit log in a hub's folder, in a node's, or through a
hub."""

import argparse
import json
import os
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpudeck.audit.chain import AuditChainLink
from gpudeck.audit.file import AuditFile
from gpudeck.audit.words import actor_of, content, outcome_of, sentence_of, word
from gpudeck.cli.command_parser import CommandParser
from gpudeck.client.hub import Client, add_hub_flags
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.printable import printable
from gpudeck.service.installed import state_here
from gpudeck.settings import folder, state_folder

FOLLOW_EVERY_S = 0.5
PAGE = 1_000
Item = dict[str, Any]


def audit(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> int:
    args = _parser(env).parse_args(list(argv))
    if args.data is not None and args.verb != "verify":
        args.hub = None
    verb = {"tail": _tail, "verify": _verify, "export": _export}[args.verb]
    return verb(args)


# -- tail


def _tail(args: argparse.Namespace) -> int:
    last: int | None = None
    while True:
        for item in (_through_hub(args, last) if args.hub else _here(args, last)):
            last = item["seq"]
            print(json.dumps(item) if args.json else line_of(item), flush=True)
        if not args.follow:
            return ExitCode.OK
        time.sleep(FOLLOW_EVERY_S)
        last = last or 0


def _here(args: argparse.Namespace, last: int | None) -> deque[Item]:
    """Return the records to show. `last`: the last that was shown; None: none yet, and the newest
    are wanted."""
    with _open_file(args) as file:
        node, filters = _node(args, file), _filters(args, file)
        most = args.number if last is None else None
        if last is None:
            last = 0 if filters else max(0, file.last_seq(node) - args.number)
        return deque((item for item in map(item_of, file.links(node, last))
                      if all(item[name] == value for name, value in filters.items())), most)


def _filters(args: argparse.Namespace, file: AuditFile | None = None) -> dict[str, str]:
    """Return the filters that were given, without the node's in its own chain: every record there
    is about it."""
    node = args.on if file is None or file.is_hub else None
    values = {"kind": args.kind, "actor": args.actor, "node": node, "task_id": args.task}
    return {name: value for name, value in values.items() if value is not None}


def item_of(link: AuditChainLink) -> Item:
    """Return a record as an item, with the names of the REST interface."""
    body = content(link)
    if body is None:
        return dict.fromkeys(("at", "actor", "action", "node", "host", "task_id", "outcome")) | {
            "seq": link.seq, "kind": "unreadable", "sentence": "this record was altered and cannot "
            "be read", "hash": link.hash}
    at = body.get("at")
    return {"seq": link.seq, "at": at if isinstance(at, int | float) else None,
            "kind": word(body, "kind") or "act", "actor": actor_of(body),
            "action": word(body, "action"), "node": word(body, "node"),
            "host": word(body, "host"), "task_id": word(body, "task_id"),
            "outcome": outcome_of(body), "sentence": sentence_of(body), "hash": link.hash}


def _through_hub(args: argparse.Namespace, last: int | None) -> list[Item]:
    """Return the records to show. Pages begin with the newest."""
    client = Client.from_flags(args)
    query = {("task" if name == "task_id" else name): value
             for name, value in _filters(args).items()}
    items: list[Item] = []
    if last is None:
        items = client.audit(limit=str(min(args.number, PAGE)), **query)["items"]
        return items[::-1]
    while True:
        page = client.audit(limit="100", **query)
        items += [item for item in page["items"] if item["seq"] > last]
        if page["next"] is None or not page["items"] or page["items"][-1]["seq"] <= last:
            return items[::-1]
        query["cursor"] = str(page["next"])


def line_of(item: Item) -> str:
    at = item["at"]
    stamp = "-" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    place = " ".join(_clean(item[name]) for name in ("host", "task_id") if item[name])
    cells = (str(item["seq"]).rjust(6), stamp, _clean(item["kind"]).ljust(9),
             _clean(item["outcome"] or "-").ljust(10), _clean(item["actor"] or "-").ljust(12))
    return "  ".join((*cells, _clean(item["sentence"]) + (f"  [{place}]" if place else "")))


def _clean(text: str) -> str:
    """Names come from nodes and failed sign-ins: nothing of them may control a terminal."""
    return printable(text, "?")


# -- verify and export


def _verify(args: argparse.Namespace) -> int:
    """Exit code 1 where a chain is broken."""
    is_hubs = args.hub and args.data is None
    verdicts = [Client.from_flags(args).audit_verdict()] if is_hubs else _verdicts(args)
    if args.json:
        print(json.dumps(verdicts[0] if len(verdicts) == 1 else {"items": verdicts}))
    else:
        for verdict in verdicts:
            print(_words(verdict))
    broken = any(verdict["broken"] or any(node["broken"] for node in verdict["nodes"])
                 for verdict in verdicts)
    return ExitCode.FAILED if broken else ExitCode.OK


def _verdicts(args: argparse.Namespace) -> list[Item]:
    """Verify the chains that are stored here; with a hub, also against the heads that it has of
    them."""
    hub_heads = {} if not args.hub else {
        node["node"]: {node["audit_seq"]: node["audit_head"]}
        for node in Client.from_flags(args).audit_verdict()["nodes"]}
    verdicts: list[Item] = []
    with _open_file(args) as file:
        for node in file.nodes:
            anchors = hub_heads.get(args.on or node, {})
            records, head, broken = file.verify(node, args.copy, anchors)
            verdicts.append({"records": records, "head": head, "node": node or args.on,
                             "broken": None if broken is None else {
                                 "seq": broken.seq, "sentence": broken.sentence}, "nodes": []})
    return verdicts


def _words(verdict: Item) -> str:
    whose = f"{verdict['node']}: " if verdict.get("node") else ""
    nodes = [f"\n{node['host'] or node['node']}: BROKEN: {node['broken']}"
             for node in verdict["nodes"] if node["broken"]]
    broken = verdict["broken"]
    if broken is not None:
        return f"{whose}BROKEN at record {broken['seq']}: {broken['sentence']}" + "".join(nodes)
    head = f", head {verdict['head'][:16]}…" if verdict["head"] else ""
    return f"{whose}{verdict['records']} records hold{head}" + "".join(nodes)


def _export(args: argparse.Namespace) -> int:
    out = sys.stdout.buffer
    if args.hub:
        for line in Client.from_flags(args).audit_lines():
            out.write(line)
    else:
        with _open_file(args) as file:
            for link in file.links(_node(args, file)):
                out.write(json.dumps({"seq": link.seq, "body": link.body, "hash": link.hash},
                                     ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    out.flush()
    return ExitCode.OK


# -- where


def _open_file(args: argparse.Namespace) -> closing[AuditFile]:
    return closing(AuditFile(args.data or default_folder()))


def default_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return the hub's folder where there is one, else the agent's."""
    agents, hubs = state_here("agent", env), state_here("hub", env)
    own = state_folder("agent", env)
    if os.geteuid() != 0 and (own / "acts.db").exists():  # of what this user did here
        agents = own
    raw = env.get("GPUDECK_DATA")
    if raw:
        return folder(raw)
    return hubs if os.path.exists(hubs / "state.db") else agents


def _node(args: argparse.Namespace, file: AuditFile) -> str:
    """Return the node whose chain is meant: a simulator keeps the chains of many nodes in one
    file."""
    if len(file.nodes) == 1:
        return file.nodes[0]
    if args.on in file.nodes:
        return str(args.on)
    raise CommandError(f"{len(file.nodes)} nodes have their audit here; name one with --node, such "
                       f"as {file.nodes[0]}", ExitCode.USAGE)


def _parser(env: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = CommandParser(prog="gpudeck audit",
                           description="The audit log of all actions and attempts.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    tail = _verb(verbs, "tail", "the newest records", env)
    tail.add_argument("-n", "--number", type=_number, default=20, help="how many; default: 20")
    tail.add_argument("-f", "--follow", action="store_true", help="and those to come")
    for name, text in (("kind", "of this kind, such as command, hold or sign_in"),
                       ("actor", "only by this actor"), ("task", "for this task")):
        tail.add_argument(f"--{name}", metavar=name.upper(), help=text)
    verify = _verb(verbs, "verify", "check that no record was altered; exit code 1 if one was", env)
    verify.add_argument("--copy", type=folder, metavar="FILE",
                        help="compare with this copy, or an earlier export")
    _verb(verbs, "export", "all of them, one JSON object per line", env)
    return parser


def _verb(verbs: Any, name: str, text: str, env: Mapping[str, str]) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text,
                                                     allow_abbrev=False)
    verb.add_argument("--data", type=folder, metavar="DIR", default=None,
                      help="folder of a hub or an agent; default: the hub's, or else the agent's, "
                           "of this user or of the service that is installed here")
    add_hub_flags(verb, env, "ask this hub")
    verb.add_argument("--node", dest="on", metavar="ID", help="of this node")
    verb.add_argument("--json", action="store_true", help="as JSON")
    verb.set_defaults(copy=None)
    return verb


def _number(raw: str) -> int:
    if not raw.isascii() or not raw.isdigit() or not 1 <= int(raw) <= 100_000:
        raise argparse.ArgumentTypeError("a whole number from 1 to 100000")
    return int(raw)
