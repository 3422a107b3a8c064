"""`gpudeck mps tune`: what share of the threads new clients of MPS should get: live, or in a hub's
history."""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import count
from typing import Any

import msgspec

from gpudeck.client.hub import Client
from gpudeck.contract.limits import MpsDaemon, MpsPercent, action_of
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.times import moment_of
from gpudeck.words.actions import moment

from ..actions.standalone import StandaloneNode
from ..limits import autotune, mps_view
from ..limits.mps import LocalMpsDaemons
from ..settings import ConnectionSettings
from .setting_actions import do, node_id, pipes_of, validate

FIRST_CHECK_S = 5.0
EVERY_S = 30.0

Load = Callable[[float], float | None]
POLL_EVERY_S = 2.0


def tune_share(reach: ConnectionSettings, args: argparse.Namespace) -> int:
    _check(args)
    if args.rehearse:
        return _rehearse(reach, args)
    pipes = pipes_of(args, reach)
    if reach.hub is not None:
        client = reach.client()
        node = node_id(client, args.node)
        return _rounds(reach, args, lambda: _hub_daemon(client, node, pipes),
                       lambda within_s: _hub_load(client, node, within_s))
    with StandaloneNode(reach.data, reach.backend, reach.simulate, reach.ceiling) as local:
        return _rounds(reach, args, lambda: mps_view.view(LocalMpsDaemons().daemon(pipes)),
                       lambda within_s: _load(local, within_s))


def _check(args: argparse.Namespace) -> None:
    if args.apply and not (args.yes and args.reason):
        raise CommandError("to apply it, use --apply --yes --reason TEXT; without --apply "
                           "this is a dry run", ExitCode.USAGE)
    if args.apply and args.rehearse:
        raise CommandError("a rehearsal changes nothing: leave out --apply or --rehearse",
                           ExitCode.USAGE)
    if not 1 <= _every_s(args, EVERY_S) <= 3_600:
        raise CommandError("--every is from 1 to 3600 seconds", ExitCode.USAGE)


def _every_s(args: argparse.Namespace, usual_s: float) -> float:
    return usual_s if args.every is None else float(args.every)


# -- live


def _load(local: StandaloneNode, within_s: float) -> float | None:
    meter = autotune.MpsLoadMeter()
    for reading in local.readings(within_s):
        meter.observe(reading)
    return meter.take()


def _rounds(reach: ConnectionSettings, args: argparse.Namespace, daemon: Callable[[], MpsDaemon],
            load: Load) -> int:
    every_s, tuner = _every_s(args, EVERY_S), autotune.MpsTuner()
    for number in range(args.rounds) if args.rounds else count():
        load_pct = load(every_s if number else min(every_s, FIRST_CHECK_S))
        code = _once(reach, args, daemon(), load_pct, tuner)
        if code != ExitCode.OK:
            return code
    return ExitCode.OK


def _once(reach: ConnectionSettings, args: argparse.Namespace, daemon: MpsDaemon,
          load_pct: float | None, tuner: autotune.MpsTuner) -> int:
    """Check once. Each change is a separate action: the audit log is the record of what was
    done."""
    if not daemon.is_alive:
        raise CommandError(daemon.trouble)
    server = daemon.servers[0].pid if len(daemon.servers) == 1 else None
    now_pct = daemon.default_pct if server is None else daemon.servers[0].pct
    tune_input = autotune.TuneInput(len(daemon.clients), load_pct, now_pct)
    now = time.time()
    decision = tuner.decide(now, tune_input)
    step = autotune.TuneBacktestStep(now, tune_input, decision)
    print(json.dumps(_step_item(step, not args.apply)) if reach.json else
          f"{'' if args.apply else 'dry run: '}{decision.why}"
          + ("" if decision.pct is None else f": {decision.pct} %"), flush=True)
    if decision.pct is None or not args.apply:
        return ExitCode.OK
    setting = validate(MpsPercent(daemon.pipes, decision.pct, server))
    return do(reach, args, action_of(setting), None, setting)


def _step_item(step: autotune.TuneBacktestStep, is_dry: bool) -> dict[str, Any]:
    return {"at": step.at, **asdict(step.observed), **asdict(step.tune), "is_dry": is_dry}


# -- rehearsal


def _rehearse(reach: ConnectionSettings, args: argparse.Namespace) -> int:
    if reach.hub is None:
        raise CommandError("a rehearsal reads a hub's history: --rehearse --hub URL --node NODE",
                           ExitCode.USAGE)
    every_s = _every_s(args, autotune.MINUTE_S)
    if every_s % autotune.MINUTE_S:
        raise CommandError("a hub's history has whole minutes: --every is 60, 120, 180 … seconds "
                           "here",
                           ExitCode.USAGE)
    client = reach.client()
    now = time.time()
    node = node_id(client, args.node)
    start, end = moment_of(args.start, now), moment_of(args.end, now)
    if start >= end:
        raise CommandError("--start is before --end", ExitCode.USAGE)
    minutes = list(_minutes(client.mps_past(node, start, end)))
    steps = list(autotune.rehearse_minutes(minutes, every_s, args.begin_pct))
    unknown = sum(minute.clients is None for minute in minutes)
    if reach.json:
        print(json.dumps({"items": [_step_item(step, True) for step in steps],
                          "minutes": len(minutes), "unknown_minutes": unknown}))
    else:
        print("\n".join([*_lines(steps, args.begin_pct), *_notes(steps, len(minutes), unknown),
                         *(["nothing was changed; the load is recorded and does not react to "
                            "the shares"] if steps else [])]))
    return ExitCode.OK


def _notes(steps: list[autotune.TuneBacktestStep], minutes: int, unknown: int) -> Iterator[str]:
    if unknown:
        yield (f"of {minutes} minutes {unknown} are unknown: the node was not reporting, "
               "or history does not have its MPS clients yet. They are left out")
    if not steps:
        yield "that leaves nothing to check: choose another time with --start and --end"
    elif not any(step.observed.clients for step in steps):
        yield "there was no MPS client at that time"
    yield "history does not keep the shares of that time: starting with --from"


def _lines(steps: list[autotune.TuneBacktestStep], begin_pct: int) -> Iterator[str]:
    if not steps:
        return
    for step in steps:
        if step.tune.pct is not None:
            yield f"{moment(step.at)}  {step.tune.pct:>3} %  {step.tune.why}"
    shares = [begin_pct, *(step.tune.pct for step in steps if step.tune.pct is not None)]
    most = max(step.observed.clients for step in steps)
    yield (f"rehearsed: {len(steps)} looks, {len(shares) - 1} changes, from {begin_pct} % to "
           f"{shares[-1]} % (between {min(shares)} and {max(shares)} %), with up to {most} clients "
           "at a time")


# -- from a hub


def _hub_daemon(client: Client, node: str, pipes: str) -> MpsDaemon:
    daemons = msgspec.convert([daemon for item in client.mps(node) for daemon in item["daemons"]],
                              list[MpsDaemon])
    matches = [daemon for daemon in daemons if daemon.pipes == pipes]
    if not matches:
        raise CommandError(f"this node has no MPS control daemon in {pipes} any more")
    return matches[0]


def _hub_load(client: Client, node: str, within_s: float) -> float | None:
    """Return the load as an MpsLoadMeter has it. None: not known."""
    meter, until = autotune.MpsLoadMeter(), time.monotonic() + within_s
    while True:
        for gpu in client.gpus(metrics="util_pct", node_id=node):
            if gpu["state"] == "ok" and "util_pct" in gpu["values"]:
                meter.load(gpu["uuid"], gpu["values"]["util_pct"])
        left_s = until - time.monotonic()
        if left_s <= 0:
            break
        time.sleep(min(POLL_EVERY_S, left_s))
    mps_tasks = [task for task in client.tasks(node_id=node) if task["kind"] in autotune.OF_MPS]
    meter.listed(sum(task["kind"] == "mps_client" for task in mps_tasks),
                 (use["uuid"] for task in mps_tasks for use in task["gpus"]))
    return meter.take()


def _minutes(history: dict[str, Any]) -> Iterator[autotune.MpsMinute]:
    gpus = history["gpus"]
    for at, (t, clients) in enumerate(zip(history["t"], history["clients"], strict=True)):
        loads = {gpu["gpu"]: gpu["util_pct"][at] for gpu in gpus
                 if gpu["util_pct"][at] is not None}
        yield autotune.MpsMinute(t + autotune.MINUTE_S, clients, loads,
                                 frozenset(gpu["gpu"] for gpu in gpus if gpu["is_mps"][at]))
