"""The demo's hub: the normal hub, with a simulated history of the hours before the fleet began.

A separate process makes the messages the fleet would have sent; they are stored as late messages
are, by the engine's own writer. Nothing in them shows that they are made up, so no other hub
accepts such messages from anybody.
"""

import logging
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import gevent
import msgspec

from gpudeck.contract.wire import Event, Frame, Inventory, decode_from_agent
from gpudeck.errors import run_as_program
from gpudeck.measures.metrics import Absence
from gpudeck.system.child_processes import tied_to_me

from ..alerts.service import AlertService
from ..composition import Core
from ..fleet.events import FleetEvent
from ..fleet.idle_history import IdleHistory
from ..fleet.state_machine import FleetStateMachine
from ..history.columns.memory import BLOCK_S
from ..history.columns.rows import HistoryMessage
from ..history.files.sealing import GRACE_S
from ..history.reads.embedded import EmbeddedHistory
from ..nodes.recorder import MessageRecorder
from ..serve import serve
from ..settings import hub_settings
from .history_plan import DemoHistoryPlan, read, save
from .opening_alerts import opening_alerts
from .supervisor import PACKAGE_PREFIX

if TYPE_CHECKING:
    from ..app import Hub

log = logging.getLogger("gpudeck.demo")

STREAM = "past"
LENGTH = struct.Struct("<I")
PAUSE_S = 0.01  # lets live messages be processed
MINUTE_S = 60
OPENING_S = 900
WAIT_S = 30.0
SETTLED_S = 2 * BLOCK_S  # by then all of it is in files


class DemoHistoryMaker:
    def __init__(self, core: Core, folder: Path, past: DemoHistoryPlan) -> None:
        self._machine = core.get(FleetStateMachine)
        self._idle_history = core.get(IdleHistory)
        self._alerts = core.get(AlertService)
        self._history = core.get(EmbeddedHistory)
        self._recorder = core.get(MessageRecorder)
        self._folder = folder
        self._past = past
        self._idle: dict[str, float] = {}  # since when, by GPU

    def run(self) -> None:
        past = self._past
        # Started early: its imports take as long as a node takes to connect.
        with subprocess.Popen(self._command(), stdout=subprocess.PIPE, stdin=subprocess.PIPE,
                              preexec_fn=tied_to_me()) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            self._wait_for_nodes()
            if past.begin == 0:  # else: a killed hub had begun, and the same is made again
                past.end = int(time.time())
                # A partial minute would count differently in minutes than in hours.
                past.begin = -(-(past.end - past.seconds) // MINUTE_S) * MINUTE_S
                save(self._folder, past)
            log.info("making up the past seconds=%d gpus=%d", past.end - past.begin, past.gpus)
            began = time.monotonic()
            process.stdin.write(msgspec.msgpack.encode((past.begin, past.end, self._counters())))
            process.stdin.close()
            self._store_history(process.stdout)
        if process.returncode != 0:
            log.warning("the past could not be made up exit=%d", process.returncode)
            self._open()
            return
        past.made, past.is_ready = past.end - past.begin, True
        self._idle_history.look_again()
        save(self._folder, past)
        log.info("the past is there seconds=%d took_s=%.1f", past.made, time.monotonic() - began)
        gevent.sleep(SETTLED_S + GRACE_S)
        past.is_kept = True
        save(self._folder, past)

    def _counters(self) -> dict[str, float]:
        """Return the energy counters that the boards report now, in joules, by UUID."""
        fleet = self._machine.fleet
        column = fleet.column("energy_j", time.monotonic())
        return {uuid: float(column.values[slot]) for slot, uuid in enumerate(fleet.uuids)
                if column.absent[slot] == Absence.PRESENT}

    def _command(self) -> list[str]:
        past = self._past
        return [sys.executable, "-P", "-m", PACKAGE_PREFIX + "agent.simulator.past",
                str(past.nodes), str(past.real), past.simulate]

    def _wait_for_nodes(self) -> None:
        """Wait until all nodes report live, so that there is no gap after the history; at most
        WAIT_S."""
        deadline = time.monotonic() + WAIT_S
        fleet = self._machine.fleet
        while time.monotonic() < deadline:
            live = [node for node in fleet.nodes.values() if node.frame is not None]
            if len(live) >= self._past.nodes:
                break
            gevent.sleep(0.2)

    def _store_history(self, source: IO[bytes]) -> None:
        """Store the messages in the history; the loop only hands the work to threads."""
        pool, parts = gevent.get_hub().threadpool, _parts(source)
        node_of: dict[str, str] = {}
        seconds = 0
        while (part := pool.apply(next, (parts, None))) is not None:
            host, payloads = part
            if host == "":
                self._note_idle(payloads)
                continue
            if host not in node_of:
                node_of |= {node.hello.host: node_id
                            for node_id, node in self._machine.fleet.nodes.items()}
            if (node_id := node_of.get(host)) is None:
                continue
            messages, events = pool.apply(_messages_and_events, (node_id, payloads))
            # Not in the log's segments: a hub that is killed makes the history again.
            pool.apply(self._history.append, (messages, self._recorder.segment))
            for event in events:
                self._machine.events.add(event)
            seconds += sum(isinstance(message.message, Frame) for message in messages)
            self._report(seconds // self._past.nodes)
            gevent.sleep(PAUSE_S)

    def _note_idle(self, payloads: Sequence[bytes]) -> None:
        """Store since when each GPU has been idle, which comes first. No payload: the newest part
        of the history is complete."""
        for payload in payloads:
            self._idle = msgspec.msgpack.decode(payload, type=dict[str, float])
        self._idle_history.told(self._idle, time.time(), time.monotonic())
        if not payloads:
            self._open()

    def _open(self) -> None:
        """Mark the newest part of the history as ready, with the alerts that would fire by now."""
        past = self._past
        if past.is_open:
            return
        try:
            self._alerts.go_on(gevent.get_hub().threadpool.apply(
                opening_alerts, (self._alerts, self._history, past.end - OPENING_S, past.end)))
        except Exception:  # better a demo without alerts than none
            log.exception("opening_alerts_failed")
        past.is_open = True
        save(self._folder, past)
        log.info("the newest of the past is there")

    def _report(self, seconds: int) -> None:
        """Save the progress once a minute of history, and log it every 20 minutes of history."""
        if seconds // 1_200 > self._past.made // 1_200:
            log.info("the past: %d of %d minutes", seconds // 60, self._past.seconds // 60)
        if seconds // MINUTE_S > self._past.made // MINUTE_S:
            self._past.made = seconds
            save(self._folder, self._past)


def _messages_and_events(node_id: str, payloads: Sequence[bytes]
                         ) -> tuple[list[HistoryMessage], list[FleetEvent]]:
    """Return the messages for the history, and those of them that are events."""
    messages = [HistoryMessage(node_id, STREAM, time.time(), message, is_backfill=True)
                for message in map(decode_from_agent, payloads)
                if isinstance(message, Inventory | Frame | Event)]
    return messages, [FleetEvent(node_id, STREAM, message.message.taken_at, None, message.message)
                      for message in messages if isinstance(message.message, Event)]


def _parts(source: IO[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    decode = msgspec.msgpack.Decoder(tuple[str, list[bytes]]).decode
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        yield decode(source.read(*LENGTH.unpack(head)))


def hub(argv: Sequence[str]) -> int:
    """Run the hub as `gpudeck hub` does, with the demo's history."""
    return serve(hub_settings(argv, os.environ), _history_maker)


def _history_maker(hub: "Hub", folder: Path) -> "list[gevent.Greenlet[..., object]]":
    past = read(folder)
    if past is None or past.is_kept:
        return []
    return [gevent.spawn(DemoHistoryMaker(hub.core, folder, past).run)]


if __name__ == "__main__":
    run_as_program(hub)
