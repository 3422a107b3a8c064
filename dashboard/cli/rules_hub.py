"""`gpudeck rules backtest|import|export`: rules of a hub that runs, over its REST."""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator

import msgspec

from gpudeck.client import Client, Item, add_hub_flags, tls_context
from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import folder, read_secret, state_folder
from gpudeck.times import moment_of

from ..alerts.core.rule import CompiledRule, read, version
from ..alerts.rules_file import RulesFile, dump
from . import access

ASK_EVERY_S = 0.3
SHOWN = 20


def backtest(asked: argparse.Namespace, found: RulesFile) -> int:
    """Each rule of the file, one after the other."""
    now = time.time()
    client = client_of(asked)
    start, end = moment_of(asked.start, now), moment_of(asked.end, now)
    if start >= end:
        raise CommandError("--start is before --end", ExitCode.USAGE)
    chosen = [ready for rule_id, ready in found.rules.items()
              if asked.rule is None or rule_id == asked.rule]
    if not chosen:
        raise CommandError(f"there is no rule {asked.rule!r} in this file" if asked.rule else
                           "there is no rule in this file")
    results = [_rehearsed(client, ready, start, end) for ready in chosen]
    if asked.json:
        print(json.dumps(results, indent=2))
    else:
        for result in results:
            print(*_lines(result), sep="\n")
    return ExitCode.OK if all(each["state"] == "done" for each in results) else ExitCode.FAILED


def _rehearsed(client: Client, ready: CompiledRule, start: float, end: float) -> Item:
    """One that cannot be rehearsed does not take the others with it."""
    rule = msgspec.to_builtins(ready.rule)
    try:
        told = client.rehearse(rule, start, end)
    except CommandError as error:
        if error.code != ExitCode.FAILED:
            raise
        return {"rule": rule, "state": "failed", "why": str(error)}
    while told["state"] == "running":
        time.sleep(ASK_EVERY_S)
        told = client.rehearsal(told["id"])
    return told


def _lines(told: Item) -> Iterator[str]:
    rule = told["rule"]["id"]
    if told["state"] != "done":
        yield f"{rule}: {told['why']}"
        return
    grain = {0: "by the minute, as live", 1: "by the second"}.get(
        told["off_by_s"], "by the minute, live up to a minute earlier or later")
    yield (f"{rule}: {told['alerts_count']} alerts of {told['targets']} targets, "
           f"{_clock(told['start'])} to {_clock(told['end'])} UTC, {grain}; {told['id']}")
    for alert in told["alerts"][:SHOWN]:
        over = "still so" if alert["ended_at"] is None else f"to {_clock(alert['ended_at'])}"
        value = "" if alert["value"] is None else f"  {alert['value']:g}"
        yield f"  {_clock(alert['fired_at'])} {over:>22}  {_who(alert)}{value}"
    if told["alerts_count"] > SHOWN:
        yield f"  and {told['alerts_count'] - SHOWN} more; --json has them"
    for victim in told["victims"][:SHOWN]:
        hours = "" if victim["gpu_hours"] is None else f", {victim['gpu_hours']:.1f} GPU-hours"
        yield (f"  {_clock(victim['at'])} would {victim['do']} {_who(victim)} of "
               f"{', '.join(victim['users']) or 'somebody'}{hours}")
    if told["victims_count"]:
        hours = "" if told["gpu_hours"] is None else f", {told['gpu_hours']:.1f} GPU-hours lost"
        yield f"  {told['victims_count']} would have been reached{hours}"
    for each in told["refused"][:SHOWN]:
        yield (f"  {_clock(each['at'])} {each['do']} {_who(each)} of "
               f"{', '.join(each['users']) or 'somebody'} would be refused: {each['why']}")
    if told["refused_count"] > SHOWN:
        yield f"  {told['refused_count']} would be refused; --json has them"


def findings_of_hub(asked: argparse.Namespace) -> Callable[[CompiledRule], tuple[list[str], str]]:
    """What of a rule's ladder could not be done, by what this hub sees now; and why it would never
    fire."""
    client = Client.asked(asked)

    def ask(ready: CompiledRule) -> tuple[list[str], str]:
        told = client.check_rule(msgspec.to_builtins(ready.rule))
        return [each["sentence"] for each in told["refused"]], told.get("warning", "")

    return ask


def _who(of: Item) -> str:
    where = f"{of['host']} " if of["host"] else ""
    return f"{where}{'GPU ' + of['place'] if of.get('place') else of['target']}"


def take_in(asked: argparse.Namespace, found: RulesFile) -> int:
    """Whatever the file says of modes: a rule that comes in only observes, and one that means what
    it meant keeps the mode it has, so that who imports each night is not a beginner each day."""
    client = client_of(asked)
    known = {item["rule"]["id"]: read(item["rule"]) for item in client.rules()}
    told = []
    for rule_id, ready in found.rules.items():
        before = known.get(rule_id)
        rule = msgspec.structs.replace(ready.rule, mode="observe")
        if before is not None and version(before) == ready.version:
            rule = msgspec.structs.replace(rule, mode=before.mode, expires=before.expires)
        if before == rule:
            told.append({"rule": rule_id, "what": "unchanged"})
            continue
        put = client.put_rule(rule_id, msgspec.to_builtins(rule))
        told.append({"rule": rule_id, "what": "changed" if rule_id in known else "new",
                     "warning": put.get("warning", "")})
    print(json.dumps(told, indent=2) if asked.json else "\n".join(
        f"{each['what']:9} {each['rule']}" + (f": {each['warning']}" if each.get("warning") else "")
        for each in told))
    return ExitCode.OK


def give_out(asked: argparse.Namespace) -> int:
    rules = [read(item["rule"]) for item in client_of(asked).rules()]
    print(dump(sorted(rules, key=lambda rule: rule.id)), end="")
    return ExitCode.OK


# -- which hub, and when


def client_of(asked: argparse.Namespace) -> Client:
    """Without --hub, the one of this machine's own folder."""
    if asked.hub is None:
        data = asked.data or state_folder("hub", os.environ)
        with access.open_state(data) as state:
            url = access.hub_url(state)
        return Client(url, read_secret(data / "api.token"), tls=tls_context(url, asked.ca_file))
    return Client.asked(asked)


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))


def add_reach(parser: argparse.ArgumentParser) -> None:
    add_hub_flags(parser, os.environ, "the hub; default: the one on this machine")
    parser.add_argument("--data", type=folder, metavar="DIR", default=None,
                        help="without --hub: the hub's folder")

