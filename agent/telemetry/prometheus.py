"""Metrics of this node for Prometheus: the newest reading, under dcgm-exporter's names."""

import time
from collections.abc import Iterator, Sequence

from gpudeck.contract.hosts import HostSample
from gpudeck.contract.wire import Use
from gpudeck.measures.throttled_time import VIOLATIONS, share_pct, throttled_ns
from gpudeck.prometheus import dcgm
from gpudeck.prometheus.hosts import host_families, serving_families, task_families
from gpudeck.prometheus.text import labels, single

from ..readings import BackendEvent, Reading, with_slow
from ..tasks.seen import GpuTask

STALE_AFTER_S = 5.0
HOST_STALE_AFTER_S = 20.0
XID_FOR_S = 600.0


class MetricsPage:
    """`put` by the node's thread, `text` by the server's: what one replaces the other takes
    whole."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._reading: tuple[Reading, float] | None = None
        self._gpu_tasks: tuple[GpuTask, ...] | None = None
        self._xids: dict[str, tuple[float, float]] = {}
        self._outbox = (0, 0)
        self._throttled = ThrottledCounters()
        self._sampled: tuple[HostSample, float] | None = None

    def put(self, reading: Reading, happened: Sequence[BackendEvent],
            gpu_tasks: Sequence[GpuTask] | None,
            outbox: tuple[int, int]) -> None:
        """`outbox`: how many messages wait, and how many were dropped."""
        before = None if self._reading is None else self._reading[0]
        now_mono = time.monotonic()
        self._throttled.put(reading, now_mono)
        self._reading = with_slow(reading, before), now_mono
        if gpu_tasks is not None:
            self._gpu_tasks = tuple(gpu_tasks)
        self._outbox = outbox
        if reading.host is not None:
            self._sampled = reading.host, time.monotonic()
        self.beside(happened)

    def beside(self, happened: Sequence[BackendEvent]) -> None:
        for event in happened:
            if event.kind == "xid" and event.gpu_uuid is not None and "xid" in event.numbers:
                self._xids = {**self._xids, event.gpu_uuid: (event.at, event.numbers["xid"])}

    def text(self) -> str:
        latest, gpu_tasks = self._reading, self._gpu_tasks
        if latest is None:
            return dcgm.build_info()
        reading, taken_mono = latest
        age_s = time.monotonic() - taken_mono
        return "".join(self._texts(reading, gpu_tasks or (), gpu_tasks is not None, age_s))

    def _texts(self, reading: Reading, gpu_tasks: Sequence[GpuTask], is_listed: bool, age_s: float
               ) -> Iterator[str]:
        states = [gpu.state if gpu.state != "ok" or age_s <= STALE_AFTER_S else "stale"
                  for gpu in reading.gpus]
        is_current = [state == "ok" for state in states]
        gpus = self._gpus(reading, gpu_tasks, is_current)
        yield from dcgm.families(gpus, {field.key: [
            value if current and (value := gpu.value(field.key)) is not None else dcgm.NAN
            for gpu, current in zip(reading.gpus, is_current, strict=True)]
            for field in dcgm.FIELDS})
        yield from dcgm.ours(
            gpus.labels, states, [float(sum(entry.gpu_uuid == gpu.uuid for entry in gpu_tasks))
                                  if is_listed and gpu.state not in ("lost", "error") else dcgm.NAN
                                  for gpu in reading.gpus],
            self._uses(reading, gpu_tasks))
        for family, number in zip(dcgm.OF_AGENTS, (age_s, *self._outbox), strict=True):
            yield single(*family, float(number))
        yield from self._host_texts(gpu_tasks)

    def _host_texts(self, gpu_tasks: Sequence[GpuTask]) -> Iterator[str]:
        sampled = self._sampled
        if sampled is None or time.monotonic() - sampled[1] > HOST_STALE_AFTER_S:
            return
        users = {entry.task.id: entry.task.user for entry in gpu_tasks}
        uses = [use for use in sampled[0].tasks if use.task_id in users]
        yield from host_families([labels({"Hostname": self._host})], [sampled[0]])
        served = [server for server in sampled[0].serving if server.task_id in users]

        def of(task_id: str) -> str:
            return labels({"Hostname": self._host, "task": task_id, "user": users[task_id]})

        yield from task_families([of(use.task_id) for use in uses], uses)
        yield from serving_families([of(server.task_id) for server in served], served)

    def _gpus(self, reading: Reading, gpu_tasks: Sequence[GpuTask],
              is_current: Sequence[bool]) -> dcgm.ExportedGpus:
        places = {facts.uuid: at for at, facts in enumerate(reading.facts)}
        parent = [places.get(facts.parent_uuid or "", -1) for facts in reading.facts]
        gpu_labels = [dcgm.gpu_labels(
            facts, self._host, facts.driver or reading.driver_version,
            reading.facts[above] if above >= 0 else None,
            dcgm.same_place([entry.task for entry in gpu_tasks if entry.gpu_uuid == facts.uuid]))
            for facts, above in zip(reading.facts, parent, strict=True)]
        now, xids = time.time(), self._xids
        late = {uuid: code for uuid, (at, code) in xids.items() if now - at <= XID_FOR_S}
        return dcgm.ExportedGpus(
            gpu_labels, parent, dcgm.shares_memory(reading.facts),
            [facts.mem_total_bytes if current and facts.mem_total_bytes is not None else dcgm.NAN
             for facts, current in zip(reading.facts, is_current, strict=True)],
            [late.get(facts.uuid, dcgm.NAN) for facts in reading.facts],
            self._throttled.columns([facts.uuid for facts in reading.facts], is_current))

    def _uses(self, reading: Reading, gpu_tasks: Sequence[GpuTask]) -> dict[str, Use]:
        facts = {gpu_facts.uuid: (at, gpu_facts) for at, gpu_facts in enumerate(reading.facts)}
        rows: dict[str, Use] = {}
        for entry in gpu_tasks:
            if entry.gpu_uuid in facts:
                at, gpu = facts[entry.gpu_uuid]
                rows[dcgm.task_labels(self._host, gpu, entry.task)] = Use(
                    entry.task.id, at, entry.mem_used_bytes, entry.sm_pct)
        return rows


class ThrottledCounters:
    """Nanoseconds since the agent began, by GPU and violation."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], tuple[float, float]] = {}  # share, when
        self._ns: dict[tuple[str, int], float] = {}

    def put(self, reading: Reading, now_mono: float) -> None:
        read = [gpu for gpu in reading.gpus if gpu.slow]
        shares = {(gpu.uuid, at): share for gpu in read for at, violation in enumerate(VIOLATIONS)
                  if (share := share_pct(violation, gpu.value)) is not None}
        totals = {}
        for key, share in shares.items():
            before, at_mono = self._last.get(key, (share, now_mono))
            totals[key] = self._ns.get(key, 0.0) + throttled_ns(before, share, now_mono - at_mono)
        self._ns = {**self._ns, **totals}  # another thread reads the one before
        self._last |= {key: (share, now_mono) for key, share in shares.items()}

    def columns(self, uuids: Sequence[str], is_current: Sequence[bool]) -> list[list[float]]:
        totals = self._ns
        return [[totals.get((uuid, at), dcgm.NAN) if current else dcgm.NAN
                 for uuid, current in zip(uuids, is_current, strict=True)]
                for at in range(len(VIOLATIONS))]
