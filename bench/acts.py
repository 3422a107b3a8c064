"""From the click to the end of a process, and what it costs to prove the Audit."""

import os
import re
import secrets
import select
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from agent.acts_journal import ActsJournal, ActsStore
from agent.hand import Hand
from agent.scene import Ask, Place, preview
from agent.tasks import boot_id
from bench.figure import Figure
from gpudeck.acts import YOUNGEST_S, Asker, Command, Params, Reply
from gpudeck.chain import chain, verify
from tests.fakes.children import Children, a_ceiling
from tests.faults.fleet import Fleet, a_fleet

ENDS = 40
RECORDS = 1_000_000


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, a_fleet(Path(folder)) as fleet:
        gone_ms = _gone_ms(fleet)
    with tempfile.TemporaryDirectory() as folder:
        decided_ms = _decided_ms(Path(folder))
    yield Figure("command: click to process gone, loopback, p50", _part(gone_ms, 0.5), "ms", 80.0)
    yield Figure("  p99", _part(gone_ms, 0.99), "ms")
    yield Figure("  the agent's decision, from its first pidfd to the signal, p50",
                 _part(decided_ms, 0.5), "ms")
    yield Figure("    p99", _part(decided_ms, 0.99), "ms", 50.0)
    yield Figure(f"verify an Audit of {RECORDS:,} records", _verify_s(), "s", 30.0)


def _gone_ms(fleet: Fleet) -> list[float]:
    victims = [fleet.children.start() for _ in range(ENDS)]
    neighbour = fleet.children.start()
    fleet.shows([*victims, neighbour], 60)
    time.sleep(YOUNGEST_S)
    gone_ms = []
    for victim in victims:
        shown = fleet.preview(victim)
        pidfd = os.pidfd_open(victim.pid)
        began = time.perf_counter()
        command = fleet.order(shown)
        assert select.select([pidfd], [], [], 20)[0], "it did not end"
        gone_ms.append((time.perf_counter() - began) * 1e3)
        os.close(pidfd)
        outcome = fleet.outcome(command["id"], 60)
        assert outcome["state"] == "done", outcome
    assert neighbour.is_alive()
    return gone_ms


def _decided_ms(folder: Path) -> list[float]:
    """From the first pidfd to the first signal, as the agent says with its SIGTERM."""
    children, said = Children(), list[str]()
    journal = ActsJournal(ActsStore(folder / "acts.db"))
    folder.chmod(0o700)
    place = Place("node", boot_id(), children, lambda: (), lambda _: 0,
                  a_ceiling(folder), host_pids_only=False)
    try:
        victims = [children.start() for _ in range(ENDS)]
        time.sleep(YOUNGEST_S)
        for victim in victims:
            shown = preview(place, Ask("ask", secrets.token_bytes(32), "end", Params(),
                                       victim.task_id))
            now = time.time()
            command = Command(secrets.token_hex(16), "node", 1, now, now + 25, shown.nonce, "end",
                              Asker("person", "bench"), "because of a bench", shown)
            first = Reply(command.command_id, 1, "accepted", now)
            Hand(place, journal, lambda reply: said.append(reply.step)).act(
                command, journal.seen(command, "digest", first))
    finally:
        children.close()
    found = re.findall(r"([\d.]+) ms after taking hold", " ".join(said))
    assert len(found) == ENDS, said
    return [float(ms) for ms in found]


def _part(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]


def _verify_s() -> float:
    records = ({"at": float(at), "kind": "command", "action": "end", "outcome": "done",
                "command_id": f"{at:032x}", "sentence": "Ended: its processes are gone."}
               for at in range(RECORDS))
    took_s = 0.0
    links, start = chain(records), None
    while block := list(islice(links, 10_000)):
        began = time.perf_counter()
        assert verify(block, start=start) is None
        took_s += time.perf_counter() - began
        start = block[-1]
    return took_s
