"""A node with four GPUs of the C fake, its agent, and `gpudeck run` against its socket."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpudeck.pool.messages import SOCKET_ENV
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeNvml
from tests.integration.hubs import HubProcess
from tests.integration.test_agent_process import an_agent, flags

ROOT = Path(__file__).parents[2]
SAYS_ITS_GPUS = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
WAITS = "import time; print('on', flush=True); time.sleep(600)"


class PoolBed:
    """One node, whose agent can be killed and started."""

    def __init__(self, hub: FakeHub | HubProcess, folder: Path, *more: str) -> None:
        self.nvml = FakeNvml(folder / "nvml.txt", gpus=0)
        for _ in range(4):
            self.nvml.gpu(util=0, name="NVIDIA H100 80GB HBM3", mem_total=80 * 2**30)
        self.nvml.save()
        self.socket = folder / "pool.sock"
        self.env = self.nvml.env() | {SOCKET_ENV: str(self.socket)}
        self._flags = [*flags(hub, folder), "--pool-socket", str(self.socket), *more]  # type: ignore[arg-type]
        self._started: list[subprocess.Popen[str]] = []

    @contextmanager
    def agent(self) -> Iterator["subprocess.Popen[str]"]:
        with an_agent(*self._flags, env=self.env) as process:
            wait_for(lambda: self.free() is not None, 30)
            yield process

    def start(self, *words: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "gpudeck.cli", *words], cwd=ROOT, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._started.append(process)
        return process

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def shown(self) -> dict[str, Any]:
        return json.loads(self.run("pool", "--json").stdout or "{}")  # type: ignore[no-any-return]

    def free(self) -> int | None:
        """How many GPUs are; None: the agent cannot say yet."""
        shown = self.shown()
        if not shown.get("gpus"):
            return None
        away = {uuid for each in shown["held"] for uuid in each["uuids"]}
        away |= {each["uuid"] for each in shown["unavailable"]}
        return sum(each["uuid"] not in away for each in shown["gpus"])

    def in_queue(self, count: int) -> Callable[[], bool]:
        return lambda: len(self.shown()["waiting"]) == count

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.terminate()  # and with it what it runs, which holds its pipes too
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.communicate()
