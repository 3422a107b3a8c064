"""Cost of the agent and its reader on 8 GPUs at 1 Hz, beside the bare calls, gpustat and nvitop,
all on one fake driver in one run."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.figure import Figure
from gpudeck.system.process_cost import cpu_s
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeNvml

ROOT = Path(__file__).resolve().parents[1]
GPUS = 8
TASKS_PER_GPU = 2
POLLERS = ("bare", "reader", "gpustat", "nvitop")


class AgentTimes(NamedTuple):
    warm_s: float
    seconds: float


WHOLE, QUICK = AgentTimes(8.0, 40.0), AgentTimes(2.0, 6.0)


def figures(times: AgentTimes = WHOLE) -> Iterator[Figure]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nvml = FakeNvml(folder, gpus=GPUS)
        for gpu in nvml.gpus:
            for _ in range(TASKS_PER_GPU):
                child = subprocess.Popen(["sleep", "600"])
                stack.callback(child.wait)
                stack.callback(child.kill)
                gpu.process(child.pid, 2**30, sm_pct=30)
        nvml.save()
        pollers = [_start(name, nvml, 0.2 + 0.2 * at, times.seconds)
                   for at, name in enumerate(POLLERS)]
        agent, reader, pss_mb = _agent(folder, nvml, times)
        bare_ms, reader_ms, gpustat_ms, nvitop_ms = map(_sample_ms, pollers)
    agent_ms = agent.ms + reader.ms
    yield Figure(f"agent + reader, CPU per sample of {GPUS} GPUs at 1 Hz", agent_ms, "ms", 10.0)
    yield Figure("  of that the agent", agent.ms, "ms")
    yield Figure("  of that the reading process", reader.ms, "ms")
    yield Figure("  wakes of the agent's threads", agent.wakes, "1/s")
    yield Figure("  wakes of the reading process's", reader.wakes, "1/s")
    yield Figure("  its reading alone", reader_ms, "ms")
    yield Figure("  the bare pynvml calls of that", bare_ms, "ms")
    yield Figure("  gpustat, per sample", gpustat_ms, "ms")
    yield Figure("  nvitop, per sample", nvitop_ms, "ms")
    yield Figure("  agent / bare calls", agent_ms / bare_ms, "x", 4.0)
    yield Figure("  agent / gpustat", agent_ms / gpustat_ms, "x", 1 / 3)
    yield Figure("  agent / nvitop", agent_ms / nvitop_ms, "x", 1 / 3)
    yield Figure("  agent + reader, PSS", pss_mb, "MB", 60.0)


def _start(name: str, nvml: FakeNvml, phase_s: float, seconds: float
           ) -> "subprocess.Popen[str]":
    """Start a poller at 1 Hz; `phase_s` keeps it from reading in the same moment as the others."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pollers", name, str(int(seconds)), str(phase_s)], cwd=ROOT,
        env=nvml.env(), stdout=subprocess.PIPE, text=True)


def _sample_ms(poller: "subprocess.Popen[str]") -> float:
    output, _ = poller.communicate(timeout=60)
    return float(output)


class Spent(NamedTuple):
    """Cost of one process in a second, which is a sample."""

    ms: float
    wakes: float


def _agent(folder: Path, nvml: FakeNvml, times: AgentTimes) -> tuple[Spent, Spent, float]:
    """The agent and its reading process, without their start; and MB."""
    hub = FakeHub()
    (folder / "token").write_text(hub.token().text)
    agent = subprocess.Popen(
        [sys.executable, "-m", "agent", "--hub", hub.url, "--data", str(folder / "data"),
         "--token-file", str(folder / "token")], cwd=ROOT, env=nvml.env(),
        stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: hub.hellos and hub.seqs(hub.stream), 30)
        time.sleep(times.warm_s)
        (child,) = psutil.Process(agent.pid).children()
        before, began = [_so_far(pid) for pid in (agent.pid, child.pid)], time.monotonic()
        time.sleep(times.seconds)
        after, seconds = [_so_far(pid) for pid in (agent.pid, child.pid)], time.monotonic() - began
        own, reader = (Spent((b.ms - a.ms) / seconds, (b.wakes - a.wakes) / seconds)
                        for a, b in zip(before, after, strict=True))
        return own, reader, sum(psutil.Process(pid).memory_full_info().pss
                                for pid in (agent.pid, child.pid)) / 1e6
    finally:
        agent.terminate()
        agent.wait(10)
        hub.close()


def _so_far(pid: int) -> Spent:
    """Read the process's own clock: hundredths of a second are too coarse here."""
    return Spent(1_000 * (cpu_s(pid) or 0.0), sum(map(_wakes, Path(f"/proc/{pid}/task").iterdir())))


def _wakes(thread: Path) -> int:
    """Return how often a thread went to sleep; 0 of one that has ended."""
    with suppress(OSError):
        for line in (thread / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                return int(line.split()[1])
    return 0
