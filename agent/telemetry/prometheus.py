"""This node's metrics for Prometheus: the newest reading, under dcgm-exporter's names."""

import time
from collections.abc import Iterator, Sequence

from gpudeck import dcgm
from gpudeck.host_text import host_families, serving_families, task_families
from gpudeck.hosts import HostSample
from gpudeck.prometheus_text import labels, single
from gpudeck.throttled_time import VIOLATIONS, share_pct, throttled_ns
from gpudeck.wire import Use

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
        self._seen: tuple[GpuTask, ...] | None = None
        self._xids: dict[str, tuple[float, float]] = {}
        self._outbox = (0, 0)
        self._throttled = ThrottledCounters()
        self._sampled: tuple[HostSample, float] | None = None

    def put(self, reading: Reading, happened: Sequence[BackendEvent],
            seen: Sequence[GpuTask] | None,
            outbox: tuple[int, int]) -> None:
        """`outbox`: how many messages wait, and how many were dropped."""
        before = None if self._reading is None else self._reading[0]
        now_mono = time.monotonic()
        self._throttled.put(reading, now_mono)
        self._reading = with_slow(reading, before), now_mono
        if seen is not None:
            self._seen = tuple(seen)
        self._outbox = outbox
        if reading.host is not None:
            self._sampled = reading.host, time.monotonic()
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
        yield from self._host_texts(seen)

    def _host_texts(self, seen: Sequence[GpuTask]) -> Iterator[str]:
        sampled = self._sampled
        if sampled is None or time.monotonic() - sampled[1] > HOST_STALE_AFTER_S:
            return
        users = {each.task.id: each.task.user for each in seen}
        known = [use for use in sampled[0].tasks if use.task_id in users]
        yield from host_families([labels({"Hostname": self._host})], [sampled[0]])
        served = [server for server in sampled[0].serving if server.task_id in users]

        def of(task_id: str) -> str:
            return labels({"Hostname": self._host, "task": task_id, "user": users[task_id]})

        yield from task_families([of(use.task_id) for use in known], known)
        yield from serving_families([of(server.task_id) for server in served], served)

    def _gpus(self, reading: Reading, seen: Sequence[GpuTask],
              is_told: Sequence[bool]) -> dcgm.ExportedGpus:
        places = {facts.uuid: at for at, facts in enumerate(reading.facts)}
        parent = [places.get(facts.parent_uuid or "", -1) for facts in reading.facts]
        named = [dcgm.gpu_labels(
            facts, self._host, reading.driver_version,
            reading.facts[above] if above >= 0 else None,
            dcgm.same_place([each.task for each in seen if each.gpu_uuid == facts.uuid]))
            for facts, above in zip(reading.facts, parent, strict=True)]
        now, xids = time.time(), self._xids
        late = {uuid: code for uuid, (at, code) in xids.items() if now - at <= XID_FOR_S}
        return dcgm.ExportedGpus(
            named, parent, dcgm.shares_memory(reading.facts),
            [facts.mem_total_bytes if told and facts.mem_total_bytes is not None else dcgm.NAN
             for facts, told in zip(reading.facts, is_told, strict=True)],
            [late.get(facts.uuid, dcgm.NAN) for facts in reading.facts],
            self._throttled.columns([facts.uuid for facts in reading.facts], is_told))

    def _uses(self, reading: Reading, seen: Sequence[GpuTask]) -> dict[str, Use]:
        facts = {each.uuid: (at, each) for at, each in enumerate(reading.facts)}
        rows: dict[str, Use] = {}
        for each in seen:
            if each.gpu_uuid in facts:
                at, gpu = facts[each.gpu_uuid]
                rows[dcgm.task_labels(self._host, gpu, each.task)] = Use(
                    each.task.id, at, each.mem_used_bytes, each.sm_pct)
        return rows


class ThrottledCounters:
    """Nanoseconds since the agent began, by GPU and violation."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], tuple[float, float]] = {}  # share, when
        self._ns: dict[tuple[str, int], float] = {}

    def put(self, reading: Reading, now_mono: float) -> None:
        read = [gpu for gpu in reading.gpus if gpu.slow]
        found = {(gpu.uuid, at): share for gpu in read for at, each in enumerate(VIOLATIONS)
                 if (share := share_pct(each, gpu.value)) is not None}
        counted = {}
        for key, share in found.items():
            before, at_mono = self._last.get(key, (share, now_mono))
            counted[key] = self._ns.get(key, 0.0) + throttled_ns(before, share, now_mono - at_mono)
        self._ns = {**self._ns, **counted}  # another thread reads the one before
        self._last |= {key: (share, now_mono) for key, share in found.items()}

    def columns(self, uuids: Sequence[str], is_told: Sequence[bool]) -> list[list[float]]:
        known = self._ns
        return [[known.get((uuid, at), dcgm.NAN) if told else dcgm.NAN
                 for uuid, told in zip(uuids, is_told, strict=True)]
                for at in range(len(VIOLATIONS))]
