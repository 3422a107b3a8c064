"""A node with four GPUs of the C fake, its agent, and `gpudeck run` against its socket."""

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from agent.journal.store import ActionJournal, ActionStore
from agent.pool.clock import PoolClock
from agent.pool.cores import NodeCores
from agent.pool.gpus import PoolSnapshot
from agent.pool.leases import NodeLeases
from agent.pool.lock import PoolGpu, ProcessKey
from agent.pool.mps_look import MpsProbe
from agent.pool.requests import PoolRequests
from agent.pool.reservations import NodeReservations
from agent.pool.server import PoolServer
from agent.pool.service import PoolService
from agent.pool.shares import MpsFacts
from agent.pool.signs import ProcessSigns
from agent.pool.store import LeaseStore
from agent.tasks.processes import uptime_s
from gpudeck.contract.pool_messages import SOCKET_ENV, ShowPool
from gpudeck.contract.repairs import GpuRepair
from gpudeck.contract.suspensions import SuspendedTask
from gpudeck.errors import CommandError
from gpudeck.pool.connection import PoolConnection
from gpudeck.pool.core.schedule import PoolPolicy
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeGpu, FakeNvml
from tests.fakes.people import QuietPeople
from tests.forks import ForkedProcess, commands
from tests.integration.hubs import HubProcess
from tests.integration.test_agent_process import an_agent, flags

ROOT = Path(__file__).parents[2]
SAYS_ITS_GPUS = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
SAYS_ITS_UUID = "import os; print(os.environ['GPUDECK_GPU_UUIDS'], flush=True)"
WAITS = "import time; print('on', flush=True); time.sleep(600)"


def connections(path: Path) -> int:
    """Count the connections to the agent that listens there."""
    return sum(line.endswith(f" {path}") and line.split()[5] == "03"
               for line in Path("/proc/net/unix").read_text().splitlines())


def records(acts: Path) -> list[dict[str, Any]]:
    with contextlib.closing(sqlite3.connect(acts)) as db:
        return [json.loads(body) for (body,) in db.execute("select body from audit order by seq")]


class PoolUnderTest:
    """The pool of a node in this very process, behind a real socket, with two GPUs."""

    def __init__(self, folder: Path, is_local: bool = True) -> None:
        self.why_no_end = ""
        self.repairs: tuple[GpuRepair, ...] = ()
        self.suspended: dict[ProcessKey, SuspendedTask] = {}
        self.socket = folder / "pool.sock"
        self.env = {**os.environ, SOCKET_ENV: str(self.socket)}
        self._folder = folder
        self._store = ActionStore(folder / "acts.db")
        clock = PoolClock(uptime_s, time.time)
        self.leases = NodeLeases(LeaseStore(ActionJournal(self._store), "boot"), clock,
                                 ProcessSigns(), NodeCores())
        reservations = NodeReservations(ActionJournal(self._store), "id", clock)
        people = QuietPeople()
        self.service = PoolService("id", "n1", self.leases, reservations, PoolPolicy(), clock,
                                   MpsProbe(lambda: MpsFacts(()), uptime_s), is_local, lambda: None,
                                   people, lambda: self.why_no_end,
                                   lambda: self.repairs, lambda: self.suspended)
        self.service.snapshot = PoolSnapshot({
            f"GPU-{index}": PoolGpu(f"GPU-{index}", "H100", index, False, 0, None, 80 * 2**30, "")
            for index in range(2)}, ())
        self._server = PoolServer(self.socket, PoolRequests(self.service), people)
        self._started: list[subprocess.Popen[str]] = []
        self.service.start()

    def start(self, *words: str, **more: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen([sys.executable, "-m", "gpudeck.cli.main", *words], cwd=ROOT,
                                   env=self.env | more, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self._started.append(process)
        return process

    def records(self) -> list[dict[str, Any]]:
        return records(self._folder / "acts.db")

    def close(self) -> None:
        for process in self._started:
            process.terminate()  # with its command
            process.communicate(timeout=30)
        self._server.close()
        self.service.close()
        self._store.close()


class PoolBed:
    """A node whose agent can be killed and started."""

    def __init__(self, hub: FakeHub | HubProcess | None, folder: Path, *more: str) -> None:
        """`hub` None: the agent is alone."""
        self._folder = folder
        self.nvml = FakeNvml(folder / "nvml.txt", gpus=0)
        for _ in range(4):
            self.nvml.gpu(util=0, mem_used=2**29, name="NVIDIA H100 80GB HBM3",
                          mem_total=80 * 2**30)
        self.nvml.save()
        self.socket = folder / "pool.sock"
        self.env = self.nvml.env() | {SOCKET_ENV: str(self.socket)}
        self._more = more
        self.join(hub)
        self._started: list[subprocess.Popen[str]] = []

    def join(self, hub: FakeHub | HubProcess | None) -> None:
        """Use this hub from the agent's next start on."""
        where = ["--alone", "--data", str(self._folder / "data")] if hub is None else flags(
            hub, self._folder)  # type: ignore[arg-type]
        self._flags = [*where, "--pool-socket", str(self.socket), *self._more]

    @contextmanager
    def agent(self, program: Sequence[str] = ()
              ) -> "Iterator[ForkedProcess | subprocess.Popen[str]]":
        """Run the agent until the end of the block. `program`: another Python program than
        `gpudeck agent`."""
        with (an_agent(*self._flags, env=self.env, program=program) if program
              else self._forked_agent()) as process:
            wait_for(lambda: self.free() is not None)
            yield process

    @contextmanager
    def _forked_agent(self) -> Iterator[ForkedProcess]:
        process = ForkedProcess(commands(), ["agent", *self._flags], self._folder / "agent.log",
                                {}, self.env)
        try:
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()

    def start(self, *words: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "gpudeck.cli.main", *words], cwd=ROOT, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._started.append(process)
        return process

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def status(self) -> dict[str, Any]:
        """Return what `gpudeck pool --json` prints, and nothing where it would fail. Tests ask for
        it in loops: a program started for each would slow down the agent that they wait for."""
        try:
            with contextlib.closing(PoolConnection(self.env)) as connection:
                connection.send(ShowPool())
                reply = connection.receive(60)
                connection.socket.settimeout(60)
                connection.socket.shutdown(socket.SHUT_WR)
                connection.socket.recv(1)  # the agent hangs up too: tests count its connections
        except (CommandError, OSError):
            return {}
        return json.loads(msgspec.json.encode(reply))  # type: ignore[no-any-return]

    def free(self) -> int | None:
        """Return the number of free GPUs; None: the agent cannot say yet."""
        status = self.status()
        if not status.get("gpus"):
            return None
        away = {uuid for lease in status["held"] for uuid in lease["uuids"]}
        away |= {gpu["uuid"] for gpu in status["unavailable"]}
        return sum(gpu["uuid"] not in away for gpu in status["gpus"])

    def gpu(self, uuid: str) -> FakeGpu:
        return next(gpu for gpu in self.nvml.gpus if gpu.uuid == uuid)

    def audit(self, what: str) -> list[dict[str, Any]]:
        """Return what this node has recorded of its leases as `what`."""
        return [record for record in records(self._folder / "data" / "acts.db")
                if record.get("pool") == what]

    def in_queue(self, count: int) -> Callable[[], bool]:
        return lambda: len(self.status()["waiting"]) == count

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.terminate()  # and with it what it runs, which holds its pipes too
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.communicate()
