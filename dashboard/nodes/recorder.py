"""Recorder of messages: in batches to disk, beside the loop, and only then reported as stored."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path

import gevent
from gevent.event import Event as Signal

from gpudeck.contract.wire import Event, Frame, Hello, Inventory

from ..fleet.effects import RecordsStored, StorageFailed, StreamRecord
from ..fleet.state_machine import FleetStateMachine
from ..history.columns.rows import HistoryMessage
from ..history.ingest.headlog import HeadLog, HeadLogEntry
from ..history.reads.protocol import History
from .checkpoint import carried, encode_nodes

log = logging.getLogger("gpudeck.nodes")

FLUSH_EVERY_S = 1.0
SEGMENT_S = 300.0
SEGMENT_BYTES = 256_000_000
MAX_WAITING_BYTES = 64_000_000
RECOVER_AT_ONCE = 2_000
ACKED_AT_ONCE = 128


class MessageRecorder:
    def __init__(self, folder: Path, save_nodes: Callable[[Iterable[tuple[str, bytes]]], None],
                 machine: FleetStateMachine,
                 submit: Callable[[RecordsStored | StorageFailed], None],
                 history: History, confirm: Callable[[], None]) -> None:
        """`confirm`: called before anything is written; ends the process if that is forbidden."""
        self._confirm = confirm
        self._log = HeadLog(folder / "headlog")
        self._save_nodes = save_nodes
        self._machine = machine
        self._submit = submit
        self._history = history
        self._waiting: list[StreamRecord] = []
        self._waiting_bytes = 0
        self._wake = Signal()
        self._stopping = Signal()
        self._rotated_mono = time.monotonic()
        self._are_nodes_whole = True

    def recover(self) -> None:
        """Give the state machine back what the disk holds, before anything else runs."""
        count = 0
        for number, entries in self._log.segments():
            messages: list[HistoryMessage] = []
            for entry in entries:
                message = self._machine.recover(entry)
                if isinstance(message, Hello | Inventory | Frame | Event):
                    messages.append(_for_history(entry, message))
                if len(messages) >= RECOVER_AT_ONCE:
                    self._history.append(messages, number)
                    messages = []
                count += 1
            self._history.append(messages, number)
        damage = self._log.damage
        self._log.open()
        log.info("recovered records=%d torn_bytes=%d bad_records=%d", count, damage.torn_bytes,
                 damage.bad_records)

    def put(self, record: StreamRecord) -> None:
        size = len(record.payload) + 200
        if self._waiting_bytes + size > MAX_WAITING_BYTES:
            self._submit(StorageFailed(
                self._machine.fleet.disk_error
                or "messages arrive faster than the disk can store them", (record,)))
            return
        self._waiting.append(record)
        self._waiting_bytes += size
        self._wake.set()

    def run(self) -> None:
        while not self._stopping.is_set() or self._waiting:
            started = time.monotonic()
            if not self._waiting:
                self._wake.clear()
                self._wake.wait()
            if not self._flush() and self._stopping.is_set():
                return
            self._stopping.wait(max(0.0, FLUSH_EVERY_S - (time.monotonic() - started)))

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    def _flush(self) -> bool:
        self._confirm()
        batch, self._waiting = self._waiting, []
        size, self._waiting_bytes = self._waiting_bytes, 0
        # Taken in the same moment as the batch: it must not claim what the batch does not hold.
        nodes = encode_nodes(self._machine, time.time(), time.monotonic()) if self._due() else None
        places = self._history.places
        self._are_nodes_whole = places is None or not places.is_waiting
        why: str | None = gevent.get_hub().threadpool.apply(self._write, (batch, nodes))
        if why is not None:
            self._waiting = batch + self._waiting
            self._waiting_bytes += size
            self._submit(StorageFailed(why))
            return False
        for part in by_nodes(batch):
            self._submit(RecordsStored(part))
            gevent.sleep(0)  # so that agents do not wait until a thousand others have their Acks
        return True

    def _due(self) -> bool:
        return (time.monotonic() - self._rotated_mono >= SEGMENT_S
                or self._log.length >= SEGMENT_BYTES)

    def _write(self, batch: list[StreamRecord],
               nodes: list[tuple[str, bytes]] | None) -> str | None:
        """Write in a native thread, while the loop goes on. Return why it failed, or None: gevent
        writes an exception that leaves a thread to stderr, which may be on the same full disk."""
        try:
            self._log.append(HeadLogEntry(record.node_id, record.stream, record.seq,
                                          record.received_at, record.payload, record.second,
                                          record.is_backfill) for record in batch)
        except OSError as error:
            return error.strerror or str(error)
        self._append_to_history(batch)
        if nodes is not None:
            self._rotate(nodes)
        return None

    def _append_to_history(self, batch: list[StreamRecord]) -> None:
        """Append the batch to history. A failure costs no message: the log can be read again."""
        try:
            self._history.append([_for_history(record, record.message) for record in batch
                                  if record.message is not None], self._log.number)
        except Exception:
            log.exception("history did not store a batch")

    def _rotate(self, nodes: list[tuple[str, bytes]]) -> None:
        """Begin a new segment. The batch is safe by now; a failure is retried at the next flush."""
        try:
            self._save_nodes(nodes)
            self._log.rotate(carried(nodes))
            needed = self._history.first_segment()
            # Which of them are in files, of all that only dropped segments have.
            self._history.save_places(has_checkpoints=self._are_nodes_whole)
            self._log.drop_old(needed)
            self._rotated_mono = time.monotonic()
        except Exception as error:
            log.warning("rotation failed reason=%r", str(error))

    @property
    def segment(self) -> int:
        """Number of the segment that is being written."""
        return self._log.number

    def close(self) -> None:
        self._log.close()


def by_nodes(batch: list[StreamRecord]) -> Iterator[tuple[StreamRecord, ...]]:
    """Yield the records in parts; those of a node stay together, as they have one Ack."""
    batch = sorted(batch, key=attrgetter("node_id"))
    start = 0
    while start < len(batch):
        end = min(len(batch), start + ACKED_AT_ONCE)
        while end < len(batch) and batch[end].node_id == batch[end - 1].node_id:
            end += 1
        yield tuple(batch[start:end])
        start = end


def _for_history(record: HeadLogEntry | StreamRecord,
                 message: Hello | Inventory | Frame | Event) -> HistoryMessage:
    return HistoryMessage(record.node_id, record.stream, record.received_at, message,
                          record.second, record.is_backfill)
