"""Mechanisms by which this machine can enforce a Quota, and how that is known. Only looks."""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from gpudeck.contract.desired_state import QuotaMechanism
from gpudeck.contract.limits import MpsDaemon, MpsLimit, MpsServer
from gpudeck.contract.wire import GpuFacts

from ..limits import hami
from ..tasks.control_group import CGROUP

MEMORY_LIMIT_FROM = 615
# Where HAMi-core and its device plugin put the file (HAMi-core 8f3a89c, HAMi 4707fb02).
HAMI_FILES = ("/tmp/cudevshr.cache", "/usr/local/vgpu/containers/*/*.cache")


def mechanisms(driver_version: str | None, facts: Sequence[GpuFacts], is_enabled: bool | None,
               hami_files: Iterable[str] = HAMI_FILES, cgroup: Path = CGROUP
               ) -> tuple[QuotaMechanism, ...]:
    """Return all mechanisms but MPS, which is asked elsewhere."""
    return (memory_limit(driver_version, facts, cgroup, is_enabled), hami_file(hami_files),
            mig(facts),
            QuotaMechanism("ladder", "there", "owners are notified, then their tasks are ended; "
                                              "allocations are not blocked"))


def memory_limit(driver_version: str | None, facts: Sequence[GpuFacts],
                 cgroup: Path, is_enabled: bool | None) -> QuotaMechanism:
    """Return the driver's own limit per cgroup and GPU. `is_enabled`: the agent sets
    them; None: that is not known."""
    mechanism = partial(QuotaMechanism, "memory_limit")
    major = re.match(r"(\d{3,4})\.", driver_version or "")
    if major is None:
        return mechanism("unknown", "the driver has not reported its version")
    if int(major[1]) < MEMORY_LIMIT_FROM:
        return mechanism("not_there", f"driver {driver_version} is older than {MEMORY_LIMIT_FROM}")
    if not (cgroup / "cgroup.controllers").exists():
        return mechanism("not_there", "it needs cgroup v2, and this machine has the first one")
    whole = {gpu.uuid for gpu in facts if gpu.parent_uuid is None}
    if facts and whole <= {gpu.parent_uuid for gpu in facts}:
        return mechanism("not_there", "it does not work with MIG, which is enabled here")
    if not is_enabled:
        return mechanism("not_there" if is_enabled is False else "unknown",
                         f"driver {driver_version} has it; an agent that is started with "
                         "--memory-limits uses it (not verified on hardware)")
    how = "dmem" if (cgroup / "dmem.capacity").exists() else "the driver's own bookkeeping"
    return mechanism("there", f"driver {driver_version}, cgroup v2 with {how}; for each control "
                              "group and GPU. A user can move a process out of the scope of a "
                              "share, not out of a quota's group")


def hami_file(patterns: Iterable[str]) -> QuotaMechanism:
    mechanism = partial(QuotaMechanism, "hami")
    files = []
    for path in sorted(path for pattern in patterns for path in glob.glob(pattern))[:64]:
        limits = _limits(path)
        if limits is not None:
            files.append(f"{path}: " + (", ".join(
                f"{uuid} {most / 2**30:.1f} GiB" for uuid, most in sorted(limits.items()))
                or "no limit"))
    if not files:
        return mechanism("not_there", "no task here runs under HAMi-core")
    return mechanism("there", ("; ".join(files) + "; a task can edit its own limit")[:1_024])


def _limits(path: str) -> dict[str, int] | None:
    """Read the limits in a file. Tenants may write there: follow no link, wait for nothing."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return hami.limits(os.read(file, hami.HEAD), os.fstat(file).st_size)
    except OSError:
        return None
    finally:
        os.close(file)


def mps(daemons: Sequence[MpsDaemon] | None) -> QuotaMechanism:
    """Return MPS as a mechanism: for clients that come next, each by itself; no owner's sum is held
    by it. `daemons` None: nobody has looked yet."""
    mechanism = partial(QuotaMechanism, "mps")
    if daemons is None:
        return mechanism("unknown", "whether MPS runs has not been seen yet")
    alive = [daemon for daemon in daemons if daemon.is_alive]
    if not alive:
        return mechanism("not_there", "no MPS control daemon answers")
    clients = sum(len(daemon.clients) for daemon in alive)
    shares = "; ".join(f"{daemon.pipes}: {_shares(daemon)}" for daemon in alive)
    words = f"{clients} client{'s' * (clients != 1)}; new ones of {shares}"[:900]
    return mechanism("there", f"{words}. It applies to each client separately, and a client can "
                              "shed its memory limit")


def _shares(daemon: MpsDaemon) -> str:
    """Describe the shares of a daemon's servers, or of the next."""
    servers: Sequence[MpsServer | None] = daemon.servers or (None,)
    shares = {_words(daemon.default_pct if server is None else server.pct,
                     daemon.default_memory if server is None else server.memory)
              for server in servers}
    return ", ".join(sorted(shares))


def _words(pct: float | None, memory: Sequence[MpsLimit]) -> str:
    share = "an unknown share" if pct is None else f"{pct:g} % of the threads"
    return " and ".join((share, *(f"{limit.limit} on device {limit.ordinal}" for limit in memory)))


def mig(facts: Sequence[GpuFacts]) -> QuotaMechanism:
    mechanism = partial(QuotaMechanism, "mig")
    count = sum(gpu.parent_uuid is not None for gpu in facts)
    if not count:
        return mechanism("not_there", "no GPU here is split")
    return mechanism("there",
                     f"{count} instances, each with separate memory")
