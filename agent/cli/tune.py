"""`gpudeck mps tune`: what share of the threads new clients of MPS should get: live, in a
recording, or in what a hub keeps."""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from gpudeck.action_words import moment
from gpudeck.errors import CommandError, ExitCode
from gpudeck.limits import MpsDaemon, MpsPercent, action_of
from gpudeck.times import moment_of

from ..actions.standalone import StandaloneNode
from ..backends import ReaderUnavailableError
from ..backends.recorded import readings
from ..limits import mps_view
from ..limits.autotune import TuneDecision, TuneInput, tune
from ..limits.mps import LocalMpsDaemons
from ..limits.tune_backtest import (
    MINUTE_S,
    MpsLoadMeter,
    TuneBacktestStep,
    rehearse,
    rehearse_minutes,
)
from ..limits.tune_from_hub import HubMpsNode
from .action_settings import ConnectionSettings
from .actions import client_of
from .setting_actions import checked, do, node_id, pipes_of

FIRST_LOOK_S = 5.0
EVERY_S = 30.0
FROM_HUB = Path()  # `--rehearse` without a file

Load = Callable[[float], float | None]


def tune_share(reach: ConnectionSettings, asked: argparse.Namespace) -> int:
    _check(asked)
    if asked.rehearse is not None:
        return _rehearse(reach, asked)
    pipes = pipes_of(asked, reach)
    if reach.hub is not None:
        client = client_of(reach, reach.hub)
        node = HubMpsNode(client, node_id(client, asked.node))
        return _rounds(reach, asked, lambda: node.daemon(pipes), node.load)
    with StandaloneNode(reach.data, reach.backend, reach.simulate, reach.ceiling) as local:
        return _rounds(reach, asked, lambda: mps_view.view(LocalMpsDaemons().daemon(pipes)),
                       lambda within_s: _load(local, within_s))


def _check(asked: argparse.Namespace) -> None:
    if asked.apply and not (asked.yes and asked.reason):
        raise CommandError("to set it, say --apply --yes --reason TEXT; without --apply it only "
                           "tells what it would do", ExitCode.USAGE)
    if asked.apply and asked.rehearse is not None:
        raise CommandError("a rehearsal sets nothing: leave out --apply or --rehearse",
                           ExitCode.USAGE)
    if not 1 <= _every_s(asked, EVERY_S) <= 3_600:
        raise CommandError("--every is from 1 to 3600 seconds", ExitCode.USAGE)


def _every_s(asked: argparse.Namespace, usual_s: float) -> float:
    return usual_s if asked.every is None else float(asked.every)


# -- live


def _load(local: StandaloneNode, within_s: float) -> float | None:
    watch = MpsLoadMeter()
    for reading in local.readings(within_s):
        watch.see(reading)
    return watch.take()


def _rounds(reach: ConnectionSettings, asked: argparse.Namespace, daemon: Callable[[], MpsDaemon],
            load: Load
            ) -> int:
    every_s = _every_s(asked, EVERY_S)
    for number in range(asked.rounds) if asked.rounds else count():
        load_pct = load(every_s if number else min(every_s, FIRST_LOOK_S))
        code = _once(reach, asked, daemon(), load_pct)
        if code != ExitCode.OK:
            return code
    return ExitCode.OK


def _once(reach: ConnectionSettings, asked: argparse.Namespace, seen: MpsDaemon,
          load_pct: float | None) -> int:
    """Each change is an act of its own: the Audit is the record of what was done."""
    if not seen.is_alive:
        raise CommandError(seen.trouble)
    server = seen.servers[0].pid if len(seen.servers) == 1 else None
    now_pct = seen.default_pct if server is None else seen.servers[0].pct
    looked = TuneInput(len(seen.clients), load_pct, now_pct)
    found = tune(looked)
    print(json.dumps(_told(time.time(), looked, found, not asked.apply)) if reach.json else
          f"{'' if asked.apply else 'dry run: '}{found.why}"
          + ("" if found.pct is None else f": {found.pct} %"), flush=True)
    if found.pct is None or not asked.apply:
        return ExitCode.OK
    setting = checked(MpsPercent(seen.pipes, found.pct, server))
    return do(reach, asked, action_of(setting), None, setting)


def _told(at: float, seen: TuneInput, found: TuneDecision, is_dry: bool) -> dict[str, Any]:
    return {"at": at, "clients": seen.clients, "load_pct": seen.load_pct, "now_pct": seen.now_pct,
            "pct": found.pct, "goal": found.goal, "why": found.why, "is_dry": is_dry}


# -- rehearsal


def _rehearse(reach: ConnectionSettings, asked: argparse.Namespace) -> int:
    if asked.rehearse == FROM_HUB:
        return _rehearse_hub(reach, asked)
    try:
        looks = list(rehearse(readings(asked.rehearse), _every_s(asked, EVERY_S), asked.begin_pct))
    except ReaderUnavailableError as why:
        raise CommandError(why.detail, ExitCode.USAGE) from why
    _tell(reach, looks, asked.begin_pct, {}, _of_recording(looks))
    return ExitCode.OK


def _of_recording(looks: list[TuneBacktestStep]) -> Iterator[str]:
    if not looks:
        yield ("the recording is too short for one look: it takes --every seconds, and a list of "
               "processes")
    elif not any(each.seen.clients for each in looks):
        yield "no client of MPS is in this recording"


def _rehearse_hub(reach: ConnectionSettings, asked: argparse.Namespace) -> int:
    if reach.hub is None:
        raise CommandError("say --rehearse FILE for a recording, or --rehearse --hub URL --node "
                           "NODE for what a hub keeps", ExitCode.USAGE)
    every_s = _every_s(asked, MINUTE_S)
    if every_s % MINUTE_S:
        raise CommandError("a hub keeps whole minutes: --every is 60, 120, 180 … seconds here",
                           ExitCode.USAGE)
    client = client_of(reach, reach.hub)
    now = time.time()
    minutes = HubMpsNode(client, node_id(client, asked.node)).past(
        moment_of(asked.start, now), moment_of(asked.end, now))
    looks = list(rehearse_minutes(minutes, every_s, asked.begin_pct))
    unknown = sum(each.clients is None for each in minutes)
    _tell(reach, looks, asked.begin_pct, {"minutes": len(minutes), "unknown_minutes": unknown},
          _of_hub(looks, len(minutes), unknown))
    return ExitCode.OK


def _of_hub(looks: list[TuneBacktestStep], minutes: int, unknown: int) -> Iterator[str]:
    if unknown:
        yield (f"of {minutes} minutes {unknown} are not known: the node was not heard, or history "
               "does not say yet which tasks were clients of MPS. Nothing is rehearsed of them")
    if not looks:
        yield "that leaves no look: ask for another time with --start and --end"
    elif not any(each.seen.clients for each in looks):
        yield "no client of MPS was there then"
    yield "which shares were set then is not kept: it begins with that of --from"


def _tell(reach: ConnectionSettings, looks: list[TuneBacktestStep], begin_pct: int,
          more: dict[str, Any],
          notes: Iterator[str]) -> None:
    if reach.json:
        print(json.dumps({"items": [_told(each.at, each.seen, each.tune, True) for each in looks],
                          **more}))
    else:
        print("\n".join([*_lines(looks, begin_pct), *notes,
                         *(["nothing was set; the load is that of the past and does not answer to "
                            "the shares"] if looks else [])]))


def _lines(looks: list[TuneBacktestStep], begin_pct: int) -> Iterator[str]:
    if not looks:
        return
    for each in looks:
        if each.tune.pct is not None:
            yield f"{moment(each.at)}  {each.tune.pct:>3} %  {each.tune.why}"
    shares = [begin_pct, *(each.tune.pct for each in looks if each.tune.pct is not None)]
    most = max(each.seen.clients for each in looks)
    yield (f"rehearsed: {len(looks)} looks, {len(shares) - 1} changes, from {begin_pct} % to "
           f"{shares[-1]} % (between {min(shares)} and {max(shares)} %), with up to {most} clients "
           "at a time")
