"""A fleet that is played hour by hour: who runs what, and what a command changes. The advice reads
what was measured of it; what a command would have saved is counted here by playing it again."""

import random
import shlex
from dataclasses import dataclass, field, replace

import numpy as np

from dashboard.insight.core.week import MeasuredWeek, WeekGpu

GIB = 2.0**30
HOURS = 8 * 24
LIMIT_W = 700.0
H100, A100, T4 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "Tesla T4"
SIZES = {H100: 80 * GIB, A100: 40 * GIB, T4: 15 * GIB}


@dataclass(frozen=True)
class PlayedJob:
    """Job of an owner from hour to hour; `gpu`: where it runs. `busy`: utilization while it
    works; it works in `works` of its hours, and else holds its memory."""

    owner: str
    gpu: int
    start: int
    end: int
    busy: float
    memory: float
    works: frozenset[int]
    bandwidth: float = 20.0


@dataclass(frozen=True)
class PlayedFleet:
    models: tuple[str, ...]
    nodes: tuple[str, ...]
    jobs: tuple[PlayedJob, ...]
    quotas: dict[str, int] = field(default_factory=dict)
    shared: frozenset[tuple[int, int]] = frozenset()  # that run on the first of the two
    watts: dict[int, float] = field(default_factory=dict)  # that GPUs draw at work
    caps: dict[int, int] = field(default_factory=dict)

    def do(self, command: str, pair: tuple[int, ...] = ()) -> "PlayedFleet":
        """Do what `gpudeck quota set|remove`, `run` and `mig apply|remove` change. `pair`: the
        GPUs that it is about."""
        words = shlex.split(command)
        if words[1:3] == ["quota", "set"]:
            owner = words[words.index("--subject") + 1].removeprefix("user:")
            return replace(self, quotas=self.quotas | {
                owner: int(words[words.index("--gpus") + 1])})
        if words[1:3] == ["quota", "remove"]:
            return replace(self, quotas={})
        if words[1:3] == ["gpu", "cap"]:
            return replace(self, caps={int(words[3].removeprefix("GPU-")): int(words[4])})
        if words[1:3] == ["gpu", "release"]:
            return replace(self, caps={})
        assert words[1] in ("run", "mig")
        pairs = frozenset((pair[0], other) for other in pair[1:])
        return replace(self, shared=self.shared | pairs if {"--share", "apply"} & {*words}
                       else self.shared - pairs)

    def place(self, gpu: int) -> int:
        return next((one for one, other in self.shared if other == gpu), gpu)

    def held_gpus(self, hour: int) -> dict[str, set[int]]:
        """Return GPUs by owner; over a quota, the owner's last job gets none."""
        by_owner: dict[str, set[int]] = {}
        for job in self.jobs:
            if job.start <= hour < job.end:
                of = by_owner.setdefault(job.owner, set())
                if len(of) < self.quotas.get(job.owner, 10**9):
                    of.add(self.place(job.gpu))
        return by_owner

    def drawn_w(self, gpu: int) -> float:
        return min(self.watts[gpu], self.caps.get(gpu, self.watts[gpu]))

    def energy_hours(self) -> float:
        """Count the energy of what works, as hours at a GPU's limit."""
        return sum(self.drawn_w(job.gpu) / LIMIT_W * len(job.works) for job in self.jobs
                   if job.gpu in self.watts)

    def gpu_hours(self) -> int:
        return sum(len(set().union(*self.held_gpus(hour).values())) for hour in range(HOURS)
                   if self.held_gpus(hour))

    def week(self) -> MeasuredWeek:
        size, owners = len(self.models), sorted({job.owner for job in self.jobs})
        held_h, used_h, util, bandwidth, memory = (np.zeros((HOURS, size)) for _ in range(5))
        power, clock = (np.full((HOURS, size), np.nan) for _ in range(2))
        owner_held, owner_used = (np.zeros((HOURS, len(owners))) for _ in range(2))
        for job in self.jobs:
            for hour in range(job.start, job.end):
                held_h[hour, job.gpu] = 1.0
                memory[hour, job.gpu] += job.memory
                owner_held[hour, owners.index(job.owner)] += 1
                if hour in job.works:
                    used_h[hour, job.gpu] = 1.0
                    if job.gpu in self.watts:
                        power[hour, job.gpu] = self.drawn_w(job.gpu)
                        clock[hour, job.gpu] = 1_400.0 + hour % 24 * 10
                    util[hour, job.gpu] += job.busy
                    bandwidth[hour, job.gpu] += job.bandwidth
                    owner_used[hour, owners.index(job.owner)] += 1
        sole = [{job.owner for job in self.jobs if job.gpu == gpu} for gpu in range(size)]
        gpus = tuple(WeekGpu(f"GPU-{at}", node, f"host-{node}", str(at), model, SIZES[model],
                             next(iter(sole[at])) if len(sole[at]) == 1 else None,
                             power_default_w=LIMIT_W, power_least_w=200.0)
                     for at, (model, node) in enumerate(zip(self.models, self.nodes, strict=True)))
        return MeasuredWeek(gpus, tuple(owners), held_h, used_h, util,
                            np.full((HOURS, size), np.nan), bandwidth, memory, power, clock,
                            owner_held, owner_used)


def job(owner: str, gpu: int, busy: float, memory_gib: float, share: float = 1.0, start: int = 0,
        end: int = HOURS, bandwidth: float = 20.0, seed: int = 0) -> PlayedJob:
    lot = random.Random(seed)
    return PlayedJob(owner, gpu, start, end, busy, memory_gib * GIB, frozenset(
        hour for hour in range(start, end) if lot.random() < share), bandwidth)


def fleet(*jobs: PlayedJob, models: tuple[str, ...] = (H100,) * 4,
          nodes: tuple[str, ...] = ("n1",) * 4) -> PlayedFleet:
    return PlayedFleet(models, nodes, jobs)
