"""`gpudeck quota`: how much an owner may hold, shown and set through a hub."""

import argparse
import math
import os
from collections.abc import Sequence
from typing import Any

from gpudeck.cli.command_parser import read_verb
from gpudeck.client.hub import Client, Item
from gpudeck.contract.quota import DEFAULT_LADDER, QUOTA_MODES
from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import parser
from gpudeck.words.actions import many, moment, printable

from ..settings import CA_FILE, TOKEN_FILE, ConnectionSettings, read_reach
from .action_settings import JSON, NEEDED_HUB
from .actions import answer

TABLE = (NEEDED_HUB, TOKEN_FILE, CA_FILE, JSON)
DOES = {"list": "List quotas, their usage, and on how many nodes they are in force.",
        "set": "Create or change a quota; omitted options stay unchanged.",
        "remove": "Remove a quota.",
        "check": "List owners that would exceed it now; changes nothing."}
FIELDS = ("subject", "scope", "gpus", "mem_bytes", "gpu_hours", "per", "max_age_s", "count",
          "priority", "mode", "because")
NONE = "none"


def quota(argv: Sequence[str]) -> int:
    if (choice := read_verb(argv, DOES, _overview())) is None:
        return ExitCode.OK
    verb, words = choice
    args = _parser(verb).parse_args(words)
    reach = read_reach(f"quota {verb}", TABLE, args, os.environ)
    client = reach.client("quotas")
    match verb:
        case "list":
            quotas = client.quotas()
            lines = [line for item in quotas for line in _lines(item)]
            return answer(reach, {"items": quotas}, *(lines or ["no quota is set"]))
        case "set":
            item = client.put_quota(args.id, _request(client, args))
            return answer(reach, item, *_lines(item))
        case "remove":
            client.remove_quota(args.id)
            return answer(reach, {"removed": args.id}, f"{printable(args.id)} limits nobody now")
        case _:
            return _check(reach, client, args)


def _overview() -> str:
    return "\n".join(["Choose what to do: gpudeck quota VERB --hub URL", "",
                      *(f"  {verb:7} {does}" for verb, does in DOES.items())])


def _parser(verb: str) -> argparse.ArgumentParser:
    flags = parser(f"quota {verb}", TABLE, DOES[verb])
    if verb == "list":
        return flags
    flags.add_argument("id", metavar="ID", help="of the quota: small letters, digits and dashes")
    if verb == "remove":
        return flags
    for name, kind, text in (
        ("subject", "WHO", "user:NAME, group:NAME, container:NAME, slurm:JOB, k8s:NAMESPACE, or * "
                           "for everyone"),
        ("scope", "WHERE", "fleet, group:NAME, node:NAME or gpu:UUID"),
        ("gpus", "N", "maximum number of GPUs; 'none' removes a limit"),
        ("mem", "SIZE", "maximum memory, such as 40GiB"),
        ("gpu-hours", "N", "maximum GPU-hours per --per"),
        ("max-age", "SPAN", "maximum age of a task, such as 12h"),
        ("priority", "0-4", "of its tasks: 4 goes first"),
        ("because", "TEXT", "why; shown to the owners"),
    ):
        flags.add_argument(f"--{name}", metavar=kind, help=text)
    for name, text in (("tell-again-after", "time after the first notification, such as 10m"),
                       ("end-after", "time after the second notification; only where it acts")):
        flags.add_argument(f"--{name}", metavar="SPAN", help=text)
    flags.add_argument("--per", choices=("day", "week"))
    flags.add_argument("--count", choices=("each", "together"),
                       help="per owner, or all of them together")
    flags.add_argument("--mode", choices=QUOTA_MODES,
                       help="observe only shows it, warn notifies the owner, act also ends tasks")
    return flags


def _fields(args: argparse.Namespace) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "subject": args.subject, "scope": args.scope, "gpus": _number("gpus", args.gpus),
        "mem_bytes": args.mem, "gpu_hours": _number("gpu-hours", args.gpu_hours, float),
        "max_age_s": args.max_age, "priority": _number("priority", args.priority),
        "because": args.because, "per": args.per, "count": args.count, "mode": args.mode}
    return {name: None if value == NONE else value for name, value in fields.items()
            if value is not None}


def _number(flag: str, word: str | None, kind: type[int] | type[float] = int) -> Any:
    if word is None or word == NONE:
        return word
    try:
        number = kind(word)
        if not math.isfinite(number):
            raise ValueError
        return number
    except (ValueError, OverflowError):
        raise CommandError(f"--{flag} {word!r} is not a number; give one, or 'none'", ExitCode.USAGE
                           ) from None


def _request(client: Client, args: argparse.Namespace) -> dict[str, Any]:
    """Return the quota to send: what is there already, changed by what was given."""
    existing = client.quota(args.id)
    before = {} if existing is None else {name: existing["quota"][name]
                                          for name in (*FIELDS, "ladder")}
    body = before | _fields(args)
    if args.tell_again_after or args.end_after:
        body["ladder"] = _ladder(before.get("ladder"), args)
    if "subject" not in body:
        raise CommandError(f"{printable(args.id)} is new: give its subject with --subject",
                           ExitCode.USAGE)
    return body


def _ladder(before: list[Item] | None, args: argparse.Namespace) -> list[Item]:
    """Return the default ladder with the times given: notify, notify again, end. Raises
    CommandError where the ladder was customised."""
    again_s, end_s = (rung.after_s for rung in DEFAULT_LADDER[1:])
    if before is not None:
        if [step["do"] for step in before] != [rung.do for rung in DEFAULT_LADDER]:
            raise CommandError(f"{printable(args.id)} has a custom ladder; change it by REST",
                               ExitCode.USAGE)
        again_s, end_s = before[1]["after_s"], before[2]["after_s"]
    return [{"do": "tell"}, {"do": "tell", "after_s": args.tell_again_after or again_s},
            {"do": "end", "after_s": args.end_after or end_s}]


def _check(reach: ConnectionSettings, client: Client, args: argparse.Namespace) -> int:
    report = client.check_quota(_request(client, args) | {"id": args.id})
    problems = [f"{printable(problem['field'])}: {printable(problem['message'])}"
                for problem in report["problems"]]
    if problems:
        answer(reach, report, *problems)
        return ExitCode.FAILED
    lines = [f"{printable(report['meaning'])}",
             *(f"  over: {printable(holder['sentence'])}" for holder in report["over"])]
    if not report["nodes"]:
        lines.append("  no node matches --scope")
    elif not report["over"]:
        lines.append(f"  nobody of {report['holders']} would exceed it now")
    return answer(reach, report, *lines)


def _lines(item: Item) -> list[str]:
    quota = item["quota"]
    lines = [
        f"{printable(quota['id'])}  [{quota['mode']}]  {printable(item['meaning'])}",
        f"  wanted on {many(item['wanted'], 'node')}, applied on {item['applied']}, in force on "
        f"{item['in_force']}; by {printable(item['by'])} on {moment(item['set_at'])}"]
    return lines + [f"  {'OVER  ' if balance['is_over'] else ''}{printable(balance['sentence'])}"
                    for balance in item["balances"]]
