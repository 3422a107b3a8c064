"""The simulated backend: a believable seeded node, steered by files in a folder of its world."""

import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpudeck.contract.hosts import EVERY_S, HostSample
from gpudeck.errors import CommandError, ExitCode

from ...readings import BackendEvent, OnDemandReading, Reading
from .. import ReaderUnavailableError
from . import folder
from .chance import roll, seed_of
from .control import SimulationControl
from .host import host_of
from .jobs import SimulatedJob, jobs_at, next_change_at
from .mps_state import client, clients_of, mps_file
from .profiles import PROFILES
from .stage import CUDA_VERSION, RELOAD_S, SimulatedFaults, renumber
from .world import LiveJob, SimulatedNode, SimulationOptions, units_of

PROCESSES_EVERY_S = 1.9  # asked every second, answered every other
SLOW_EVERY_S = 15.0
KEEP_ENERGY_EVERY_S = 5.0
HUNG_LOOK_S = 0.25
KEYS = ("node", "profile", "gpus", "seed", "world", "faults", "mps", "cluster")


def open_reader(options: str) -> "SimulatedReader":
    """`node=n001,profile=h100,gpus=8,seed=1,world=FOLDER,faults=0.1,mps=on,cluster=1-4+7-16`,
    every part optional."""
    try:
        parsed = parse_options(options)
    except CommandError as error:  # in the reader child there is nobody to exit for
        raise ReaderUnavailableError("failed", str(error)) from error
    return SimulatedReader(parsed, folder.control_file(parsed.world))


def parse_options(options: str) -> SimulationOptions:
    pairs: dict[str, str] = {}
    # A folder's name may hold commas and spaces: only before a key do they part.
    for part in filter(None, re.split(rf"[,\s]+(?=(?:{'|'.join(KEYS)})=)", options.strip())):
        key, equals, value = part.partition("=")
        if not equals or key not in KEYS:
            raise _bad(part, f"there are {', '.join(KEYS)}, each as key=value")
        pairs[key] = value
    profile = pairs.get("profile", "h100")
    if profile not in (*PROFILES, "mixed"):
        raise _bad(f"profile={profile}", f"choose one of {', '.join(PROFILES)}, mixed")
    mps = pairs.get("mps", "off")
    if mps not in ("on", "off"):
        raise _bad(f"mps={mps}", "on or off is needed")
    world = pairs.get("world")
    return SimulationOptions(
        pairs.get("node") or socket.gethostname(), profile, int(_number(pairs, "gpus", 8, 256)),
        int(_number(pairs, "seed", 1, 2**63)), None if world is None else Path(world),
        _number(pairs, "faults", 0, 1), mps == "on", _cluster(pairs.get("cluster", "")))


def _cluster(text: str) -> tuple[str, ...]:
    """`1-4+7-16`: numbers of nodes."""
    if not re.fullmatch(r"(\d{1,4}-\d{1,4}(\+\d{1,4}-\d{1,4})*)?", text):
        raise _bad(f"cluster={text}", "spans of node numbers are needed, such as 1-4+7-16")
    spans = [tuple(map(int, span.split("-"))) for span in filter(None, text.split("+"))]
    return tuple(f"n{number:03}" for first, last in spans for number in range(first, last + 1))


def _number(pairs: dict[str, str], key: str, default: float, most: float) -> float:
    text = pairs.get(key, str(default))
    try:
        number = float(text) if key == "faults" else int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= most:
        raise _bad(f"{key}={text}", f"a number from 0 to {most} is needed")
    return number


def _bad(what: str, remedy: str) -> CommandError:
    return CommandError(f"simulated backend: {what!r}: {remedy}", ExitCode.USAGE)


class SimulatedReader:
    """Synthetic jobs, unless the world's folder lists real processes for this node."""

    def __init__(
        self, options: SimulationOptions, control: folder.SimulationControlFile | None,
        keep_energy_every_s: float = KEEP_ENERGY_EVERY_S,
        clock: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._steady = clock, steady
        self._options = options
        self._parent = os.getppid()
        self._control = control or folder.SimulationControlFile(None)
        world, node = options.world, options.node
        self._jobs_file = folder.SimulatedJobsFile(world, node)
        self._limits = folder.limits_file(world, node)
        self._mps = mps_file(world, node)
        self._energy = folder.energy_file(world, node)
        self._keep_every_s = keep_energy_every_s
        self._uuids, self._instances = units_of(self._options)
        self._planned: tuple[SimulatedJob, ...] = ()
        self._planned_from = self._planned_until = float("-inf")
        self._lives: tuple[LiveJob, ...] = ()
        self._listed: tuple[LiveJob, ...] = ()
        self._leaks: dict[str, SimulatedJob] = {}  # by task
        self._world: SimulatedNode | None = None
        self._stage = SimulatedFaults(options.seed, node, options.gpus, options.fault_odds,
                                      clock())
        self._read_at = self._listed_at = self._kept_at = self._kept_from = float("-inf")
        self._slow_at = float("-inf")
        # A fleet that begins together would say it in the same second for ever.
        self._host_at = steady() - EVERY_S * roll(seed_of(options.seed, options.node, "host"), 1)
        self._obeyed: SimulationControl | None = None

    def read(self) -> Reading:
        control = self._wait_for_release()
        at, now = self._clock(), self._steady()
        version, is_fresh_driver = self._stage.driver(control, at)
        lives, world = self._advance_to(at, now, control)
        if is_fresh_driver and self._kept_from < control.changed_at + RELOAD_S:
            world.reload()
            self._limits.remove()
        world.limit(self._limits.now() or {})
        first = self._read_at == float("-inf")
        gpus = world.advance(at, lives, self._leaked(), control, self._wants_slow(now, control))
        interval_s = 1.0 if first else max(1e-3, now - self._read_at)
        self._read_at = now
        self._keep_energy(world, at, now)
        processes = None
        # What has been done to a process shows at once.
        if now - self._listed_at >= PROCESSES_EVERY_S or lives != self._listed:
            self._listed_at, self._listed = now, lives
            processes = world.processes(lives, gpus)
        facts, happened = world.facts, self._stage.happenings(gpus, control, at)
        links = world.links
        if self._options.node in control.nodes and control.nodes[self._options.node].permute:
            facts, gpus, links = renumber(facts, gpus, links)
        return Reading(at, interval_s, gpus, facts, processes, version, links, happened,
                       host=self._host(lives, at, now), cuda_version=CUDA_VERSION)

    def _host(self, lives: tuple[LiveJob, ...], at: float, now: float) -> HostSample | None:
        if now - self._host_at < EVERY_S - 0.5:
            return None
        self._host_at = now
        return host_of(self._options.node, self._options.seed, lives, at)

    def _wants_slow(self, now: float, control: SimulationControl) -> bool:
        """Return whether slow values are due: every 15 s, and at once when somebody has set
        something."""
        if self._obeyed is None:
            # A fleet that begins together would say all of it in the same second for ever.
            self._slow_at = now - SLOW_EVERY_S * roll(
                seed_of(self._options.seed, self._options.node, "slow"), 0)
        is_due = now - self._slow_at >= SLOW_EVERY_S - 0.5
        is_told, self._obeyed = control != self._obeyed, control
        if is_due:
            self._slow_at = now
        return is_due or is_told

    def fresh(self) -> OnDemandReading:
        control = self._wait_for_release()
        at = self._clock()
        self._stage.driver(control, at)
        lives, world = self._advance_to(at, self._steady(), control)
        gpus = world.advance(at, lives, self._leaked(), control)
        return OnDemandReading(world.processes(lives, gpus),
                               {gpu.uuid: gpu.value("mem_used_bytes") for gpu in gpus},
                               {gpu.uuid: gpu.value("energy_j") for gpu in gpus})

    def hangs(self) -> bool:
        """Return whether `read` would block now."""
        return self._options.node in self._control.now().hung_nodes

    def watch(self, tell: Callable[[BackendEvent], None]) -> None:
        """Do nothing: all events are in the Readings."""

    def close(self) -> None:
        if self._world is not None:
            self._keep_energy(self._world, self._clock(), float("inf"))

    def _wait_for_release(self) -> SimulationControl:
        """Simulate a hung driver: no answer until `control.json` ends it."""
        while self.hangs():
            if os.getppid() != self._parent:
                raise ReaderUnavailableError("failed",
                                             "the agent that wanted this reading has gone")
            time.sleep(HUNG_LOOK_S)
        return self._control.now()

    def _advance_to(
        self, at: float, now: float, control: SimulationControl
    ) -> tuple[tuple[LiveJob, ...], SimulatedNode]:
        """Return the jobs of this moment, and the node that they run on."""
        lives = self._find_lives(at)
        self._follow_leaks(lives, control)
        self._lives = lives
        if self._world is None:
            stored = self._energy.now()
            self._world = SimulatedNode(self._options, lives, at, stored)
            self._kept_from = float("-inf") if stored is None else stored[0]
            self._kept_at = now
        return lives, self._world

    def _find_lives(self, at: float) -> tuple[LiveJob, ...]:
        real = self._jobs_file.lives()
        if real is not None:
            return self._with_clients(real)
        if not self._planned_from <= at < self._planned_until:
            seed, node = self._options.seed, self._options.node
            self._planned = jobs_at(seed, node, self._uuids, at, self._instances)
            self._planned_from = at
            self._planned_until = next_change_at(
                seed, node, len(self._uuids) - self._instances, at, self._instances)
        return self._planned_lives()

    def _with_clients(self, lives: tuple[LiveJob, ...]) -> tuple[LiveJob, ...]:
        record = self._mps.now()
        if record is None:
            return lives
        clients = set(map(client, clients_of(record, (live.job for live in lives))))
        return tuple(replace(live, is_client=client(live.job) in clients) for live in lives)

    def _planned_lives(self) -> tuple[LiveJob, ...]:
        return tuple(LiveJob(job) for job in self._planned)

    def _keep_energy(self, world: SimulatedNode, at: float, now: float) -> None:
        if now - self._kept_at >= self._keep_every_s:
            self._kept_at = now
            self._energy.keep((at, world.energy_j))

    def _follow_leaks(self, lives: tuple[LiveJob, ...], control: SimulationControl) -> None:
        """Note leaks: the memory of a task set to leak stays when the task ends, until the entry
        in `control.json` goes too."""
        if not control.leaking_tasks:
            self._leaks = {}
            return
        here = {folder.task_id(live.job) for live in lives}
        ended_jobs = {task: live.job for live in self._lives
                      if (task := folder.task_id(live.job)) not in here}
        self._leaks = {task: job for task, job in {**self._leaks, **ended_jobs}.items()
                       if task in control.leaking_tasks}

    def _leaked(self) -> dict[str, float]:
        """Return the share of each GPU's memory that nobody owns any more."""
        total: dict[str, float] = {}
        for job in self._leaks.values():
            for uuid in job.gpus:
                total[uuid] = total.get(uuid, 0.0) + job.mem_share
        return total
