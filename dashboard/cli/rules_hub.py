"""`gpudeck rules backtest|import|export`: rules of a running hub, over its REST API."""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator

import msgspec

from gpudeck.client.hub import Client, Item, add_hub_flags, tls_context
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.times import moment_of
from gpudeck.settings import folder, read_secret, state_folder
from gpudeck.words.actions import second_words
from gpudeck.words.quantities import plural

from ..alerts.core.measure import Measure, measure_of_rule
from ..alerts.core.rule import CompiledRule, read, version
from ..alerts.rules_file import RulesFile, dump
from . import access

ASK_EVERY_S = 0.3
SHOWN = 20


def backtest(args: argparse.Namespace, file: RulesFile) -> int:
    """Rehearse each rule of the file, one after the other."""
    now = time.time()
    client = client_of(args)
    start, end = moment_of(args.start, now), moment_of(args.end, now)
    if start >= end:
        raise CommandError("--start is before --end", ExitCode.USAGE)
    rules = [ready for rule_id, ready in file.rules.items()
             if args.rule is None or rule_id == args.rule]
    if not rules:
        raise CommandError(f"there is no rule {args.rule!r} in this file" if args.rule else
                           "there is no rule in this file")
    results = [_rehearse(client, ready, start, end) for ready in rules]
    if args.json:
        print(json.dumps(results, indent=2))
    else:
        for ready, result in zip(rules, results, strict=True):
            print(*rehearsal_lines(result, measure_of_rule(ready)), sep="\n")
    return ExitCode.OK if all(result["state"] == "done" for result in results) else ExitCode.FAILED


def _rehearse(client: Client, ready: CompiledRule, start: float, end: float) -> Item:
    """Rehearse a rule. One that cannot be rehearsed is reported as failed and does not stop the
    others."""
    rule = msgspec.to_builtins(ready.rule)
    try:
        rehearsal = client.rehearse(rule, start, end)
    except CommandError as error:
        if error.code != ExitCode.FAILED:
            raise
        return {"rule": rule, "state": "failed", "why": str(error)}
    while rehearsal["state"] == "running":
        time.sleep(ASK_EVERY_S)
        rehearsal = client.rehearsal(rehearsal["id"])
    return rehearsal


def rehearsal_lines(rehearsal: Item, measure: Measure) -> Iterator[str]:
    rule = rehearsal["rule"]["id"]
    if rehearsal["state"] != "done":
        yield f"{rule}: {rehearsal['why']}"
        return
    grain = {0: "by the minute, as live", 1: "by the second"}.get(
        rehearsal["off_by_s"], "by the minute, live up to a minute earlier or later")
    yield (f"{rule}: {plural(rehearsal['alerts_count'], 'alert')} of "
           f"{plural(rehearsal['targets'], 'target')}, "
           f"{second_words(rehearsal['start'])} to {second_words(rehearsal['end'])} UTC, {grain}; "
           f"{rehearsal['id']}")
    for alert in rehearsal["alerts"][:SHOWN]:
        over = "still so" if alert["ended_at"] is None else f"to {second_words(alert['ended_at'])}"
        value = "" if alert["value"] is None else f"  {measure.value_words(alert['value'])}"
        yield f"  {second_words(alert['fired_at'])} {over:>22}  {_target(alert)}{value}"
    if rehearsal["alerts_count"] > SHOWN:
        yield f"  and {rehearsal['alerts_count'] - SHOWN} more; --json has them"
    for victim in rehearsal["victims"][:SHOWN]:
        hours = "" if victim["gpu_hours"] is None else f", {victim['gpu_hours']:.1f} GPU-hours"
        yield (f"  {second_words(victim['at'])} would {victim['do']} {_target(victim)} of "
               f"{', '.join(victim['users']) or 'somebody'}{hours}")
    if rehearsal["victims_count"]:
        hours = "" if rehearsal["gpu_hours"] is None else (
            f", {rehearsal['gpu_hours']:.1f} GPU-hours lost")
        yield f"  {rehearsal['victims_count']} would have been reached{hours}"
    for refusal in rehearsal["refused"][:SHOWN]:
        yield (f"  {second_words(refusal['at'])} {refusal['do']} {_target(refusal)} of "
               f"{', '.join(refusal['users']) or 'somebody'} would be refused: {refusal['why']}")
    if rehearsal["refused_count"] > SHOWN:
        yield f"  {rehearsal['refused_count']} would be refused; --json has them"


def findings_of_hub(args: argparse.Namespace) -> Callable[[CompiledRule], tuple[list[str], str]]:
    """Return a check of rules by the hub's current view: the refused steps of a rule's ladder, and
    a warning if the rule would never fire."""
    client = Client.from_flags(args)

    def check(ready: CompiledRule) -> tuple[list[str], str]:
        findings = client.check_rule(msgspec.to_builtins(ready.rule))
        return [refusal["sentence"] for refusal in findings["refused"]], findings.get("warning", "")

    return check


def _target(item: Item) -> str:
    where = f"{item['host']} " if item["host"] else ""
    return f"{where}{'GPU ' + item['place'] if item.get('place') else item['target']}"


def import_rules(args: argparse.Namespace, file: RulesFile) -> int:
    """Import the rules of the file. Whatever mode the file gives, a new or changed rule only
    observes, and one with the same meaning keeps its mode, so that a nightly import does not reset
    it every day."""
    client = client_of(args)
    existing = {item["rule"]["id"]: read(item["rule"]) for item in client.rules()}
    outcomes = []
    for rule_id, ready in file.rules.items():
        before = existing.get(rule_id)
        rule = msgspec.structs.replace(ready.rule, mode="observe")
        if before is not None and version(before) == ready.version:
            rule = msgspec.structs.replace(rule, mode=before.mode, expires=before.expires)
        if before == rule:
            outcomes.append({"rule": rule_id, "what": "unchanged"})
            continue
        answer = client.put_rule(rule_id, msgspec.to_builtins(rule))
        outcomes.append({"rule": rule_id, "what": "changed" if rule_id in existing else "new",
                         "warning": answer.get("warning", "")})
    print(json.dumps(outcomes, indent=2) if args.json else "\n".join(
        f"{outcome['what']:9} {outcome['rule']}"
        + (f": {outcome['warning']}" if outcome.get("warning") else "")
        for outcome in outcomes))
    return ExitCode.OK


def export_rules(args: argparse.Namespace) -> int:
    rules = [read(item["rule"]) for item in client_of(args).rules()]
    print(dump(sorted(rules, key=lambda rule: rule.id)), end="")
    return ExitCode.OK


# -- the hub


def client_of(args: argparse.Namespace) -> Client:
    """Return a client of the hub; without --hub, of the one in this machine's folder."""
    if args.hub is None:
        data = args.data or state_folder("hub", os.environ)
        with access.open_state(data) as state:
            url = access.hub_url(state)
        return Client(url, read_secret(data / "api.token"), tls=tls_context(url, args.ca_file))
    return Client.from_flags(args)


def add_reach(parser: argparse.ArgumentParser) -> None:
    add_hub_flags(parser, os.environ, "the hub; default: the one on this machine")
    parser.add_argument("--data", type=folder, metavar="DIR", default=None,
                        help="without --hub: the hub's folder")

