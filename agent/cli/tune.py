"""`gpudeck mps tune`: what share of the threads new clients of MPS should get: live, in a
recording, or in what a hub keeps."""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.action_words import moment
from gpudeck.client import Client
from gpudeck.errors import CommandError, ExitCode
from gpudeck.limits import MpsDaemon, MpsPercent, action_of
from gpudeck.times import moment_of

from ..actions.standalone import StandaloneNode
from ..backends import ReaderUnavailableError
from ..backends.recorded import readings
from ..limits import autotune, mps_view
from ..limits.mps import LocalMpsDaemons
from ..settings import ConnectionSettings
from .setting_actions import checked, do, node_id, pipes_of

FIRST_LOOK_S = 5.0
EVERY_S = 30.0
FROM_HUB = Path()  # `--rehearse` without a file

Load = Callable[[float], float | None]
LOOK_EVERY_S = 2.0


def tune_share(reach: ConnectionSettings, asked: argparse.Namespace) -> int:
    _check(asked)
    if asked.rehearse is not None:
        return _rehearse(reach, asked)
    pipes = pipes_of(asked, reach)
    if reach.hub is not None:
        client = reach.client()
        node = node_id(client, asked.node)
        return _rounds(reach, asked, lambda: _hub_daemon(client, node, pipes),
                       lambda within_s: _hub_load(client, node, within_s))
    with StandaloneNode(reach.data, reach.backend, reach.simulate, reach.ceiling) as local:
        return _rounds(reach, asked, lambda: mps_view.view(LocalMpsDaemons().daemon(pipes)),
                       lambda within_s: _load(local, within_s))


def _check(asked: argparse.Namespace) -> None:
    if asked.apply and not (asked.yes and asked.reason):
        raise CommandError("to apply it, use --apply --yes --reason TEXT; without --apply "
                           "this is a dry run", ExitCode.USAGE)
    if asked.apply and asked.rehearse is not None:
        raise CommandError("a rehearsal changes nothing: leave out --apply or --rehearse",
                           ExitCode.USAGE)
    if not 1 <= _every_s(asked, EVERY_S) <= 3_600:
        raise CommandError("--every is from 1 to 3600 seconds", ExitCode.USAGE)


def _every_s(asked: argparse.Namespace, usual_s: float) -> float:
    return usual_s if asked.every is None else float(asked.every)


# -- live


def _load(local: StandaloneNode, within_s: float) -> float | None:
    watch = autotune.MpsLoadMeter()
    for reading in local.readings(within_s):
        watch.observe(reading)
    return watch.take()


def _rounds(reach: ConnectionSettings, asked: argparse.Namespace, daemon: Callable[[], MpsDaemon],
            load: Load) -> int:
    every_s, tuner = _every_s(asked, EVERY_S), autotune.MpsTuner()
    for number in range(asked.rounds) if asked.rounds else count():
        load_pct = load(every_s if number else min(every_s, FIRST_LOOK_S))
        code = _once(reach, asked, daemon(), load_pct, tuner)
        if code != ExitCode.OK:
            return code
    return ExitCode.OK


def _once(reach: ConnectionSettings, asked: argparse.Namespace, seen: MpsDaemon,
          load_pct: float | None, tuner: autotune.MpsTuner) -> int:
    """Each change is an action of its own: the Audit is the record of what was done."""
    if not seen.is_alive:
        raise CommandError(seen.trouble)
    server = seen.servers[0].pid if len(seen.servers) == 1 else None
    now_pct = seen.default_pct if server is None else seen.servers[0].pct
    looked = autotune.TuneInput(len(seen.clients), load_pct, now_pct)
    now = time.time()
    found = tuner.decide(now, looked)
    look = autotune.TuneBacktestStep(now, looked, found)
    print(json.dumps(_told(look, not asked.apply)) if reach.json else
          f"{'' if asked.apply else 'dry run: '}{found.why}"
          + ("" if found.pct is None else f": {found.pct} %"), flush=True)
    if found.pct is None or not asked.apply:
        return ExitCode.OK
    setting = checked(MpsPercent(seen.pipes, found.pct, server))
    return do(reach, asked, action_of(setting), None, setting)


def _told(look: autotune.TuneBacktestStep, is_dry: bool) -> dict[str, Any]:
    return {"at": look.at, **asdict(look.observed), **asdict(look.tune), "is_dry": is_dry}


# -- rehearsal


def _rehearse(reach: ConnectionSettings, asked: argparse.Namespace) -> int:
    if asked.rehearse == FROM_HUB:
        return _rehearse_hub(reach, asked)
    try:
        looks = list(autotune.rehearse(readings(asked.rehearse), _every_s(asked, EVERY_S),
                                       asked.begin_pct))
    except ReaderUnavailableError as why:
        raise CommandError(why.detail, ExitCode.USAGE) from why
    _tell(reach, looks, asked.begin_pct, {}, _of_recording(looks))
    return ExitCode.OK


def _of_recording(looks: list[autotune.TuneBacktestStep]) -> Iterator[str]:
    if not looks:
        yield ("the recording is too short for one check: it needs --every seconds, and a list of "
               "processes")
    elif not any(each.observed.clients for each in looks):
        yield "this recording has no MPS client"


def _rehearse_hub(reach: ConnectionSettings, asked: argparse.Namespace) -> int:
    if reach.hub is None:
        raise CommandError("use --rehearse FILE for a recording, or --rehearse --hub URL --node "
                           "NODE for a hub's history", ExitCode.USAGE)
    every_s = _every_s(asked, autotune.MINUTE_S)
    if every_s % autotune.MINUTE_S:
        raise CommandError("a hub's history has whole minutes: --every is 60, 120, 180 … seconds "
                           "here",
                           ExitCode.USAGE)
    client = reach.client()
    now = time.time()
    node = node_id(client, asked.node)
    start, end = moment_of(asked.start, now), moment_of(asked.end, now)
    if start >= end:
        raise CommandError("--start is before --end", ExitCode.USAGE)
    minutes = list(_minutes(client.mps_past(node, start, end)))
    looks = list(autotune.rehearse_minutes(minutes, every_s, asked.begin_pct))
    unknown = sum(each.clients is None for each in minutes)
    _tell(reach, looks, asked.begin_pct, {"minutes": len(minutes), "unknown_minutes": unknown},
          _of_hub(looks, len(minutes), unknown))
    return ExitCode.OK


def _of_hub(looks: list[autotune.TuneBacktestStep], minutes: int, unknown: int) -> Iterator[str]:
    if unknown:
        yield (f"of {minutes} minutes {unknown} are unknown: the node was not reporting, "
               "or history does not have its MPS clients yet. They are left out")
    if not looks:
        yield "that leaves nothing to check: choose another time with --start and --end"
    elif not any(each.observed.clients for each in looks):
        yield "there was no MPS client at that time"
    yield "history does not keep the shares of that time: starting with --from"


def _tell(reach: ConnectionSettings, looks: list[autotune.TuneBacktestStep], begin_pct: int,
          more: dict[str, Any], notes: Iterator[str]) -> None:
    if reach.json:
        print(json.dumps({"items": [_told(each, True) for each in looks],
                          **more}))
    else:
        print("\n".join([*_lines(looks, begin_pct), *notes,
                         *(["nothing was changed; the load is recorded and does not react to "
                            "the shares"] if looks else [])]))


def _lines(looks: list[autotune.TuneBacktestStep], begin_pct: int) -> Iterator[str]:
    if not looks:
        return
    for each in looks:
        if each.tune.pct is not None:
            yield f"{moment(each.at)}  {each.tune.pct:>3} %  {each.tune.why}"
    shares = [begin_pct, *(each.tune.pct for each in looks if each.tune.pct is not None)]
    most = max(each.observed.clients for each in looks)
    yield (f"rehearsed: {len(looks)} looks, {len(shares) - 1} changes, from {begin_pct} % to "
           f"{shares[-1]} % (between {min(shares)} and {max(shares)} %), with up to {most} clients "
           "at a time")


# -- as a hub tells it


def _hub_daemon(client: Client, node: str, pipes: str) -> MpsDaemon:
    daemons = msgspec.convert([each for item in client.mps(node) for each in item["daemons"]],
                              list[MpsDaemon])
    found = [each for each in daemons if each.pipes == pipes]
    if not found:
        raise CommandError(f"this node has no MPS control daemon in {pipes} any more")
    return found[0]


def _hub_load(client: Client, node: str, within_s: float) -> float | None:
    """As an MpsLoadMeter has it; None: not known."""
    watch, until = autotune.MpsLoadMeter(), time.monotonic() + within_s
    while True:
        for gpu in client.gpus(metrics="util_pct", node_id=node):
            if gpu["state"] == "ok" and "util_pct" in gpu["values"]:
                watch.load(gpu["uuid"], gpu["values"]["util_pct"])
        left_s = until - time.monotonic()
        if left_s <= 0:
            break
        time.sleep(min(LOOK_EVERY_S, left_s))
    theirs = [task for task in client.tasks(node_id=node) if task["kind"] in autotune.OF_MPS]
    watch.listed(sum(task["kind"] == "mps_client" for task in theirs),
                 (use["uuid"] for task in theirs for use in task["gpus"]))
    return watch.take()


def _minutes(told: dict[str, Any]) -> Iterator[autotune.MpsMinute]:
    gpus = told["gpus"]
    for at, (t, clients) in enumerate(zip(told["t"], told["clients"], strict=True)):
        loads = {gpu["gpu"]: gpu["util_pct"][at] for gpu in gpus
                 if gpu["util_pct"][at] is not None}
        yield autotune.MpsMinute(t + autotune.MINUTE_S, clients, loads,
                                 frozenset(gpu["gpu"] for gpu in gpus if gpu["is_mps"][at]))
