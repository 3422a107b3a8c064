"""A node whose tasks are suspended, with `cuda-checkpoint` as a fake that really stops them."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.actions import guard
from agent.actions.kinds import suspend
from agent.actions.kinds.execution import ActionTimeouts
from agent.actions.standalone import StandaloneNode
from agent.backends.nvml import driver as nvml_driver
from agent.backends.nvml import suspend as nvml_suspend
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.stores import SuspensionStore
from agent.limits.suspensions import SuspensionKeeper
from agent.readings import ProcessReading
from agent.runtime.action_lock import ActionLock
from agent.tasks import host_memory
from agent.tasks.boot_id import boot_id
from gpudeck.contract.actions import ActionParams, Preview, Reply
from gpudeck.contract.suspensions import SuspendedTask
from gpudeck.contract.wire import GpuFacts
from tests.fakes.children import Child, Children
from tests.fakes.cuda_checkpoint import FakeCudaCheckpoint
from tests.fakes.hub import wait_for
from tests.integration.limits_bench import Bench

GPU, OTHER = "GPU-1", "GPU-2"
MIB = 2**20
ACTIONS = ["notify", "pause", "resume", "end", "suspend", "restore", "cordon"]
NOBODY = 65_534


class SuspendBench(Bench):
    """A node whose driver lists its children, with `cuda-checkpoint` as a fake."""

    def __init__(self, folder: Path, children: Children) -> None:
        super().__init__(folder, children)
        self.program = FakeCudaCheckpoint(folder)
        self.actions = ACTIONS
        self.total = 80 * 2**30
        self.cgroups = folder / "cgroups"
        self.proc = folder / "proc"
        self.proc.mkdir()
        self.room(80 * 2**30)
        self.limit(None)

    def room(self, free_bytes: int) -> None:
        (self.proc / "meminfo").write_text(
            f"MemTotal: 1 kB\nMemAvailable: {free_bytes // 1_024} kB\n")

    def limit(self, free_bytes: int | None, is_whole: bool = True) -> None:
        """Set what the cgroup of all tasks has left; None: it has no limit. `is_whole` False: a
        part of it cannot be read."""
        top = self.cgroups / "tasks"
        top.mkdir(parents=True, exist_ok=True)
        (top / "memory.max").write_text("max" if free_bytes is None else f"{free_bytes + MIB}")
        (top / "memory.current").write_text(f"{3 * MIB}\n")
        (top / "memory.stat").write_text(f"anon {MIB}\ninactive_file {2 * MIB}\n")
        if not is_whole:
            (top / "memory.stat").unlink()

    @contextmanager
    def node(self) -> Iterator[StandaloneNode]:
        with self.here("nvml", actions=self.actions, own_pid_namespace=True) as local:
            self.set_facts(local)
            local._timeouts = ActionTimeouts(2.0, 2.0)
            yield local

    def set_facts(self, local: StandaloneNode) -> None:
        local._context.tasks.recent.set_facts([
            GpuFacts(uuid, index, "H100", mem_total_bytes=float(self.total))
            for index, uuid in enumerate((GPU, OTHER))])

    def preview(self, action: Any, child: Child) -> Preview:
        with self.node() as here:
            return here.preview(action, child.task_id, ActionParams())

    def act(self, action: Any, child: Child) -> Reply:
        with self.node() as here:
            return here.act(here.preview(action, child.task_id, ActionParams()), "a test", "ada")

    def refusals(self, action: Any, child: Child) -> list[str]:
        return [f"{refusal.code}: {refusal.sentence}"
                for refusal in self.preview(action, child).refusals]

    @contextmanager
    def store(self) -> Iterator[SuspensionStore]:
        disk = ActionStore(self.data / "acts.db")
        try:
            yield SuspensionStore(ActionJournal(disk))
        finally:
            disk.close()

    def records(self) -> tuple[SuspendedTask, ...]:
        with self.store() as store:
            return store.all()

    def follow(self) -> str:
        """Step the keeper as an agent does after its start; return its trouble."""
        with self.store() as store:
            keeper = SuspensionKeeper(store, boot_id(), ActionLock(self.data), nvml_suspend,
                                      lambda: None)
            try:
                for _ in range(3):
                    keeper.changed()
                    keeper.step(time.monotonic())
                    wait_for(lambda: keeper.is_idle)
                return keeper.trouble
            finally:
                keeper.close()


def open_bench(folder: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> SuspendBench:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    monkeypatch.setattr(suspend, "LISTED_WITHIN_S", 2.0)
    monkeypatch.setattr(nvml_suspend, "LOCK_WITHIN_S", 0.1)
    monkeypatch.setattr(nvml_driver, "driver_version", lambda: "580.95.05")
    children.start(gpu=OTHER)
    new_bench = SuspendBench(folder, children)
    monkeypatch.setenv("PATH", new_bench.program.path)
    rooms = partial(host_memory.rooms, "0::/tasks\n", new_bench.cgroups, new_bench.proc)
    monkeypatch.setattr(host_memory, "rooms", lambda cgroups: rooms())
    real = children.fresh
    monkeypatch.setattr(Children, "fresh", lambda self, timeout_s: (
        None if (reading := real(timeout_s)) is None else new_bench.program.listed(reading)))
    return new_bench


def a_task(children: Children, code: str | None = None, gpu: str = GPU) -> Child:
    child = children.start(gpu=gpu) if code is None else children.start(code, gpu=gpu)
    child.mem_used_bytes = float(random.randint(100, 900) * MIB)
    return child


def workers_on_gpus(children: Children, child: Child) -> None:
    """Put the first two workers of a tree on its GPU, too."""
    children.more += [ProcessReading(pid, GPU, float(50 * MIB), 1.0) for pid in child.workers[:2]]
