"""Site past one machine, of real processes: two hubs on one database, with a mirror and an archive
that is filled at once, and nodes that know both."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from dashboard.history.storage.folder import read
from tests.faults.scale.commands import Commander
from tests.faults.scale.nodes import GPUS, Control, Progress, gpu_of, replace
from tests.integration.hubs import REPOSITORY, HubProcess, wait_for
from tests.integration.standbys import PairedHub
from tests.mirrors import MetricsServer, metrics_server
from tests.postgres import PostgresServer, a_server
from tests.s3_server import BUCKET, S3Server, s3_server

GENEROUS = ("--signer-ends-per-node-hour", "100000", "--signer-ends-per-hour", "100000")
COMMANDERS = 2
LOOK_EVERY_S = 0.3
HEARD_WITHIN_S = 3.0


class Engines(NamedTuple):
    postgres: PostgresServer
    s3: S3Server
    metrics: MetricsServer

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of each hub, besides that of its state."""
        return ("--archive", f"s3://{BUCKET}/site?endpoint={self.s3.endpoint}",
                "--archive-after-hours", "0",
                "--mirror", f"remote-write+{self.metrics.url}/api/v1/write")


class ScaleHub(PairedHub):
    answers_within_s = 5.0  # one that stands still is not waited for

    def signal_all(self, number: int) -> None:
        """Signal it and its children, as where a whole machine stands still."""
        for pid in (*self.children(""), self.process.pid):
            os.kill(pid, number)


def is_live(node: Any, now: float) -> bool:
    """Return whether the hub hears it: one that has just started takes a node for what it was."""
    return node["state"] == "live" and (node["last_heard_at"] or 0.0) > now - HEARD_WITHIN_S


class Viewer:
    """Program that looks at both hubs all the time: when did one show every node live?"""

    def __init__(self, hubs: Sequence[ScaleHub], nodes: int) -> None:
        self._nodes, self._over = nodes, threading.Event()
        self.whole_at: list[float] = []
        self.active: ScaleHub | None = None  # the last that showed all
        self._threads = [threading.Thread(target=self._look, args=(hub,)) for hub in hubs]
        for thread in self._threads:
            thread.start()

    def _look(self, hub: ScaleHub) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            try:
                items = hub.get("/api/v1/nodes?limit=1000")["items"]
            except (OSError, AssertionError, ValueError):
                continue
            now = time.time()
            if sum(is_live(node, now) and node["host"].startswith("n") for node in items
                   ) == self._nodes:
                self.active = hub
                self.whole_at.append(now)

    def blind_s(self, start: float, end: float) -> float:
        """Return the longest time between two moments in which nobody was shown the whole fleet."""
        moments = [start, *(at for at in self.whole_at if start < at < end), end]
        return max(after - before for before, after in pairwise(moments))

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


class ScaleSite:
    def __init__(self, folder: Path, nodes: int, engines: Engines) -> None:
        self.folder, self.nodes, self.engines = folder, nodes, engines
        self.state = engines.postgres.database()
        self._starts: dict[str, float] = {}  # by GPU
        self.hubs = [self._hub("one")]
        wait_for(lambda: self.hubs[0].is_active, why="the first hub is active")
        copy_key(self.hubs[0].folder, folder / "two")
        self.hubs.append(self._hub("two"))
        self.crowd = self._start_crowd()
        self.viewer = Viewer(self.hubs, nodes)
        self.commanders = [Commander(f"acting{number}", lambda: self.viewer.active)
                           for number in range(COMMANDERS)]
        for commander in self.commanders:
            commander.start()

    def _hub(self, name: str) -> ScaleHub:
        return ScaleHub(self.folder / name, self.state, *self.engines.flags, *GENEROUS)

    def _start_crowd(self) -> "subprocess.Popen[bytes]":
        folder = self.folder / "nodes"
        folder.mkdir(mode=0o700)
        tokens = folder / "tokens"
        tokens.write_text("\n".join(token.text for token in self.hubs[0].tokens(self.nodes)))
        tokens.chmod(0o600)
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "gevent.monkey", "--module", "tests.faults.scale.nodes",
                 str(folder), ",".join(hub.url for hub in self.hubs)],
                cwd=REPOSITORY, stdout=log, stderr=log)

    def control(self, control: Control) -> None:
        replace(self.folder / "nodes" / "control.json", asdict(control))

    @property
    def progress(self) -> dict[str, Progress]:
        path = self.folder / "nodes" / "nodes.json"
        rows = json.loads(path.read_text()) if path.exists() else {}
        return {name: Progress(**row) for name, row in rows.items()}

    def taken_at(self, gpu: str, number: int) -> float:
        """Return when a sample was taken."""
        if gpu not in self._starts:
            self._starts |= {gpu_of(name, at): row.start for name, row in self.progress.items()
                             for at in range(GPUS)}
        return self._starts[gpu] + number

    @property
    def active(self) -> ScaleHub:
        hub: ScaleHub = wait_for(lambda: next(
            (hub for hub in self.hubs if hub.process.poll() is None and hub.is_active), None),
            why="one hub is active")
        return hub

    def wait_whole(self) -> None:
        """Wait until somebody is shown the whole fleet from now on, and the other hub answers."""
        now = time.time()
        wait_for(lambda: self.viewer.whole_at and self.viewer.whole_at[-1] > now,
                 why="the whole fleet is live")
        wait_for(lambda: all(hub.ready() is not None for hub in self.hubs), why="both answer")

    def lose_disk(self, hub: ScaleHub) -> None:
        """Throw a hub's folder away."""
        shutil.rmtree(hub.folder)
        other = next(one for one in self.hubs if one is not hub)
        copy_key(other.folder, hub.folder)

    def settle(self) -> None:
        """Take no more samples, and wait until the hub has stored what there is."""
        self.control(Control(is_paused=True))
        time.sleep(2.0)
        wait_for(lambda: not any(row.pending for row in self.progress.values()),
                 why="all is stored")

    def close(self) -> None:
        for commander in self.commanders:
            commander.close()
        self.viewer.close()
        self.crowd.terminate()
        self.crowd.wait(30)
        for hub in self.hubs:
            hub.__exit__()


def retry(call: Callable[[], Any], within_s: float = 30.0) -> None:
    """Call until it succeeds: what was killed may not have let go of all yet."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            call()
            return
        except (subprocess.CalledProcessError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def second_bytes(hub: HubProcess) -> float | None:
    """Return the bytes that a GPU's second takes in the files of a hub; None: it has none yet."""
    files = read(hub.folder / "history").of_kind("raw")
    rows = sum(file.rows for file in files)
    return sum(file.size_bytes for file in files) / rows if rows else None


def copy_key(source: Path, folder: Path) -> None:
    """Copy the hub's key to the other hub's folder, as docs/scale.md says."""
    folder.mkdir(mode=0o700, exist_ok=True)
    shutil.copy2(source / "hub.key", folder / "hub.key")


@contextmanager
def start_engines(folder: Path) -> Iterator[Engines]:
    (folder / "metrics").mkdir()
    # Hubs and `gpudeck history` find the keys in the environment.
    with (a_server() as postgres, s3_server() as s3, patch.dict(os.environ, s3.keys),
          metrics_server("victoria-metrics", folder / "metrics") as metrics):
        yield Engines(postgres, s3, metrics)


@contextmanager
def a_site(folder: Path, nodes: int) -> Iterator[ScaleSite]:
    with start_engines(folder) as engines:
        site = ScaleSite(folder, nodes, engines)
        try:
            yield site
        finally:
            site.close()
            for server in engines:
                with suppress(OSError):  # one that a fault has left dead
                    server.signal(signal.SIGCONT)
