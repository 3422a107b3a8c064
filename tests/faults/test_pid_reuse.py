"""Forced pid reuse between observation and command, against `gpudeck agent` over a real socket.

The identity of a process decides, not its age: the innocents of two tests are old enough.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.tasks.processes import has_pidfs
from gpudeck.contract.actions import YOUNGEST_S, Reply
from tests.faults.reuse import Bed, Identity, a_bed, task_id

BATCH = 30  # an agent lets 32 commands wait
RECONNECT_EVERY = 20  # batches: one connection has an allowance (agent/link/socket.py)
TRIALS = int(os.environ.get("GPUDECK_REUSES") or ("2000" if os.environ.get("CI") else "1000"))
SOAK_TRIALS = int(os.environ.get("GPUDECK_SOAK_REUSES", "1000000"))
DOCUMENTED = {"identity", "gone", "young", "condition"}


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with a_bed(tmp_path, own_pid_namespace=True) as bed:
        yield bed


def wait_until_of_age() -> None:
    time.sleep(YOUNGEST_S + 0.1)


def codes(replies: Sequence[Reply]) -> Counter[str]:
    return Counter(reply.refusal.code if reply.refusal else reply.state for reply in replies)


def forced_reuse(bed: Bed, trials: int) -> None:
    """The forge makes the next batch while the agent judges this one."""
    outcomes: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    same_tick, sizes = 0, [min(BATCH, trials - at) for at in range(0, trials, BATCH)]
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(bed.forge.ask, "trials", count=sizes[0])
        for number, count in enumerate(sizes):
            pairs: list[tuple[Identity, int]] = coming.result()
            victims = [was for was, _ in pairs]
            same_tick += sum(was["start_ticks"] == start for was, start in pairs)
            # To the driver the innocent is on the GPU: it could not look more like the victim.
            bed.lists(*((was["pid"], start) for was, start in pairs))
            ids = bed.send([bed.shows(was) for was in victims])
            if number + 1 < len(sizes):
                coming = pool.submit(bed.forge.ask, "trials", count=sizes[number + 1])
            outcomes += codes(bed.outcomes(ids))
            if number % RECONNECT_EVERY == RECONNECT_EVERY - 1:
                bed.reconnect()
            judgement = pool.submit(bed.forge.ask, "judge", victims=victims).result()
            assert judgement["alive"] == count, (judgement, outcomes)
            hits.update(judgement)
    print(f"{trials} forced reuses, {same_tick} within one tick: 0 innocents hit; answers "
          f"{dict(outcomes)}; os.kill hit {hits['os_kill']}, a late pidfd with a start-time check "
          f"{hits['late']}")
    assert outcomes.total() == trials
    # Age and the fresh list would save them too; here the first of the guards must.
    assert set(outcomes) <= ({"identity"} if has_pidfs() else DOCUMENTED)
    assert hits["os_kill"] > 0.99 * trials  # the control arm: these reuses are real
    assert hits["late"] == same_tick > 0  # and the hard case was among them


def test_no_innocent_is_hit(bed: Bed) -> None:
    forced_reuse(bed, TRIALS)
    bed.check()


@pytest.mark.soak
def test_no_innocent_of_a_million_is_hit(bed: Bed) -> None:
    forced_reuse(bed, SOAK_TRIALS)
    bed.check()


def test_what_this_agent_showed_itself_and_that_it_can_hit_at_all(bed: Bed) -> None:
    """Previews are the agent's own; then some victims end and innocents take their pids."""
    victims: list[Identity] = bed.forge.ask("live", count=40)
    bed.lists(*((was["pid"], was["start_ticks"]) for was in victims))
    wait_until_of_age()
    previews = [bed.hub.look(task_id(was), grace_s=5.0) for was in victims]
    assert all(preview.refusals == () for preview in previews)
    random.shuffle(order := list(range(len(victims))))
    reused, real = order[:30], order[30:]
    starts = bed.forge.ask("replace", pids=[victims[at]["pid"] for at in reused])
    bed.lists(*((victims[at]["pid"], start) for at, start in zip(reused, starts, strict=True)),
              *((victims[at]["pid"], victims[at]["start_ticks"]) for at in real))
    assert set(codes(bed.order([previews[at] for at in reused]))) <= DOCUMENTED
    assert bed.forge.ask("judge", victims=[victims[at] for at in reused])["alive"] == len(reused)
    # Without this arm an agent that refuses everything would pass.
    assert codes(bed.order([previews[at] for at in real])) == {"done": len(real)}
    assert not any(bed.forge.ask("is_running", pid=victims[at]["pid"]) for at in real)
    bed.check()


def test_innocents_of_age(bed: Bed) -> None:
    """100 pids, each with three owners before the one that has it now and is old enough."""
    # Without pidfs, processes that started within one tick are the same to us: there, as in real
    # life, the victim was old enough and so began ticks before.
    gap_s = 0.0 if has_pidfs() else 0.02
    rows: list[tuple[list[Identity], int]] = bed.forge.ask(
        "owners", pids=100, earlier=3, gap_s=gap_s)
    assert len(rows) > 75
    bed.lists(*((owners[0]["pid"], start) for owners, start in rows))
    wait_until_of_age()
    victims = [was for owners, _ in rows for was in owners]
    random.shuffle(victims)
    outcomes: Counter[str] = Counter()
    for at in range(0, len(victims), BATCH):
        outcomes += codes(bed.order([bed.shows(was) for was in victims[at:at + BATCH]]))
    assert outcomes == {"identity": len(victims)}
    innocents = [owners[0] for owners, _ in rows]
    hits = bed.forge.ask("judge", victims=innocents)
    assert hits["alive"] == hits["os_kill"] == len(rows)
    print(f"{len(victims)} commands for earlier owners of {len(rows)} pids: {dict(outcomes)}")
    bed.check()


def test_a_pid_namespace_of_its_own_is_refused(tmp_path: Path) -> None:
    with a_bed(tmp_path) as bed:
        [was] = bed.forge.ask("live", count=1)
        bed.lists((was["pid"], was["start_ticks"]))
        wait_until_of_age()
        preview = bed.hub.look(task_id(was))
        assert [refusal.code for refusal in preview.refusals] == ["pidns"]
        assert "Run it on the host" in preview.refusals[0].sentence
        assert codes(bed.order([bed.shows(was)])) == {"pidns": 1}
        assert bed.forge.ask("is_running", pid=was["pid"])
        bed.check()
