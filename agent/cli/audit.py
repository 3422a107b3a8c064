"""`gpudeck audit tail|verify|export`: of a hub's folder, of a node's, or through a hub."""

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

from gpudeck.audit_chain import AuditChainLink
from gpudeck.audit_file import AuditFile
from gpudeck.audit_words import actor_of, content, outcome_of, sentence_of, word
from gpudeck.client import Client, add_hub_flags
from gpudeck.command_parser import CommandParser
from gpudeck.errors import CommandError, ExitCode
from gpudeck.service.installed import state_here
from gpudeck.settings import folder

FOLLOW_EVERY_S = 0.5
PAGE = 1_000
Item = dict[str, Any]


def audit(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> int:
    asked = _parser(env).parse_args(list(argv))
    if asked.data is not None and asked.verb != "verify":
        asked.hub = None
    verb = {"tail": _tail, "verify": _verify, "export": _export}[asked.verb]
    return verb(asked)


# -- tail


def _tail(asked: argparse.Namespace) -> int:
    last: int | None = None
    while True:
        for item in (_through_hub(asked, last) if asked.hub else _here(asked, last)):
            last = item["seq"]
            print(json.dumps(item) if asked.json else line_of(item), flush=True)
        if not asked.follow:
            return ExitCode.OK
        time.sleep(FOLLOW_EVERY_S)
        last = last or 0


def _here(asked: argparse.Namespace, last: int | None) -> deque[Item]:
    """`last`: what was shown already; None: nothing, and the newest are wanted."""
    with _opened(asked) as file:
        node, filters = _node(asked, file), _filters(asked, file)
        most = asked.number if last is None else None
        if last is None:
            last = 0 if filters else max(0, file.last_seq(node) - asked.number)
        return deque((item for item in map(item_of, file.links(node, last))
                      if all(item[name] == value for name, value in filters.items())), most)


def _filters(asked: argparse.Namespace, file: AuditFile | None = None) -> dict[str, str]:
    """Of a node's own chain, every record is about that node."""
    node = asked.on if file is None or file.is_hub else None
    given = {"kind": asked.kind, "actor": asked.actor, "node": node, "task_id": asked.task}
    return {name: value for name, value in given.items() if value is not None}


def item_of(link: AuditChainLink) -> Item:
    """Named as the REST interface names them."""
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


def _through_hub(asked: argparse.Namespace, last: int | None) -> list[Item]:
    """Pages begin with the newest."""
    client = Client.asked(asked)
    query = {("task" if name == "task_id" else name): value
             for name, value in _filters(asked).items()}
    found: list[Item] = []
    if last is None:
        found = client.audit(limit=str(min(asked.number, PAGE)), **query)["items"]
        return found[::-1]
    while True:
        page = client.audit(limit="100", **query)
        found += [item for item in page["items"] if item["seq"] > last]
        if page["next"] is None or not page["items"] or page["items"][-1]["seq"] <= last:
            return found[::-1]
        query["cursor"] = str(page["next"])


def line_of(item: Item) -> str:
    at = item["at"]
    stamp = "-" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    place = " ".join(_clean(item[name]) for name in ("host", "task_id") if item[name])
    cells = (str(item["seq"]).rjust(6), stamp, _clean(item["kind"]).ljust(9),
             _clean(item["outcome"] or "-").ljust(10), _clean(item["actor"] or "-").ljust(12))
    return "  ".join((*cells, _clean(item["sentence"]) + (f"  [{place}]" if place else "")))


def _clean(text: str) -> str:
    """Names come from nodes and failed sign-ins: strip anything that could control a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


# -- verify and export


def _verify(asked: argparse.Namespace) -> int:
    """Exit code 1 where a record does not hold."""
    is_hubs = asked.hub and asked.data is None
    verdicts = [Client.asked(asked).audit_verdict()] if is_hubs else _verdicts(asked)
    if asked.json:
        print(json.dumps(verdicts[0] if len(verdicts) == 1 else {"items": verdicts}))
    else:
        for verdict in verdicts:
            print(_words(verdict))
    broken = any(each["broken"] or any(node["broken"] for node in each["nodes"])
                 for each in verdicts)
    return ExitCode.FAILED if broken else ExitCode.OK


def _verdicts(asked: argparse.Namespace) -> list[Item]:
    """Of what lies here; with a hub, also against the heads of this node that it keeps."""
    kept = {} if not asked.hub else {
        node["node"]: {node["audit_seq"]: node["audit_head"]}
        for node in Client.asked(asked).audit_verdict()["nodes"]}
    found: list[Item] = []
    with _opened(asked) as file:
        for node in file.nodes:
            anchors = kept.get(asked.on or node, {})
            records, head, broken = file.verify(node, asked.copy, anchors)
            found.append({"records": records, "head": head, "node": node or asked.on,
                          "broken": None if broken is None else {
                              "seq": broken.seq, "sentence": broken.sentence}, "nodes": []})
    return found


def _words(verdict: Item) -> str:
    whose = f"{verdict['node']}: " if verdict.get("node") else ""
    nodes = [f"\n{node['host'] or node['node']}: BROKEN: {node['broken']}"
             for node in verdict["nodes"] if node["broken"]]
    broken = verdict["broken"]
    if broken is not None:
        return f"{whose}BROKEN at record {broken['seq']}: {broken['sentence']}" + "".join(nodes)
    head = f", head {verdict['head'][:16]}…" if verdict["head"] else ""
    return f"{whose}{verdict['records']} records hold{head}" + "".join(nodes)


def _export(asked: argparse.Namespace) -> int:
    out = sys.stdout.buffer
    if asked.hub:
        for line in Client.asked(asked).audit_lines():
            out.write(line)
    else:
        with _opened(asked) as file:
            for link in file.links(_node(asked, file)):
                out.write(json.dumps({"seq": link.seq, "body": link.body, "hash": link.hash},
                                     ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    out.flush()
    return ExitCode.OK


# -- where


def _opened(asked: argparse.Namespace) -> closing[AuditFile]:
    return closing(AuditFile(asked.data or default_folder()))


def default_folder(env: Mapping[str, str] = os.environ) -> Path:
    """The hub's where there is one, else the agent's."""
    agents, hubs = state_here("agent", env), state_here("hub", env)
    given = env.get("GPUDECK_DATA")
    if given:
        return folder(given)
    return hubs if os.path.exists(hubs / "state.db") else agents


def _node(asked: argparse.Namespace, file: AuditFile) -> str:
    """A simulator keeps the chains of many nodes in one file."""
    if len(file.nodes) == 1:
        return file.nodes[0]
    if asked.on in file.nodes:
        return str(asked.on)
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
    made: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text,
                                                     allow_abbrev=False)
    made.add_argument("--data", type=folder, metavar="DIR", default=None,
                      help="folder of a hub or an agent; default: the hub's, or else the agent's, "
                           "of this user or of the service that is installed here")
    add_hub_flags(made, env, "ask this hub")
    made.add_argument("--node", dest="on", metavar="ID", help="of this node")
    made.add_argument("--json", action="store_true", help="as JSON")
    made.set_defaults(copy=None)
    return made


def _number(raw: str) -> int:
    if not raw.isascii() or not raw.isdigit() or not 1 <= int(raw) <= 100_000:
        raise argparse.ArgumentTypeError("a whole number from 1 to 100000")
    return int(raw)
