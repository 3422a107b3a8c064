"""This node's metrics for Prometheus: the newest reading, under dcgm-exporter's names."""

import time
from collections.abc import Iterator, Sequence

from gpudeck import dcgm
from gpudeck.prometheus_text import single
from gpudeck.wire import Use

from ..readings import BackendEvent, Reading, with_slow
from ..tasks.seen import GpuTask

STALE_AFTER_S = 5.0
XID_FOR_S = 600.0


class MetricsPage:
    """`put` by the node's thread, `text` by the server's: what one replaces the other takes
    whole."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._reading: tuple[Reading, float] | None = None
        self._seen: tuple[GpuTask, ...] | None = None
        self._xids: dict[str, tuple[float, float]] = {}
        self._outbox = (0, 0)

    def put(self, reading: Reading, happened: Sequence[BackendEvent],
            seen: Sequence[GpuTask] | None,
            outbox: tuple[int, int]) -> None:
        """`outbox`: how many messages wait, and how many were dropped."""
        before = None if self._reading is None else self._reading[0]
        self._reading = with_slow(reading, before), time.monotonic()
        if seen is not None:
            self._seen = tuple(seen)
        self._outbox = outbox
        self.beside(happened)

    def beside(self, happened: Sequence[BackendEvent]) -> None:
        for each in happened:
            if each.kind == "xid" and each.gpu_uuid is not None and "xid" in each.numbers:
                self._xids = {**self._xids, each.gpu_uuid: (each.at, each.numbers["xid"])}

    def text(self) -> str:
        kept, seen = self._reading, self._seen
        if kept is None:
            return dcgm.build_info()
        reading, taken_mono = kept
        age_s = time.monotonic() - taken_mono
        return "".join(self._texts(reading, () if seen is None else seen, seen is not None, age_s))

    def _texts(self, reading: Reading, seen: Sequence[GpuTask], is_listed: bool, age_s: float
               ) -> Iterator[str]:
        states = [gpu.state if gpu.state != "ok" or age_s <= STALE_AFTER_S else "stale"
                  for gpu in reading.gpus]
        is_told = [state == "ok" for state in states]
        gpus = self._gpus(reading, seen, is_told)
        yield from dcgm.families(gpus, {field.key: [
            value if told and (value := gpu.value(field.key)) is not None else dcgm.NAN
            for gpu, told in zip(reading.gpus, is_told, strict=True)] for field in dcgm.FIELDS})
        yield from dcgm.ours(
            gpus.labels, states, [float(sum(each.gpu_uuid == gpu.uuid for each in seen))
                                  if is_listed and gpu.state not in ("lost", "error") else dcgm.NAN
                                  for gpu in reading.gpus],
            self._uses(reading, seen))
        for named, number in zip(dcgm.OF_AGENTS, (age_s, *self._outbox), strict=True):
            yield single(*named, float(number))

    def _gpus(self, reading: Reading, seen: Sequence[GpuTask],
              is_told: Sequence[bool]) -> dcgm.ExportedGpus:
        places = {facts.uuid: at for at, facts in enumerate(reading.facts)}
        parent = [places.get(facts.parent_uuid or "", -1) for facts in reading.facts]
        named = [dcgm.gpu_labels(
            facts, self._host, reading.facts[above] if above >= 0 else None,
            dcgm.same_place([each.task for each in seen if each.gpu_uuid == facts.uuid]))
            for facts, above in zip(reading.facts, parent, strict=True)]
        now, xids = time.time(), self._xids
        late = {uuid: code for uuid, (at, code) in xids.items() if now - at <= XID_FOR_S}
        return dcgm.ExportedGpus(
            named, parent, dcgm.shares_memory(reading.facts),
            [facts.mem_total_bytes if told and facts.mem_total_bytes is not None else dcgm.NAN
             for facts, told in zip(reading.facts, is_told, strict=True)],
            [late.get(facts.uuid, dcgm.NAN) for facts in reading.facts])

    def _uses(self, reading: Reading, seen: Sequence[GpuTask]) -> dict[str, Use]:
        facts = {each.uuid: (at, each) for at, each in enumerate(reading.facts)}
        rows: dict[str, Use] = {}
        for each in seen:
            if each.gpu_uuid in facts:
                at, gpu = facts[each.gpu_uuid]
                rows[dcgm.task_labels(self._host, gpu, each.task)] = Use(
                    each.task.id, at, each.mem_used_bytes, each.sm_pct)
        return rows
