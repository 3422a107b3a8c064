"""Cost of a hub with its state in PostgreSQL, a mirror and an archive that is filled at once,
beside the same hub without them, in the same seconds; and of a standby and of a hub that views it.

A process counts with its children. Spans are whole minutes, for the mirror's sake, and the first
one five of them, in which a block of seconds is written and archived. The last size is one after
the other: a machine of two cores does not carry both hubs and their senders.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.figure import Figure
from tests.faults.scale.site import copy_key, second_bytes, start_engines
from tests.integration.hubs import HubProcess, StartedHub, wait_for
from tests.integration.standbys import PairedHub
from tests.integration.visitors import add_program
from tests.machine import ELSEWHERE
from tests.swarm import GPUS, Swarm

PROGRAMS = ("postgres", "victoria-metrics")
DAY_S = 86_400
TOKEN_S = 7_200.0


class ScaleSizes(NamedTuple):
    beside: tuple[int, ...]  # nodes, of both hubs at the same time
    apart: int  # nodes, of one hub after the other; 0: not at all
    settle_s: float
    first_s: float
    seconds: float


WHOLE = ScaleSizes((500, 1_250), 2_500, 5.0, 300.0, 60.0)
QUICK = ScaleSizes((12,), 0, 1.0, 4.0, 4.0)


class StartedPair(StartedHub, PairedHub):
    """Hub of a pair in a separate process, so that its CPU can be measured."""


class FullSite(NamedTuple):
    active: StartedPair
    standby: StartedPair
    viewer: StartedHub


class Cost(NamedTuple):
    gpu_us: float  # of CPU, per GPU and second
    core_pct: float
    pss_mb: float
    sent_pct: float  # of the samples that were due


class Meter:
    """CPU of a hub and its children from now on, by the samples that its senders sent."""

    def __init__(self, hub: HubProcess, swarm: Swarm, nodes: int) -> None:
        self._pid, self._swarm, self._nodes = hub.process.pid, swarm, nodes
        self._begin = self._look()

    def _look(self) -> tuple[float, int, float]:
        cpu_s = sum(times.user + times.system for times in (
            process.cpu_times() for process in _family(self._pid)))
        return cpu_s, self._swarm.count()["frames"], time.monotonic()

    def take(self) -> Cost:
        cpu_s, frames, seconds = (now - before for now, before in zip(
            self._look(), self._begin, strict=True))
        return Cost(1e6 * cpu_s / (frames * GPUS), 100 * cpu_s / seconds,
                    sum(map(_pss_mb, _family(self._pid))),
                    100 * frames / (self._nodes * seconds))


def _family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _pss_mb(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss) / 1e6


def figures(sizes: ScaleSizes = WHOLE) -> Iterator[Figure]:
    path = f"{os.environ['PATH']}:{ELSEWHERE}"
    if away := [name for name in PROGRAMS if shutil.which(name, path=path) is None]:
        print(f"{', '.join(away)}: not here, so no figures of scale", file=sys.stderr)
        return
    with (tempfile.TemporaryDirectory() as folder, full_site(Path(folder)) as site,
          StartedHub(Path(folder) / "bare") as bare, _swarm(bare) as bare_swarm,
          _swarm(site.active) as swarm):
        for nodes in sizes.beside:
            bare_swarm.grow(nodes)
            swarm.grow(nodes)
            time.sleep(sizes.settle_s)
            seconds = sizes.first_s if nodes == sizes.beside[0] else sizes.seconds
            yield from _of_size(nodes, *_beside(site, bare, swarm, bare_swarm, nodes, seconds))
        yield from _of_archive(site.active)
    if sizes.apart:
        yield from _of_size(sizes.apart, *_apart(sizes))


def _swarm(hub: HubProcess) -> Swarm:
    return Swarm(hub.port, hub, hub.api_token)


def _beside(site: FullSite, bare: StartedHub, swarm: Swarm, bare_swarm: Swarm, nodes: int,
            seconds: float) -> tuple[Cost, Cost, Cost, Cost]:
    meters = [Meter(bare, bare_swarm, nodes),
              *(Meter(hub, swarm, nodes) for hub in (site.active, site.standby, site.viewer))]
    time.sleep(seconds)
    bare_cost, full, standby, viewer = (meter.take() for meter in meters)
    return bare_cost, full, standby, viewer


def _apart(sizes: ScaleSizes) -> tuple[Cost, Cost, Cost, Cost]:
    """Measure at one size, first the bare hub and then the other, each with its senders alone."""
    with (tempfile.TemporaryDirectory() as folder, StartedHub(Path(folder) / "bare") as bare,
          _swarm(bare) as swarm):
        swarm.grow(sizes.apart)
        time.sleep(sizes.settle_s)
        meter = Meter(bare, swarm, sizes.apart)
        time.sleep(sizes.seconds)
        bare_cost = meter.take()
    with (tempfile.TemporaryDirectory() as folder, full_site(Path(folder)) as site,
          _swarm(site.active) as swarm):
        swarm.grow(sizes.apart)
        time.sleep(sizes.settle_s)
        meters = [Meter(hub, swarm, sizes.apart) for hub in site]
        time.sleep(sizes.seconds)
        full, standby, viewer = (meter.take() for meter in meters)
    return bare_cost, full, standby, viewer


def _of_size(nodes: int, bare: Cost, full: Cost, standby: Cost, viewer: Cost) -> Iterator[Figure]:
    yield Figure(f"scale, {nodes * GPUS:,} GPUs: active hub, all on, CPU per GPU and second",
                 full.gpu_us, "us")
    yield Figure("  the same hub bare", bare.gpu_us, "us")
    yield Figure("  all on / bare, CPU", full.gpu_us / bare.gpu_us, "x")
    yield Figure("  all on / bare, memory", full.pss_mb / bare.pss_mb, "x")
    yield Figure("  active hub, all on: of one core", full.core_pct, "%")
    yield Figure("  PSS of it, with its children", full.pss_mb, "MB")
    yield Figure("  PSS of the bare one", bare.pss_mb, "MB")
    yield Figure("  standby: of one core", standby.core_pct, "%")
    yield Figure("  standby: PSS", standby.pss_mb, "MB")
    yield Figure("  hub that views it: of one core", viewer.core_pct, "%")
    yield Figure("  hub that views it: PSS", viewer.pss_mb, "MB")
    yield Figure("  samples sent, of those due, all on", full.sent_pct, "%")
    yield Figure("  samples sent, of those due, bare", bare.sent_pct, "%")


def _of_archive(hub: HubProcess) -> Iterator[Figure]:
    """Yield what seconds take in the archive, as far as blocks of them were written."""
    if (size := second_bytes(hub)) is not None:
        yield Figure("scale: a GPU's seconds of a day in the archive", DAY_S * size / 1e6, "MB")


@contextmanager
def full_site(folder: Path) -> Iterator[FullSite]:
    """Start an active hub and a standby on one database, with archive and mirror, and a viewer."""
    with ExitStack() as stack:
        engines = stack.enter_context(start_engines(folder))
        state = engines.postgres.database()

        def start(name: str) -> StartedPair:
            return stack.enter_context(StartedPair(folder / name, state, *engines.flags))

        active = start("one")
        wait_for(lambda: active.is_active, why="the first hub is active")
        copy_key(folder / "one", folder / "two")
        standby = start("two")
        token = folder / "token"
        token.write_text(add_program(active, lasts_s=TOKEN_S))
        viewer = stack.enter_context(StartedHub(
            folder / "viewer", 0, "--cluster", "overview", "--view", f"site={active.url}",
            "--view-token-file", f"site={token}"))
        yield FullSite(active, standby, viewer)
