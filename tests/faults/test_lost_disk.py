"""The hub's disk is lost: killed with -9, its data folder thrown away, and a new hub made from its
backup and its archive. Agents, sockets and the S3 server are real; every second is counted."""

import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq
import pytest

from agent.backends import NVML
from agent.journal.store import ActionStore
from agent.link.identity import NodeIdentity, node_key
from agent.link.outbox import Outbox, PendingMessages
from agent.link.outbox_file import OutboxFile
from agent.node import run_node
from agent.node_config import NodeConfig
from agent.readings import GpuReading, Reading
from dashboard.actions.hub_key import HubKey
from dashboard.cli.history import history as history_command
from dashboard.cli.hub import hub as hub_command
from dashboard.history.ingest.message_places import ranges_of
from dashboard.history.storage.archive_mark import ArchiveMark, get_mark
from dashboard.history.storage.archive_owner import ArchiveOwner
from dashboard.history.storage.folder import read
from dashboard.history.storage.s3 import S3Bucket, S3MissingError
from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import COLUMNS, WIDTH
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.test_agent_delivery import CountingSource
from tests.s3_server import BUCKET, S3Server, s3_server

# What the state is brought back from; "hasty": a backup, and the hub is started too early.
State = Literal["backup", "database", "hasty"]

NODES = 3
BEGIN = int(time.time()) // 3_600 * 3_600 - 5 * 3_600  # no second waits for the end of its block
FAST = {"dashboard.history.files.archive_mover.EVERY_S": 0.2,
        "dashboard.history.files.archive_marker.EVERY_S": 0.2,
        "dashboard.history.files.sealing.LATE_S": 0.2,
        "dashboard.history.wiring.MAINTAIN_EVERY_S": 0.2,
        "dashboard.nodes.recorder.SEGMENT_S": 1.0,
        "dashboard.history.storage.tiered_archive.ROOM_BYTES": 0}
BEHIND = re.compile(r"^gpudeck_archive_behind_seconds (\S+)$", re.M)


class SecondSource(CountingSource):
    """Readings of one second after another from BEGIN on, faster than those pass."""

    def __init__(self, gpu: str) -> None:
        self._gpu, self.number = gpu, 0
        super().__init__(0.02)

    def latest(self) -> Reading | None:
        if super().latest() is None:
            return None
        self.number = number = self.number + 1
        gpu = GpuReading(self._gpu, "ok", (value_at(number), *[0.0] * (WIDTH - 1)), bytes(WIDTH))
        facts = GpuFacts(uuid=self._gpu, index=0, name="a board")
        return Reading(BEGIN + number + 0.5, 0.01, (gpu,), (facts,), None)


def value_at(number: int) -> float:
    return float(number * 7 % 101 % 100)


class Node:
    def __init__(self, name: str, folder: Path, *hubs: HubProcess) -> None:
        self.name, self.gpu = name, f"GPU-{name}"
        folder.mkdir()
        self.file = OutboxFile(folder / "journal.db")
        self.outbox = Outbox(self.file)
        self.source = SecondSource(self.gpu)
        self._stop = threading.Event()
        identity = NodeIdentity(node_key(folder), HubKey(hubs[0].folder).fingerprint,
                                hubs[0].token())
        self._acts = ActionStore(folder / "acts.db")
        config = NodeConfig(hubs=tuple(hub.url for hub in hubs), tls_of=lambda _: None,
                            identity=identity, host=name, backend=NVML, boot_id="0" * 36,
                            data=folder, acts=self._acts)
        self._thread = threading.Thread(target=run_node, args=(
            config, self.source, self.outbox, self._stop, self.source.wake))
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self.source.close()
        self.file.close()
        self._acts.close()


@contextmanager
def nodes_of(folder: Path, *hubs: HubProcess) -> Iterator[list[Node]]:
    with ExitStack() as stack:
        nodes = []
        for at in range(NODES):
            nodes.append(Node(f"n{at}", folder / f"n{at}", *hubs))
            stack.callback(nodes[-1].close)
        yield nodes


def url(server: S3Server) -> str:
    return f"s3://{BUCKET}/lost?endpoint={server.endpoint}"


def mark_in(server: S3Server, folder: Path) -> ArchiveMark | None:
    store = S3Bucket(url(server), server.keys)
    owner = ArchiveOwner(folder, store, "", lambda: None)
    try:
        owner.read_owner()
        return get_mark(store, folder / "mark", owner.marks)
    except S3MissingError:
        return None


def archived(server: S3Server, folder: Path) -> int:
    """Return how many messages are, by the mark."""
    mark = mark_in(server, folder)
    return 0 if mark is None else sum(
        ranges.count for ranges in ranges_of(mark.streams).values())


def acked(hub: HubProcess) -> int:
    return sum(node["frames"]["acked_seq"] for node in hub.get("/api/v1/nodes")["items"])


def seconds_in_files(folder: Path) -> Counter[tuple[str, int, float]]:
    """Count GPU, second and value of each row, in all files that are history."""
    manifest, column = read(folder), COLUMNS[0].key
    counts: Counter[tuple[str, int, float]] = Counter()
    for file in manifest.of_kind("raw"):
        table = pq.read_table(folder / file.name)
        counts.update(zip(table.column("gpu").to_pylist(), table.column("t").to_pylist(),
                          table.column(column).to_pylist(), strict=True))
    return counts


def read_seconds(nodes: list[Node]) -> Counter[tuple[str, int, float]]:
    return Counter((node.gpu, BEGIN + number, value_at(number)) for node in nodes
                   for number in range(1, node.source.number + 1))


def flaws_in(folder: Path, nodes: list[Node]) -> list[str]:
    """Return what is missing or doubled in the files of a hub."""
    counts, readings = seconds_in_files(folder / "history"), read_seconds(nodes)
    return [f"{key} {readings[key]} times, {counts[key]} in files"
            for key in sorted(readings.keys() | counts.keys()) if readings[key] != counts[key]]


def back_up(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("correct horse battery staple\n")
    assert hub_command(["backup", str(tmp_path / "backup"), "--data", str(folder),
                        "--passphrase-file", str(tmp_path / "words")]) == 0


def throw_away(folder: Path, tmp_path: Path, state: State) -> None:
    """Throw the folder away. A database elsewhere is played by the state's own file: it has
    checkpoints of all that the lost disk had."""
    if state == "database":
        (tmp_path / "else").mkdir(mode=0o700)
        for path in (*folder.glob("state.db*"), folder / "hub.key"):
            shutil.copy2(path, tmp_path / "else" / path.name)
    shutil.rmtree(folder)


def start_too_early(hub: HubProcess) -> None:
    """Start the hub as its backup was, until it says why it archives nothing, and nodes have
    brought something that is in files by then."""
    hub.start()
    began = acked(hub)
    wait_for(lambda: acked(hub) > began + 300, why="it takes what nodes send")
    wait_for(lambda: "it belongs to the hub" in hub.log.read_text(), why="it says why")
    assert hub.stop() == 0


def restore(hub: HubProcess, tmp_path: Path, server: S3Server, state: State) -> None:
    """Make the hub again, as docs/scale.md says."""
    folder = hub.folder
    where = ("--data", str(folder))
    if state == "database":
        (tmp_path / "else").rename(folder)
    else:
        assert hub_command(["restore", str(tmp_path / "backup"), *where,
                            "--passphrase-file", str(tmp_path / "words")]) == 0
    if state == "hasty":
        start_too_early(hub)
    assert history_command(["from-archive", "--archive", url(server), *where,
                            *(["--replace"] if state == "hasty" else [])]) == 0
    assert history_command(["own-archive", *where]) == 0


def check_seqs(hub: HubProcess, nodes: list[Node]) -> None:
    """Check that the new hub has every number, and every event once."""
    frames = {node["host"]: node["frames"] for node in hub.get("/api/v1/nodes")["items"]}
    assert {name: (numbers["acked_seq"], numbers["missing"]) for name, numbers in frames.items()
            } == {node.name: (node.outbox.last_seq, 0) for node in nodes}
    events = Counter((event["host"], event["kind"])
                     for event in hub.get("/api/v1/events")["items"])
    assert {events[node.name, "agent_began"] for node in nodes} == {1}, events


def lose_the_disk(tmp_path: Path, server: S3Server, state: State) -> tuple[list[str], int]:
    """Return what is missing or doubled at the end, and how many seconds there were."""
    folder, flags = tmp_path / "hub", (
        "--archive", url(server), "--archive-after-hours", "0", "--history-raw-hours", "1000",
        "--agent-messages-per-s", "1000")
    with HubProcess(folder, 0, *flags, constants=FAST) as hub, nodes_of(
            tmp_path, hub) as nodes:
        wait_for(lambda: archived(server, tmp_path) > 100, why="something is archived")
        back_up(folder, tmp_path)
        more = archived(server, tmp_path) + 100
        wait_for(lambda: archived(server, tmp_path) > more, why="more than the backup has")
        server.kill()
        acked_then = acked(hub)
        wait_for(lambda: acked(hub) > acked_then + 200, why="stored, and in no archive")
        hub.kill()
        throw_away(folder, tmp_path, state)
        server.start()
        restore(hub, tmp_path, server, state)
        hub.start()
        wait_for(lambda: acked(hub) > acked_then + 300, why="nodes bring it and go on")
        for node in nodes:
            node.source.pause()
        wait_for(lambda: not any(node.outbox.pending for node in nodes), why="all is stored")
        wait_for(lambda: float(BEHIND.findall(hub.ask("/metrics").body.decode())[0]) < 3_600,
                 why="all seconds are archived; events of now wait for the end of their block")
        flaws, readings = flaws_in(folder, nodes), read_seconds(nodes)
        if not flaws:
            check_seqs(hub, nodes)
        return flaws, sum(readings.values())


@pytest.fixture(name="server")
def start_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setattr("agent.link.protocol.BACK_OFF_MAX_S", 0.3)
    with s3_server() as server:
        for name, value in server.keys.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.mark.parametrize("state", ["backup", "database", "hasty"])
def test_every_second_is_there_once_after_the_disk_is_lost(tmp_path: Path, server: S3Server,
                                                          state: State) -> None:
    flaws, count = lose_the_disk(tmp_path, server, state)
    assert flaws == []
    assert count > 500
    print(f"\n{count} seconds of {NODES} nodes: 0 missing, 0 doubled")


def test_the_count_can_fail(tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
                            ) -> None:
    """A control: agents that drop what is stored and not archived."""
    store = PendingMessages.store
    monkeypatch.setattr(PendingMessages, "store", lambda self, first, last, is_copied: store(
        self, first, last, is_copied=False))
    flaws, _ = lose_the_disk(tmp_path, server, "backup")
    assert any("1 times, 0 in files" in flaw for flaw in flaws)
