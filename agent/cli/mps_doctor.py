"""`gpudeck mps doctor`: what is wrong with MPS on this machine, and what to do about it."""

import argparse
import json
from functools import partial
from pathlib import Path

import msgspec

from gpudeck.action_words import printable
from gpudeck.errors import CommandError, ExitCode
from gpudeck.limits import action_of

from ..actions.hold_files import driver_order
from ..actions.standalone import StandaloneNode
from ..backends import backend_named
from ..journal.store import ActionJournal, ActionStore
from ..limits.apply import LimitApplier
from ..limits.mps import LocalMpsDaemons
from ..limits.mps_doctor import findings, whole_boards
from ..limits.mps_store import Default, MpsSettingStore
from ..tasks.task_table import boot_id
from .action_settings import ConnectionSettings
from .setting_actions import do

FIRST_LOOK_S = 5.0
# Advice is a choice, such as who else may use a board: nobody makes it by --yes to all.
_MENDS = {"fault": "gpudeck mps doctor --fix", "advice": "gpudeck mps doctor --fix, without --yes,"}


def doctor(reach: ConnectionSettings, asked: argparse.Namespace) -> int:
    if reach.hub is not None:
        raise CommandError("`gpudeck mps doctor` looks at this machine alone; run it on the node, "
                           "without --hub. The page of the node has it too", ExitCode.USAGE)
    mps = LocalMpsDaemons() if asked.pipes is None else LocalMpsDaemons(pipes=Path(asked.pipes),
                                                                        is_alone=True)
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


def _machine(reach: ConnectionSettings) -> tuple[str | None, dict[str, int | None]]:
    """The driver's version, and the compute mode of each board, where there are any."""
    backend = backend_named(reach.backend)
    limiter = LimitApplier(backend, reach.simulate, partial(driver_order, reach.data))
    if limiter.trouble() or backend.needs_driver():
        return None, {}
    with StandaloneNode(reach.data, reach.backend, reach.simulate) as local:
        reading = next(local.readings(0.0), None)
    boards = whole_boards(() if reading is None else reading.facts)
    return backend.driver_version(), {uuid: limits.compute_mode
                                      for uuid, limits in limiter.read(boards).items()}


def _wanted(reach: ConnectionSettings) -> tuple[Default, ...]:
    if not reach.data.is_dir():
        return ()
    store = ActionStore(reach.data / "acts.db")
    try:
        return MpsSettingStore(ActionJournal(store), boot_id()).wanted()
    finally:
        store.close()
