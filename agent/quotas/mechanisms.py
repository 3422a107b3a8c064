"""Which means this machine has to hold a Quota, and how that is known. Only looks."""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from gpudeck.desired_state import QuotaMechanism
from gpudeck.limits import MpsDaemon, MpsLimit, MpsServer
from gpudeck.wire import GpuFacts

from ..limits import hami

MEMORY_LIMIT_FROM = 615
# Where HAMi-core and its device plugin put the file (HAMi-core 8f3a89c, HAMi 4707fb02).
HAMI_FILES = ("/tmp/cudevshr.cache", "/usr/local/vgpu/containers/*/*.cache")
CGROUP = Path("/sys/fs/cgroup")


def mechanisms(driver_version: str | None, facts: Sequence[GpuFacts],
               hami_files: Iterable[str] = HAMI_FILES, cgroup: Path = CGROUP
               ) -> tuple[QuotaMechanism, ...]:
    """All but MPS, which is asked elsewhere."""
    return (memory_limit(driver_version, facts, cgroup), hami_file(hami_files), mig(facts),
            QuotaMechanism("ladder", "there", "owners are notified, then their tasks are ended; "
                                              "allocations are not blocked"))


def memory_limit(driver_version: str | None, facts: Sequence[GpuFacts],
                 cgroup: Path) -> QuotaMechanism:
    """The driver's own limit per cgroup and GPU."""
    found = partial(QuotaMechanism, "memory_limit")
    major = re.match(r"(\d{3,4})\.", driver_version or "")
    if major is None:
        return found("unknown", "the driver has not reported its version")
    if int(major[1]) < MEMORY_LIMIT_FROM:
        return found("not_there", f"driver {driver_version} is older than {MEMORY_LIMIT_FROM}")
    if not (cgroup / "cgroup.controllers").exists():
        return found("not_there", "it needs cgroup v2, and this machine has the first one")
    if any(each.parent_uuid is not None for each in facts):
        return found("not_there", "it does not work with MIG, which is enabled here")
    how = "dmem" if (cgroup / "dmem.capacity").exists() else "the driver's own bookkeeping"
    return found("there",
                 f"driver {driver_version}, cgroup v2 with {how}; not yet supported by gpudeck")


def hami_file(patterns: Iterable[str]) -> QuotaMechanism:
    found = partial(QuotaMechanism, "hami")
    said = []
    for path in sorted(path for pattern in patterns for path in glob.glob(pattern))[:64]:
        limits = _limits(path)
        if limits is not None:
            said.append(f"{path}: " + (", ".join(
                f"{uuid} {most / 2**30:.1f} GiB" for uuid, most in sorted(limits.items()))
                or "no limit"))
    if not said:
        return found("not_there", "no task here runs under HAMi-core")
    return found("there", ("; ".join(said) + "; a task can edit its own limit")[:1_024])


def _limits(path: str) -> dict[str, int] | None:
    """Tenants may write there: no link is followed, nothing is waited for."""
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
    """For clients that come next, each by itself: no owner's sum is held by it. None: nobody has
    looked yet."""
    found = partial(QuotaMechanism, "mps")
    if daemons is None:
        return found("unknown", "whether MPS runs has not been seen yet")
    alive = [each for each in daemons if each.is_alive]
    if not alive:
        return found("not_there", "no MPS control daemon answers")
    clients = sum(len(each.clients) for each in alive)
    said = "; ".join(f"{each.pipes}: {_given(each)}" for each in alive)
    words = f"{clients} client{'s' * (clients != 1)}; new ones of {said}"[:900]
    return found("there", f"{words}. It applies to each client separately, and a client can shed "
                          "its memory limit")


def _given(daemon: MpsDaemon) -> str:
    """Of its servers, or of the next."""
    given: Sequence[MpsServer | None] = daemon.servers or (None,)
    said = {_words(daemon.default_pct if each is None else each.pct,
                   daemon.default_memory if each is None else each.memory) for each in given}
    return ", ".join(sorted(said))


def _words(pct: float | None, memory: Sequence[MpsLimit]) -> str:
    share = "an unknown share" if pct is None else f"{pct:g} % of the threads"
    return " and ".join((share, *(f"{each.limit} on device {each.ordinal}" for each in memory)))


def mig(facts: Sequence[GpuFacts]) -> QuotaMechanism:
    found = partial(QuotaMechanism, "mig")
    count = sum(each.parent_uuid is not None for each in facts)
    if not count:
        return found("not_there", "no GPU here is split")
    return found("there",
                 f"{count} instances, each with separate memory")
