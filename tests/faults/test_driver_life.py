"""The worst day of a driver, under a whole node with its real reading process: hung, one board
lost, indices permuted, unloaded and loaded as another version. The clock is scaled: a tenth of
`Patience`, so that the six seconds of hanging are the sixty that make the watchdog replace it.

Shown: heartbeats never pause, other boards go on, the node comes back by itself each time, and
no number is ever reported under a wrong UUID."""

import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.backends import NVML
from agent.journal.store import ActionStore
from agent.link.identity import NodeIdentity, node_key
from agent.link.outbox import Outbox
from agent.link.outbox_file import OutboxFile
from agent.node import run_node
from agent.node_config import NodeConfig
from agent.reader.supervisor import ReaderTimeouts
from agent.reader.watchdog import ReaderProcess
from gpudeck.contract.wire import GPU_STATES, Frame, unpack
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence
from gpudeck.network.keys import fingerprint
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeNvml
from tests.integration.test_agent_process import an_agent, children_of, flags

BEAT_GAP_MAX_S = 5.0
GPUS = 5
TENTH = ReaderTimeouts(answer_s=0.5, start_s=3.0, stuck_s=6.0, back_off_s=(0.1, 1.0))
# Readings that identify a board in a Frame: each has a different value on every board.
MARKS = {"temp_c": "temp", "mem_used_bytes": "mem_used", "sm_clock_mhz": "sm_clock"}


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=GPUS)
    for gpu, temp, clock in zip(fake.gpus, random.sample(range(20, 90), GPUS),
                                random.sample(range(200, 1_900), GPUS), strict=True):
        gpu.update(temp=temp, sm_clock=clock)
    fake.save()
    fake.use_in_children(monkeypatch)
    return fake


@contextmanager
def a_node(hub: FakeHub, path: Path) -> Iterator[ReaderProcess]:
    path.mkdir(mode=0o700)
    token = hub.token()
    identity = NodeIdentity(node_key(path), fingerprint(hub.key.public), token)
    journal, acts = OutboxFile(path / "journal.db"), ActionStore(path / "acts.db")
    config = NodeConfig(hubs=(hub.url,), tls_of=lambda _: None, identity=identity,
                        host="host", backend=NVML,
                        boot_id="0" * 36, data=path, acts=acts)
    source, stop = ReaderProcess("nvml", "", lambda _: "", patience=TENTH), threading.Event()
    thread = threading.Thread(
        target=run_node, args=(config, source, Outbox(journal), stop, source))
    thread.start()
    try:
        yield source
    finally:
        stop.set()
        thread.join(timeout=5)
        source.close()
        journal.close()
        acts.close()


def frames(hub: FakeHub) -> list[Frame]:
    return [message for _, message in sorted(hub.messages[hub.stream].items())
            if isinstance(message, Frame)]


def states(hub: FakeHub) -> dict[str, str]:
    """Map UUIDs to states, as the newest Frame has them."""
    newest = frames(hub)[-1]
    gpus = hub.inventories[newest.generation].gpus
    return {facts.uuid: GPU_STATES[state]
            for facts, state in zip(gpus, newest.states, strict=True)}


def wrong_names(hub: FakeHub, nvml: FakeNvml) -> list[str]:
    """Compare all numbers of all Frames with the board under which they were reported."""
    boards = {gpu.uuid: gpu for gpu in nvml.gpus}
    wrong = []
    for frame in frames(hub):
        values = unpack(frame.values)
        for row, facts in enumerate(hub.inventories[frame.generation].gpus):
            for key, mark in MARKS.items():
                at = row * WIDTH + COLUMN[key]
                if (frame.absent[at] == Absence.PRESENT
                        and values[at] != float(boards[facts.uuid][mark])):
                    wrong.append(f"{frame.seq}: {facts.uuid} {key} {values[at]}")
    return wrong


def all_well(hub: FakeHub, nvml: FakeNvml) -> bool:
    return states(hub) == {gpu.uuid: "ok" for gpu in nvml.gpus}


def test_the_worst_day(hub: FakeHub, nvml: FakeNvml, tmp_path: Path) -> None:
    with a_node(hub, tmp_path / "data") as source:
        wait_for(lambda: hub.hellos and frames(hub) and all_well(hub, nvml), 20)
        hung(hub, nvml, source)
        one_lost(hub, nvml)
        permuted(hub, nvml)
        reloaded(hub, nvml, source)
    assert wrong_names(hub, nvml) == []
    beats = [at for at, _ in hub.beats]
    assert len(beats) > 5
    assert max(later - at for at, later in itertools.pairwise(beats)) < BEAT_GAP_MAX_S
    assert hub.broken == []
    assert not [pid for pid in source.pids if Path(f"/proc/{pid}").exists()]


def hung(hub: FakeHub, nvml: FakeNvml, source: ReaderProcess) -> None:
    """Pitfall 21: a hung call blocks everything. All of a node is stale then, as one thread reads
    it; the node itself lives."""
    nvml.lines = ["hang nvmlDeviceGetUtilizationRates", "hang nvmlInitWithFlags"]
    nvml.save()
    wait_for(lambda: source.state == "hung", 10)
    beats = len(hub.beats)
    until = time.monotonic() + TENTH.stuck_s + 0.5
    wait_for(lambda: time.monotonic() > until, TENTH.stuck_s + 2)
    assert set(states(hub).values()) == {"stale"}
    assert len(hub.beats) >= beats + 2
    assert hub.beats[-1][1].reader == "hung"
    assert 1 <= len(source.pids) <= TENTH.stuck_max
    nvml.lines = []
    nvml.save()
    wait_for(lambda: all_well(hub, nvml), 15)


def one_lost(hub: FakeHub, nvml: FakeNvml) -> None:
    victim = nvml.gpus[3]
    victim.lose()
    nvml.save()
    expected_of = {gpu.uuid: "lost" if gpu is victim else "ok" for gpu in nvml.gpus}
    wait_for(lambda: states(hub) == expected_of, 5)
    wait_for(lambda: "GPU 3 is lost" in hub.beats[-1][1].detail, 5)
    assert hub.beats[-1][1].reader == "ok"
    count = len(frames(hub))
    wait_for(lambda: len(frames(hub)) > count + 2, 8)
    assert states(hub) == expected_of


def permuted(hub: FakeHub, nvml: FakeNvml) -> None:
    """Pitfall 13. The lost board is back with the reload, under another index."""
    nvml.gpus[3].heal()
    nvml.renumber([3, 0, 4, 1, 2])
    wait_for(lambda: all_well(hub, nvml) and [
        facts.uuid for facts in hub.inventories[frames(hub)[-1].generation].gpus
    ] == [gpu.uuid for gpu in nvml.gpus], 15)


def reloaded(hub: FakeHub, nvml: FakeNvml, source: ReaderProcess) -> None:
    nvml.unload()
    wait_for(lambda: source.state == "no_driver" and "modprobe" in source.detail, 10)
    wait_for(lambda: set(states(hub).values()) == {"stale"}, 5)
    nvml.driver = "575.57.08"
    nvml.load()
    wait_for(lambda: all_well(hub, nvml), 15)
    wait_for(lambda: hub.hellos[-1].driver_version == "575.57.08", 10)


def test_a_library_that_comes_later_is_found(
    hub: FakeHub, tmp_path: Path
) -> None:
    """trap A.1 code 12: no library at the start; then the library, without its driver; then
    both. The agent is never restarted."""
    nvml = FakeNvml(tmp_path, gpus=2)
    nvml.unload()
    libraries = tmp_path / "lib"
    libraries.mkdir()
    env = {**nvml.env(), "LD_LIBRARY_PATH": str(libraries)}
    with an_agent(*flags(hub, tmp_path), env=env) as agent:
        wait_for(lambda: [1 for _, beat in hub.beats if beat.reader == "no_library"], 20)
        (libraries / "libnvidia-ml.so.1").symlink_to(nvml.library)
        wait_for(lambda: hub.beats[-1][1].reader == "no_driver", 20)
        assert "modprobe" in hub.beats[-1][1].detail
        nvml.load()
        wait_for(lambda: frames(hub) and all_well(hub, nvml), 20)
        wait_for(lambda: hub.beats[-1][1].reader == "ok", 5)
        cost = hub.beats[-1][1].cost
        assert agent.poll() is None
    assert cost is not None
    assert None not in (cost.cpu_pct, cost.memory_bytes, cost.read_s, cost.outbox_bytes)


def test_a_fresh_process_looks_for_lost_boards_without_a_word(
    hub: FakeHub, nvml: FakeNvml, tmp_path: Path
) -> None:
    """The agent tries another reading process while all boards are lost, and reports no failure.
    Its patience of a minute is three seconds here, set where its Python starts."""
    (tmp_path / "sitecustomize.py").write_text(
        "try:\n    import agent.backends.nvml.session as session\n"
        "    session.RENEW_ALL_LOST_S = 3.0\nexcept ImportError:\n    pass\n")
    env = {**os.environ, **nvml.env(), "PYTHONPATH": str(tmp_path)}
    with an_agent(*flags(hub, tmp_path), env=env) as agent:
        wait_for(lambda: hub.hellos and frames(hub) and all_well(hub, nvml), 20)
        first = children_of(agent.pid)
        for gpu in nvml.gpus:
            gpu.lose()
        nvml.save()
        wait_for(lambda: set(states(hub).values()) == {"lost"}, 10)
        for gpu in nvml.gpus:
            gpu.heal()
        nvml.save()
        # The first one would ask again after 15 s.
        wait_for(lambda: children_of(agent.pid) not in ([], first), 12)
        wait_for(lambda: all_well(hub, nvml), 20)
        assert {beat.reader for _, beat in hub.beats} <= {"starting", "ok"}


@pytest.mark.soak
def test_hung_for_a_real_minute(hub: FakeHub, nvml: FakeNvml, tmp_path: Path) -> None:
    """The same at the agent's own patience: the driver hangs for 60 s by the clock on the wall."""
    with an_agent(*flags(hub, tmp_path), env={**os.environ, **nvml.env()}):
        wait_for(lambda: hub.hellos and frames(hub) and all_well(hub, nvml), 20)
        nvml.lines = ["hang nvmlDeviceGetUtilizationRates"]
        nvml.save()
        until = time.monotonic() + 60
        wait_for(lambda: time.monotonic() > until, 70)
        assert hub.beats[-1][1].reader == "hung"
        nvml.lines = []
        nvml.save()
        wait_for(lambda: all_well(hub, nvml), 40)
    beats = [at for at, _ in hub.beats]
    assert max(later - at for at, later in itertools.pairwise(beats)) < BEAT_GAP_MAX_S
    assert wrong_names(hub, nvml) == []
