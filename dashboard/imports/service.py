"""Import of recordings into history, by the path of agents' late reports."""

import time
from collections.abc import Callable
from typing import Protocol

import gevent

from gpudeck import __version__
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN

from ..access.policy import Actor
from ..access.protocols import record_change
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError
from ..fleet.effects import RecordingImported
from ..fleet.state_machine import FleetStateMachine
from .messages import STREAM, facts_of, full_inventory, hello_of, messages, node_id_of, source_of
from .views import ImportBatch, ImportView

STORED_WITHIN_S = 20.0
POLL_S = 0.05
MINUTE_S, HOUR_S = 60, 3_600


class Retention(Protocol):
    """Times for which history keeps seconds, minutes and hours, in seconds."""

    @property
    def raw_s(self) -> int: ...

    @property
    def minutes_s(self) -> int: ...

    @property
    def hours_s(self) -> int: ...


class ImportService:
    def __init__(self, machine: FleetStateMachine, submit: Callable[[RecordingImported], None],
                 audit: AuditRecorder, keep: Retention) -> None:
        self._machine, self._submit = machine, submit
        self._audit, self._keep = audit, keep

    def store(self, actor: Actor, batch: ImportBatch) -> ImportView:
        """Store a batch; return once all of it is on disk. Raises InvalidChangeError."""
        require(actor, "POST /api/v1/imports")
        now = time.time()
        self._check(batch, now)
        facts = [facts_of(batch.node, gpu) for gpu in batch.gpus]
        if len({gpu.uuid for gpu in facts}) < len(facts):
            raise InvalidChangeError("two GPUs have the same key")
        node_id = node_id_of(batch.node)
        with record_change(self._audit, actor, "import", "add", source_of(batch)):
            last = self._last_seq(node_id)
            listings, frames = messages(batch, facts, last + 1)
            node = self._machine.fleet.nodes.get(node_id)
            existing = () if node is None or node.listing is None else node.listing.inventory.gpus
            inventory = full_inventory(existing, facts)
            if len(inventory.gpus) > 256:
                raise InvalidChangeError(f"{batch.node} would have more than 256 GPUs")
            hello = hello_of(batch.node, __version__, last + len(frames))
            self._submit(RecordingImported(hello, (*listings, inventory), tuple(frames)))
        self._wait(node_id, last + len(frames))
        return ImportView(node_id, batch.node, [gpu.uuid for gpu in facts], len(batch.t),
                          self._step_s(now - min(batch.t)))

    def _check(self, batch: ImportBatch, now: float) -> None:
        size = len(batch.t)
        if len(batch.gpu) != size or any(len(column) != size for column in batch.values.values()):
            raise InvalidChangeError("all columns must have as many rows as `t`")
        if max(batch.gpu) >= len(batch.gpus):
            raise InvalidChangeError("a sample is of a GPU that `gpus` does not have")
        unknown = [key for key in batch.values if key not in COLUMN and key not in SLOW_COLUMN]
        if unknown:
            raise InvalidChangeError(f"there is no metric {unknown[0][:40]!r}")
        if max(batch.t) > now:
            raise InvalidChangeError("it has times that are still to come; is the time zone right?")
        if min(batch.t) < now - self._keep.hours_s:
            raise InvalidChangeError(
                f"it is older than history is kept here ({self._keep.hours_s // 86_400} days); the "
                "hub's setting history_hour_days says how long")

    def _last_seq(self, node_id: str) -> int:
        stream = self._machine.streams.of(node_id).get(STREAM)
        return 0 if stream is None else (stream.ledger.last or stream.ledger.settled)

    def _wait(self, node_id: str, seq: int) -> None:
        deadline = time.monotonic() + STORED_WITHIN_S
        while self._machine.streams.of(node_id)[STREAM].stored.settled < seq:
            if time.monotonic() > deadline:
                why = self._machine.fleet.disk_error
                raise InvalidChangeError(
                    f"the hub could not store it within {STORED_WITHIN_S:.0f} s"
                    + (f": {why}" if why else "")
                    + "; import it again: data already stored is skipped")
            gevent.sleep(POLL_S)

    def _step_s(self, age_s: float) -> int:
        if age_s < self._keep.raw_s:
            return 1
        return MINUTE_S if age_s < self._keep.minutes_s else HOUR_S
