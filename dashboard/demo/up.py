"""`gpudeck up`: hub and agent for this machine, kept running side by side."""

import contextlib
import os
import sys
from pathlib import Path

from gpudeck.errors import ExitCode
from gpudeck.pool.connection import new_socket
from gpudeck.settings import Setting, flag, folder, load, port, state_folder

from .agent_beside import run_local_agent
from .browser_opener import BrowserOpener
from .shared import SupervisedHub, claim, open_hub
from .supervisor import SupervisedProcess, Supervisor

TABLE: tuple[Setting, ...] = (
    Setting("port", port, 8050, "port on 127.0.0.1; 0 picks a free one"),
    Setting("data", folder, None, "folder for both; $XDG_STATE_HOME/gpudeck/up, if not given"),
    Setting("open", flag, False, "open the sign-in link in this desktop's browser"),
    Setting("pool", flag, False, "lease this machine's GPUs: `gpudeck run` waits for its turn"),
    Setting("agent_alone", flag, False,
            "no hub, only an agent for the hub that `gpudeck hub` runs on this machine"),
)


def up(argv: list[str]) -> int:
    settings = load("up", TABLE, argv, os.environ, "Hub and agent for this machine.")
    if settings["agent_alone"]:
        root = settings["data"] or state_folder("", os.environ)
        run_local_agent(root / "hub", root / "agent")
    data: Path = settings["data"] or state_folder("up", os.environ)
    with contextlib.ExitStack() as stack:
        stack.enter_context(claim(data, "up"))
        pool = new_socket(os.environ) if settings["pool"] else None
        hub = open_hub("up", data / "hub", settings["port"],
                       flags=() if pool is None else ("--pool", "on"))
        supervisor = Supervisor([hub.part, _agent(hub, data, pool)])
        opener = BrowserOpener(data, os.environ) if settings["open"] else None
        reporter = _StartupReporter(hub, supervisor, opener, pool)
        stack.enter_context(supervisor)
        supervisor.run(reporter.step)
    return ExitCode.OK


def _agent(hub: SupervisedHub, data: Path, pool: Path | None) -> SupervisedProcess:
    token = data / "agent.enrolment"
    hub.enrol({token: [None]})
    return SupervisedProcess("agent", "agent", [
        "--hub", hub.url, "--token-file", str(token), "--backend", "auto",
        "--data", str(data / "agent"),
        *(() if pool is None else ("--pool-socket", str(pool), "--local-claims")),
    ], data / "agent.log")


class _StartupReporter:
    """Prints the link once the hub is ready, and the reason if this machine shows no GPU."""

    def __init__(self, hub: SupervisedHub, supervisor: Supervisor,
                 opener: BrowserOpener | None, pool: Path | None) -> None:
        self._pool = pool
        self._opener = opener
        self._hub = hub
        self._supervisor = supervisor
        self._has_shown_link = False
        self._reported_state: str | None = None

    def step(self) -> float:
        if not self._has_shown_link:
            return self._show_link()
        self._report_reader()
        return 2.0

    def _show_link(self) -> float:
        for part in self._supervisor.parts:
            if part.failures > 1 or (part is self._hub.part and part.failures):
                raise self._supervisor.give_up(part)
        running = self._hub.running()
        if running is None:
            return 0.1
        self._has_shown_link = True
        print(f"\n    {running.sign_in_url}\n\nOpen this link (it works once). Ctrl-C ends hub and "
              "agent.", flush=True)
        if self._pool is not None:
            print("The pool: gpudeck run --gpus 1 -- COMMAND (finds it at "
                  f"{self._pool})", flush=True)
        if self._opener is not None and (why := self._opener.open(running.sign_in_url)):
            print(f"gpudeck: no browser was opened: {why}", file=sys.stderr, flush=True)
        return 0.5

    def _report_reader(self) -> None:
        """Print the reader's problem once per change; nothing on a machine with GPUs."""
        nodes = self._hub.nodes()
        reader = nodes[0]["reader"] if nodes else None  # None as well before its first Beat
        if reader is None or reader["state"] in ("ok", "starting", self._reported_state):
            return
        self._reported_state = reader["state"]
        print(f"gpudeck: no GPUs: {reader['detail'] or reader['state']}", file=sys.stderr,
              flush=True)
