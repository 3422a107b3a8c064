"""`GET /metrics`: the fleet and the hub itself, for Prometheus.

Text of a large fleet takes a while to make: that happens in a native thread, once a second at most
for those who see the same.
"""

import os
import resource
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from flask import Flask, Response, request
from gevent.lock import BoundedSemaphore

from gpudeck.prometheus.dcgm import NAMES
from gpudeck.prometheus.text import CONTENT_TYPE, family_by, single

from ..access.requests import caller
from ..actions.store import CommandsStore
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..runtime.native_threads import in_thread
from ..web.answers import bad
from .families import XID_FOR_S, only, pages, snapshot

FRESH_S = 1.0
MOST_KEPT = 8
MOST_NAMES = 200
PREFIXES = ("gpudeck_", "process_")
LEVEL = 1  # the text repeats itself so much that more effort gains little

Key = tuple[VisibilityScope, frozenset[str] | None, bool]
Numbers = Callable[[], Iterator[str]]


@dataclass(eq=False, slots=True)
class PrometheusPage:
    """`metrics`: families of the capabilities, as the viewer of this VisibleFleet may see them;
    `hub_metrics`: those on the hub itself. Both are called on the hub's loop, and their texts made
    in a thread. `counts`, `lag_s`, `began_at`: of the hub itself."""

    machine: FleetStateMachine
    visible_fleets: VisibleFleetCache
    commands: CommandsStore
    counts: Callable[[], dict[str, int]]
    lag_s: Callable[[], float]
    began_at: float
    metrics: Sequence[Callable[[VisibleFleet], Iterable[str]]]
    hub_metrics: Sequence[Callable[[], Iterable[str]]]
    _cache: OrderedDict[Key, tuple[float, bytes]] = field(default_factory=OrderedDict)
    _turn: BoundedSemaphore = field(default_factory=BoundedSemaphore)

    def answer(self) -> Response:
        names = _requested_names()
        is_packed = request.accept_encodings["gzip"] > 0
        key = VisibilityScope.of(caller()), names, is_packed
        with self._turn:
            cached = self._cache.get(key)
            if cached is None or time.monotonic() - cached[0] >= FRESH_S:
                cached = time.monotonic(), self._make(*key)
                self._store(key, cached)
        answer = Response(cached[1], content_type=CONTENT_TYPE)
        answer.headers["Vary"] = "Authorization, Cookie, Accept-Encoding"
        if is_packed:
            answer.headers["Content-Encoding"] = "gzip"
        return answer

    def _store(self, key: Key, entry: tuple[float, bytes]) -> None:
        """Cache a page, and drop what nobody asks for any more: it is large."""
        now = time.monotonic()
        for old in [name for name, (at, _) in self._cache.items() if now - at > 60 * FRESH_S]:
            del self._cache[old]
        self._cache[key] = entry
        while len(self._cache) > MOST_KEPT:
            self._cache.popitem(last=False)

    def _make(self, sight: VisibilityScope, names: frozenset[str] | None,
              is_packed: bool) -> bytes:
        visible, mono = self.visible_fleets.of(sight), time.monotonic()
        more = [metrics(visible) for metrics in self.metrics]
        fleet = snapshot(self.machine.fleet, visible, self._xids(time.time()), mono)
        hub_families = self._of_hub(names) if visible.is_whole else None

        def make() -> bytes:
            texts = chain(pages(fleet, names), only(chain.from_iterable(more), names))
            return packed(texts, hub_families) if is_packed else b"".join(_all(texts, hub_families))

        return in_thread(make)

    def _xids(self, now: float) -> dict[tuple[str, str], float]:
        """Return the latest Xid of each GPU that had one within XID_FOR_S, by node and GPU."""
        latest: dict[tuple[str, str], tuple[float, float]] = {}
        for entry in self.machine.events:
            event = entry.event
            if event.kind != "xid" or event.gpu_uuid is None or now - entry.at > XID_FOR_S:
                continue
            code, key = event.numbers.get("xid"), (entry.node_id, event.gpu_uuid)
            if code is not None and entry.at >= latest.get(key, (0.0, 0.0))[0]:
                latest[key] = entry.at, code
        return {key: code for key, (_, code) in latest.items()}

    def _of_hub(self, names: frozenset[str] | None) -> Numbers:
        """Read now what only the loop may read; history is asked in the thread."""
        texts = [
            single("gpudeck_hub_epoch", "gauge", "Starts of this hub, including its predecessors.",
                   float(self.machine.fleet.epoch)),
            single("gpudeck_hub_agents", "gauge", "Connected agents.",
                   float(len(self.machine.link_of))),
            single("gpudeck_hub_loop_lag_seconds", "gauge", "Lag of the hub's event loop.",
                   max(0.0, self.lag_s())),
            single("gpudeck_hub_disk_failed", "gauge",
                   "1: the disk is not writable, agents keep their data.",
                   float(self.machine.fleet.disk_error is not None)),
            family_by("gpudeck_hub_incidents_total", "counter",
                      "Messages refused, truncated or lost since the hub started.", "what",
                      {what: float(count) for what, count in sorted(self.counts().items())}),
            family_by("gpudeck_commands", "gauge", "Commands in the hub's store, by state.",
                      "state", self.commands.counts()),
        ]
        more = [metrics() for metrics in self.hub_metrics]

        def hub_families() -> Iterator[str]:
            yield from only(chain(texts, _of_process(self.began_at), chain.from_iterable(more)),
                            names)
        return hub_families


def _of_process(began_at: float) -> Iterator[str]:
    """Yield families under the names that every client library of Prometheus gives them."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield single("process_cpu_seconds_total", "counter", "CPU time of the hub.",
                 usage.ru_utime + usage.ru_stime)
    with open("/proc/self/statm") as file:
        pages_used = int(file.read().split()[1])
    yield single("process_resident_memory_bytes", "gauge", "Memory of the hub.",
                 float(pages_used * os.sysconf("SC_PAGE_SIZE")))
    yield single("process_start_time_seconds", "gauge", "Start time of the hub, UTC.", began_at)


def _requested_names() -> frozenset[str] | None:
    """Read `name[]=…`, repeated as often as needed: only these families, as in /federate."""
    unknown = sorted(set(request.args) - {"name[]"})
    if unknown:
        raise bad(f"there is no parameter {unknown[0][:40]!r}; there is name[]")
    names = request.args.getlist("name[]")
    if not names:
        return None
    wrong = [name for name in names if name not in NAMES and not name.startswith(PREFIXES)]
    if wrong or len(names) > MOST_NAMES:
        raise bad(f"there is no metric {wrong[0][:80]!r} here; docs/prometheus.md lists them"
                   if wrong else f"at most {MOST_NAMES} names are allowed")
    return frozenset(names)


def _all(texts: Iterator[str], hub_families: Numbers | None) -> Iterator[bytes]:
    for text in texts:
        yield text.encode()
    for text in hub_families() if hub_families is not None else ():
        yield text.encode()


def packed(texts: Iterator[str], hub_families: Numbers | None) -> bytes:
    """Compress the text as it comes: the whole text of 10,000 GPUs would be 100 MB."""
    packer = zlib.compressobj(LEVEL, wbits=zlib.MAX_WBITS | 16)
    return b"".join([*map(packer.compress, _all(texts, hub_families)), packer.flush()])


def add_metrics_page(server: Flask, page: PrometheusPage) -> None:
    server.add_url_rule("/metrics", view_func=page.answer, methods=["GET"],
                        provide_automatic_options=False)
