"""The demo's hub: the hub as it is, and beside it the hours before the simulated fleet began.

What the fleet would have reported comes from a process of its own and goes into
history as late messages do, by the engine's own writer. It is made up and says so nowhere else, so
no other hub takes such messages from anybody.
"""

import logging
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

import gevent
import msgspec

from gpudeck.child_processes import tied_to_me
from gpudeck.errors import run_as_program
from gpudeck.wire import Event, Frame, Inventory, decode_from_agent

from ..fleet.events import FleetEvent
from ..history.memory import BLOCK_S
from ..history.rows import HistoryMessage
from ..history.sealing import GRACE_S
from ..serve import serve
from ..settings import hub_settings
from .history_plan import DemoHistoryPlan, read, save
from .supervisor import BESIDE

if TYPE_CHECKING:
    from ..app import Hub

log = logging.getLogger("gpudeck.past")

STREAM = "past"
LENGTH = struct.Struct("<I")
AT_ONCE = 400  # messages; live ones wait behind them
PAUSE_S = 0.01
WAIT_S = 30.0
SETTLED_S = 2 * BLOCK_S  # later than that, all of it is in files


class DemoHistoryMaker:
    def __init__(self, hub: "Hub", folder: Path, past: DemoHistoryPlan) -> None:
        self._hub = hub
        self._folder = folder
        self._past = past
        self._seconds: set[int] = set()

    def run(self) -> None:
        past = self._past
        self._wait_for_nodes()
        if past.begin == 0:  # else: a hub that was killed had begun, and the same is made again
            past.end = int(time.time())
            past.begin = past.end - past.seconds
            save(self._folder, past)
        log.info("making up the past seconds=%d gpus=%d", past.end - past.begin, past.gpus)
        began = time.monotonic()
        with subprocess.Popen(self._command(), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              preexec_fn=tied_to_me()) as process:
            assert process.stdout is not None
            self._take(process.stdout)
        if process.returncode != 0:
            log.warning("the past could not be made up exit=%d", process.returncode)
            return
        past.made, past.is_ready = past.end - past.begin, True
        self._hub.idle_history.look_again()
        save(self._folder, past)
        log.info("the past is there seconds=%d took_s=%.1f", past.made, time.monotonic() - began)
        gevent.sleep(SETTLED_S + GRACE_S)
        past.is_kept = True
        save(self._folder, past)

    def _command(self) -> list[str]:
        past = self._past
        return [sys.executable, "-P", "-m", BESIDE + "agent.cli.demo_history", *map(str, (
            past.nodes, past.real, past.begin, past.end)), past.simulate]

    def _wait_for_nodes(self) -> None:
        """Until all live ones report: so there is no hole between the past and them."""
        deadline = time.monotonic() + WAIT_S
        fleet = self._hub.machine.fleet
        while time.monotonic() < deadline:
            live = [node for node in fleet.nodes.values() if node.frame is not None]
            if len(live) >= self._past.nodes:
                break
            gevent.sleep(0.2)
        gevent.sleep(2.0)  # who has just opened the page comes first

    def _take(self, source: IO[bytes]) -> None:
        """The loop only shares the work out."""
        pool, messages = gevent.get_hub().threadpool, _messages(source)
        node_of: dict[str, str] = {}
        most = 1  # what is idle since when comes first, and waits for nothing else
        while True:
            chunk: list[tuple[str, bytes]] = pool.apply(_some, (messages, most))
            most = AT_ONCE
            if not chunk:
                return
            if chunk[0][0] == "":  # before all else, since when which GPU idles
                since = msgspec.msgpack.decode(chunk.pop(0)[1], type=dict[str, float])
                self._hub.idle_history.told(since, time.time(), time.monotonic())
                continue
            if missing := {host for host, _ in chunk} - node_of.keys():
                node_of |= {node.hello.host: node_id
                            for node_id, node in self._hub.machine.fleet.nodes.items()
                            if node.hello.host in missing}
            kept = pool.apply(self._place, (chunk, dict(node_of)))
            for each in kept:
                self._hub.machine.events.add(each)
            self._say(chunk)
            gevent.sleep(PAUSE_S)

    def _place(self, chunk: list[tuple[str, bytes]], node_of: dict[str, str]) -> list[FleetEvent]:
        """In a native thread. The Events, which the loop keeps."""
        stored, events = [], []
        for host, payload in chunk:
            message = decode_from_agent(payload)
            node_id = node_of.get(host)
            if node_id is None or not isinstance(message, Inventory | Frame | Event):
                continue
            stored.append(HistoryMessage(node_id, STREAM, time.time(), message, is_backfill=True))
            if isinstance(message, Event):
                events.append(FleetEvent(node_id, STREAM, message.taken_at, None, message))
        # Of no segment of the log: a hub that is killed makes it again.
        self._hub.history.append(stored, self._hub.recorder.segment)
        return events

    def _say(self, chunk: Sequence[tuple[str, bytes]]) -> None:
        """How much there is, once a minute of it."""
        message = decode_from_agent(chunk[-1][1]) if chunk else None
        if isinstance(message, Frame):
            self._seconds.add(int(message.taken_at))
        made = len({second // 60 for second in self._seconds}) * 60
        if made // 1_200 > self._past.made // 1_200:
            log.info("the past: %d of %d minutes", made // 60, self._past.seconds // 60)
        if made > self._past.made:
            self._past.made = made
            save(self._folder, self._past)


def _messages(source: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    decode = msgspec.msgpack.Decoder(tuple[str, bytes]).decode
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        yield decode(source.read(*LENGTH.unpack(head)))


def _some(messages: Iterator[tuple[str, bytes]], most: int) -> list[tuple[str, bytes]]:
    return list(islice(messages, most))


def hub(words: Sequence[str]) -> int:
    """As `gpudeck hub`, for the demo alone."""
    return serve(hub_settings(words, os.environ), _beside)


def _beside(running: "Hub", folder: Path) -> "list[gevent.Greenlet[..., object]]":
    past = read(folder)
    if past is None or past.is_kept:
        return []
    return [gevent.spawn(DemoHistoryMaker(running, folder, past).run)]


if __name__ == "__main__":
    run_as_program(hub)
