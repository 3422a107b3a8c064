"""`gpudeck simulate`: many simulated nodes in one process, or the real processes of their jobs."""

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode, run_as_program
from gpudeck.network.keys import EnrolmentToken
from gpudeck.settings import Setting, count, flag, folder, load, text

from ..backends.simulation.reader import parse_options
from ..backends.simulation.world import SimulationOptions
from ..settings import ENROL_FILE, HUB, enrolment_tokens

TABLE: tuple[Setting, ...] = (
    HUB,
    ENROL_FILE,
    Setting("first", count, 1, "number of the first node: n001 is 1"),
    Setting("nodes", count, 8, "how many nodes"),
    Setting("simulate", text, "",
            "what each node is: profile=h100,gpus=8,seed=1,world=DIR,faults=0"),
    Setting("data", folder, None, "folder for the journal of all these nodes"),
    Setting("children", flag, False,
            "report nothing: only run the jobs of these nodes as real processes of this machine"),
)


def node_name(number: int) -> str:
    return f"n{number:03}"


def simulate(argv: list[str]) -> int:
    values = load("simulate", TABLE, argv, os.environ, "Simulated nodes, each with its own socket.")
    names = tuple(map(node_name, range(values["first"], values["first"] + values["nodes"])))
    options = parse_options(values["simulate"])
    return keep_children(names, options) if values["children"] else host_nodes(
        values, names, options)


def keep_children(names: Sequence[str], options: SimulationOptions) -> int:
    from ..backends.simulation.folder import control_file
    from ..backends.simulation.keeper import JobKeeper

    if options.world is None:
        raise CommandError("--children needs world=DIR in --simulate", ExitCode.USAGE)
    stop = _stop_on_signals(threading.Event())
    # Every node's reader logs a broken control.json; we report it at the terminal.
    control = control_file(options.world)
    keeper = JobKeeper(options.world, options.seed, names, options.gpus, options.profile)
    try:
        while not stop.is_set():
            control.now()
            keeper.step(time.time())
            stop.wait(0.25)
    finally:
        keeper.close()
    return ExitCode.OK


def host_nodes(
    values: Mapping[str, Any], names: Sequence[str], options: SimulationOptions
) -> int:
    try:
        from gevent import monkey
    except ModuleNotFoundError as error:
        raise CommandError(
            "`gpudeck simulate` needs gevent to hold many nodes in one process; "
            "run: pip install 'gpudeck[hub]'", ExitCode.CANNOT_START,
        ) from error
    # Before the nodes' own modules bind threads, sockets and locks.
    monkey.patch_all()
    from ..cli.main import log_to_stderr
    from ..runtime.data_lock import DataFolderLock
    from .nodes import host

    if values["data"] is None:
        raise CommandError("--data is needed: the folder for the nodes' journal", ExitCode.USAGE)
    log_to_stderr()
    with DataFolderLock(values["data"]):
        host(values["hub"], _tokens(values["token_file"], len(names)), names, options,
             values["data"], _stop_on_signals(threading.Event()))
    return ExitCode.OK


def _tokens(file: Path | None, nodes: int) -> list[EnrolmentToken]:
    tokens = enrolment_tokens(file, os.environ)
    if tokens and len(tokens) != nodes:
        raise CommandError(f"{nodes} nodes need as many enrolment tokens, one per line; there are "
                           f"{len(tokens)}", ExitCode.USAGE)
    return tokens


def _stop_on_signals(stop: threading.Event) -> threading.Event:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop



if __name__ == "__main__":
    run_as_program(simulate)
