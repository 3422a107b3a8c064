"""`gpudeck quota`: how much an owner may hold, asked and set through a hub."""

import argparse
import math
import os
from collections.abc import Sequence
from typing import Any

from gpudeck.action_words import moment, printable
from gpudeck.client import Client, Item
from gpudeck.command_parser import read_verb
from gpudeck.errors import CommandError, ExitCode
from gpudeck.quota import DEFAULT_LADDER, QUOTA_MODES
from gpudeck.settings import parser

from ..settings import CA_FILE, TOKEN_FILE, ConnectionSettings, read_reach
from .action_settings import JSON, NEEDED_HUB
from .actions import answer

TABLE = (NEEDED_HUB, TOKEN_FILE, CA_FILE, JSON)
DOES = {"list": "List quotas, their usage, and on how many nodes they are in force.",
        "set": "Create or change a quota; omitted options stay unchanged.",
        "remove": "Remove a quota.",
        "check": "List owners that would exceed it now; changes nothing."}
FIELDS = ("subject", "scope", "gpus", "mem_bytes", "gpu_hours", "per", "max_age_s", "count",
          "priority", "mode", "offline", "because")
NONE = "none"


def quota(argv: Sequence[str]) -> int:
    if (given := read_verb(argv, DOES, _overview())) is None:
        return ExitCode.OK
    verb, words = given
    asked = _parser(verb).parse_args(words)
    reach = read_reach(f"quota {verb}", TABLE, asked, os.environ)
    client = reach.client("quotas")
    match verb:
        case "list":
            found = client.quotas()
            lines = [line for each in found for line in _lines(each)]
            return answer(reach, {"items": found}, *(lines or ["no quota is set"]))
        case "set":
            made = client.put_quota(asked.id, _whole(client, asked))
            return answer(reach, made, *_lines(made))
        case "remove":
            client.remove_quota(asked.id)
            return answer(reach, {"removed": asked.id}, f"{printable(asked.id)} limits nobody now")
        case _:
            return _check(reach, client, asked)


def _overview() -> str:
    return "\n".join(["Choose what to do: gpudeck quota VERB --hub URL", "",
                      *(f"  {verb:7} {does}" for verb, does in DOES.items())])


def _parser(verb: str) -> argparse.ArgumentParser:
    made = parser(f"quota {verb}", TABLE, DOES[verb])
    if verb == "list":
        return made
    made.add_argument("id", metavar="ID", help="of the quota: small letters, digits and dashes")
    if verb == "remove":
        return made
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
        made.add_argument(f"--{name}", metavar=kind, help=text)
    for name, text in (("tell-again-after", "time after the first notification, such as 10m"),
                       ("end-after", "time after the second notification; only where it acts")):
        made.add_argument(f"--{name}", metavar="SPAN", help=text)
    made.add_argument("--per", choices=("day", "week"))
    made.add_argument("--count", choices=("each", "together"),
                      help="per owner, or all of them together")
    made.add_argument("--mode", choices=QUOTA_MODES,
                      help="observe only shows it, warn notifies the owner, act also ends tasks")
    made.add_argument("--offline", choices=("wait", "allow"),
                      help="whether a node may end tasks while the hub is unreachable")
    return made


def _given(asked: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {
        "subject": asked.subject, "scope": asked.scope, "gpus": _number("gpus", asked.gpus),
        "mem_bytes": asked.mem, "gpu_hours": _number("gpu-hours", asked.gpu_hours, float),
        "max_age_s": asked.max_age, "priority": _number("priority", asked.priority),
        "because": asked.because, "per": asked.per, "count": asked.count, "mode": asked.mode,
        "offline": asked.offline}
    return {name: None if value == NONE else value for name, value in found.items()
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


def _whole(client: Client, asked: argparse.Namespace) -> dict[str, Any]:
    """What is there already, with what was given."""
    known = client.quota(asked.id)
    before = {} if known is None else {name: known["quota"][name]
                                       for name in (*FIELDS, "ladder")}
    found = before | _given(asked)
    if asked.tell_again_after or asked.end_after:
        found["ladder"] = _ladder(before.get("ladder"), asked)
    if "subject" not in found:
        raise CommandError(f"{printable(asked.id)} is new: give its subject with --subject",
                           ExitCode.USAGE)
    return found


def _ladder(before: list[Item] | None, asked: argparse.Namespace) -> list[Item]:
    """The default ladder: notify, notify again, end. None where the ladder was customised."""
    again_s, end_s = (rung.after_s for rung in DEFAULT_LADDER[1:])
    if before is not None:
        if [step["do"] for step in before] != [rung.do for rung in DEFAULT_LADDER]:
            raise CommandError(f"{printable(asked.id)} has a custom ladder; change it by REST",
                               ExitCode.USAGE)
        again_s, end_s = before[1]["after_s"], before[2]["after_s"]
    return [{"do": "tell"}, {"do": "tell", "after_s": asked.tell_again_after or again_s},
            {"do": "end", "after_s": asked.end_after or end_s}]


def _check(reach: ConnectionSettings, client: Client, asked: argparse.Namespace) -> int:
    found = client.check_quota(_whole(client, asked) | {"id": asked.id})
    problems = [f"{printable(each['field'])}: {printable(each['message'])}"
                for each in found["problems"]]
    if problems:
        answer(reach, found, *problems)
        return ExitCode.FAILED
    lines = [f"{printable(found['meaning'])}",
             *(f"  over: {printable(each['sentence'])}" for each in found["over"])]
    if not found["nodes"]:
        lines.append("  no node matches --scope")
    elif not found["over"]:
        lines.append(f"  nobody of {found['holders']} would exceed it now")
    return answer(reach, found, *lines)


def _lines(item: Item) -> list[str]:
    quota = item["quota"]
    lines = [
        f"{printable(quota['id'])}  [{quota['mode']}]  {printable(item['meaning'])}",
        f"  wanted on {item['wanted']} nodes, applied on {item['applied']}, in force on "
        f"{item['in_force']}; by {printable(item['by'])} on {moment(item['set_at'])}"]
    return lines + [f"  {'OVER  ' if each['is_over'] else ''}{printable(each['sentence'])}"
                    for each in item["balances"]]
