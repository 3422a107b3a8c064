"""`gpudeck mps doctor` and `gpudeck mps tune`: what is wrong with MPS on this machine, and what
share of the threads its clients should get."""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.act_words import moment, printable
from gpudeck.errors import CommandError, ExitCode
from gpudeck.limits import MpsPercent, action_of

from . import mps_view
from .act_settings import Reach
from .acts_journal import ActsJournal, ActsStore
from .autotune import Seen, Tune, tune
from .backends import Unavailable
from .backends.nvml_module import module_version
from .backends.recorded import readings
from .limiter import Limiter
from .local import Local
from .mps import Mps
from .mps_book import Default, MpsBook
from .mps_doctor import findings, whole_boards
from .setting_cli import checked, do, pipes_of
from .tasks import boot_id
from .tune_past import Watch, Would, rehearse

FIRST_LOOK_S = 5.0
# Advice is a choice, such as who else may use a board: nobody makes it by --yes to all.
_MENDS = {"fault": "gpudeck mps doctor --fix", "advice": "gpudeck mps doctor --fix, without --yes,"}


def doctor(reach: Reach, asked: argparse.Namespace) -> int:
    _only_here(reach, "doctor")
    mps = Mps() if asked.pipes is None else Mps(pipes=Path(asked.pipes), is_alone=True)
    found = findings(mps, *_machine(reach), _wanted(reach), quotes_log=True)
    if reach.json:
        print(json.dumps({"items": msgspec.to_builtins(found)}))
    for each in () if reach.json else found:
        print(f"{each.code}: {printable(each.cause)}.\n  do: {printable(each.remedy)}"
              + (f"  ({_MENDS[each.weight]} does it)" if each.fixes else ""))
    if not found and not reach.json:
        print("nothing is wrong with MPS here")
    codes = [do(reach, asked, action_of(fix), None, fix)
             for each in found if asked.fix and not (asked.yes and each.weight == "advice")
             for fix in each.fixes]
    if codes:
        return max(codes)
    return ExitCode.FAILED if any(each.weight == "fault" for each in found) else ExitCode.OK


def _machine(reach: Reach) -> tuple[str | None, dict[str, int | None]]:
    """The driver's version, and the compute mode of each board, where there are any."""
    limiter = Limiter(reach.backend, reach.simulate)
    if limiter.trouble() or (limiter.is_nvml and module_version() is None):
        return None, {}
    with Local(reach.data, reach.backend, reach.simulate) as local:
        reading = next(local.readings(0.0), None)
    boards = whole_boards(() if reading is None else reading.facts)
    return module_version(), {uuid: limits.compute_mode
                              for uuid, limits in limiter.read(boards).items()}


def _wanted(reach: Reach) -> tuple[Default, ...]:
    if not reach.data.is_dir():
        return ()
    store = ActsStore(reach.data / "acts.db")
    try:
        return MpsBook(ActsJournal(store), boot_id()).wanted()
    finally:
        store.close()


def _only_here(reach: Reach, verb: str) -> None:
    if reach.hub is not None:
        raise CommandError(f"`gpudeck mps {verb}` looks at this machine alone; run it on the node, "
                           "without --hub", ExitCode.USAGE)


# -- tuning


def tune_share(reach: Reach, asked: argparse.Namespace) -> int:
    _check_tune(asked)
    if asked.rehearse is not None:
        return _rehearse(reach, asked.rehearse, asked.every, asked.begin_pct)
    _only_here(reach, "tune")
    with Local(reach.data, reach.backend, reach.simulate, reach.ceiling) as local:
        for number in range(asked.rounds) if asked.rounds else count():
            within_s = asked.every if number else min(asked.every, FIRST_LOOK_S)
            code = _tune_once(reach, asked, _load(local, within_s))
            if code != ExitCode.OK:
                return code
    return ExitCode.OK


def _check_tune(asked: argparse.Namespace) -> None:
    if asked.apply and not (asked.yes and asked.reason):
        raise CommandError("to set it, say --apply --yes --reason TEXT; without --apply it only "
                           "tells what it would do", ExitCode.USAGE)
    if asked.apply and asked.rehearse is not None:
        raise CommandError("a rehearsal sets nothing: leave out --apply or --rehearse",
                           ExitCode.USAGE)
    if not (1 <= asked.every <= 3_600 and 1 <= asked.begin_pct <= 100 and asked.rounds >= 0):
        raise CommandError("--every is from 1 to 3600 seconds, --from from 1 to 100 %, --rounds "
                           "from 0 on", ExitCode.USAGE)


def _load(local: Local, within_s: float) -> float | None:
    watch = Watch()
    for reading in local.readings(within_s):
        watch.see(reading)
    return watch.take()


def _tune_once(reach: Reach, asked: argparse.Namespace, load_pct: float | None) -> int:
    """Each change is an act of its own: the Audit is the record of what was done."""
    daemon = Mps().daemon(pipes_of(asked, reach))
    seen = mps_view.view(daemon)
    if not seen.is_alive:
        raise CommandError(seen.trouble)
    server = seen.servers[0].pid if len(seen.servers) == 1 else None
    now_pct = seen.default_pct if server is None else seen.servers[0].pct
    looked = Seen(len(seen.clients), load_pct, now_pct)
    found = tune(looked)
    print(json.dumps(_told(time.time(), looked, found, not asked.apply)) if reach.json else
          f"{'' if asked.apply else 'dry run: '}{found.why}"
          + ("" if found.pct is None else f": {found.pct} %"), flush=True)
    if found.pct is None or not asked.apply:
        return ExitCode.OK
    setting = checked(MpsPercent(str(daemon.folder), found.pct, server))
    return do(reach, asked, action_of(setting), None, setting)


def _told(at: float, seen: Seen, found: Tune, is_dry: bool) -> dict[str, Any]:
    return {"at": at, "clients": seen.clients, "load_pct": seen.load_pct, "now_pct": seen.now_pct,
            "pct": found.pct, "goal": found.goal, "why": found.why, "is_dry": is_dry}


# -- rehearsal


def _rehearse(reach: Reach, path: Path, every_s: float, begin_pct: int) -> int:
    try:
        looks = list(rehearse(readings(path), every_s, begin_pct))
    except Unavailable as why:
        raise CommandError(why.detail, ExitCode.USAGE) from why
    if reach.json:
        print(json.dumps({"items": [_told(each.at, each.seen, each.tune, True)
                                    for each in looks]}))
    else:
        print("\n".join(_rehearsal_lines(looks, begin_pct)))
    return ExitCode.OK


def _rehearsal_lines(looks: list[Would], begin_pct: int) -> Iterator[str]:
    if not looks:
        yield ("the recording is too short for one look: it takes --every seconds, and a list of "
               "processes")
        return
    for each in looks:
        if each.tune.pct is not None:
            yield f"{moment(each.at)}  {each.tune.pct:>3} %  {each.tune.why}"
    shares = [begin_pct, *(each.tune.pct for each in looks if each.tune.pct is not None)]
    most = max(each.seen.clients for each in looks)
    yield (f"rehearsed: {len(looks)} looks, {len(shares) - 1} changes, from {begin_pct} % to "
           f"{shares[-1]} % (between {min(shares)} and {max(shares)} %), with up to {most} clients "
           "at a time")
    if most == 0:
        yield "no client of MPS is in this recording"
    yield "nothing was set; the load is that of the past and does not answer to the shares"
