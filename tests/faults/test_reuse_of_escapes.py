"""Tasks that fork while they are ended, and whose children's pids go to innocents in the same
moment: against `gpudeck agent` over a real socket, where the kernel reports forks to it."""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpudeck.contract.actions import FINAL, YOUNGEST_S, Reply
from tests.fakes.children import a_ceiling
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeNvml
from tests.faults.forging import Forge
from tests.faults.reuse import task_id
from tests.integration.test_actions_escapes import needs_births
from tests.integration.test_agent_process import an_agent, flags

# At once: they get old enough together, and end while their previews are valid.
BATCH = 25
TRIALS = int(os.environ.get("GPUDECK_ESCAPES", "20"))
SOAK_TRIALS = int(os.environ.get("GPUDECK_SOAK_ESCAPES", "1000"))


@pytest.fixture
def forge() -> Iterator[Forge]:
    if os.geteuid() != 0 and "CI" not in os.environ:
        pytest.skip("needs root, to choose the next pid")
    forge = Forge()
    yield forge
    forge.close()


def outcome(hub: FakeHub, command_id: str) -> Reply:
    def final() -> list[Reply]:
        return [reply for reply in hub.replies[command_id] if reply.state in FINAL]

    wait_for(final)
    return final()[-1]


def batch(hub: FakeHub, nvml: FakeNvml, forge: Forge, count: int) -> Counter[str]:
    """Count what happened; only processes of the tasks may have ended."""
    counts = [(random.randint(1, 12), random.randint(0, 4)) for _ in range(count)]
    tasks = forge.ask("leaky", counts=counts)
    nvml.gpus[0].lines = [f"process 0 compute {was['pid']} {2**30} started={was['start_ticks']}"
                          for was in tasks]
    nvml.save()
    time.sleep(YOUNGEST_S + 0.1)  # within its first seconds nothing is done to a task
    previews = [hub.look(task_id(was), grace_s=5.0) for was in tasks]
    assert not [preview.refusals for preview in previews if preview.refusals]
    with ThreadPoolExecutor(1) as pool:
        catching = pool.submit(forge.ask, "catch")
        replies = [outcome(hub, hub.send(hub.order(preview))) for preview in previews]
        innocents = catching.result(60)
    assert {reply.state for reply in replies} == {"done"}, replies
    hit = [pid for pid in innocents if not forge.ask("is_running", pid=pid)]
    assert not hit, (hit, replies)
    for pid in (*innocents, *(was["pid"] for was in tasks)):
        forge.ask("finish", pid=pid)
    survivors = orphans(min(was["pid"] for was in tasks))
    assert not survivors, (survivors, replies)
    return Counter(trials=len(counts), reused=len(innocents),
                   fled=sum(fleeing for _, fleeing in counts))


def orphans(first: int) -> list[int]:
    """Pids of orphans of the forge's program: children that fled have lost their parent."""
    pids = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            row = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            words = Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:
            continue
        if (b"forge.py" in words and row[1] == "1" and row[0] not in "ZX"
                and int(entry) > first):
            pids.append(int(entry))
    return pids


def escapes(tmp_path: Path, forge: Forge, trials: int) -> None:
    nvml = FakeNvml(tmp_path / "nvml.txt", gpus=1)
    nvml.gpus[0].update(mem_adds=1, mem_used=2**20, mem_total=80 * 2**30)
    nvml.save()
    hub = FakeHub()
    happened: Counter[str] = Counter()
    try:
        with an_agent(*flags(hub, tmp_path), "--ceiling",
                      str(a_ceiling(tmp_path, kills_per_hour=10 * SOAK_TRIALS)), env=nvml.env()):
            wait_for(lambda: [1 for _, beat in hub.beats if beat.reader == "ok"])
            for first in range(0, trials, BATCH):
                happened += batch(hub, nvml, forge, min(BATCH, trials - first))
    finally:
        hub.close()
    print(f"{dict(happened)}: 0 innocents hit, nobody who fled is left")
    assert happened["reused"] > trials, "too few pids were used again: nothing was tried"


@needs_births
def test_no_innocent_is_hit_under_the_pid_of_who_was_born_meanwhile(tmp_path: Path, forge: Forge
                                                                    ) -> None:
    escapes(tmp_path, forge, TRIALS)


@needs_births
@pytest.mark.soak
def test_no_innocent_of_many_is_hit_either(tmp_path: Path, forge: Forge) -> None:
    escapes(tmp_path, forge, SOAK_TRIALS)
