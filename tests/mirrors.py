"""Receivers of a mirror: real servers, and the samples they have stored."""

import json
import os
import subprocess
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dashboard.history.reads.copying import HistoryCopyReader
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.mirror.position import MirrorFolder
from dashboard.mirror.service import MirrorService, SampleReceiver
from dashboard.mirror.transport import MirrorReceiver
from tests.integration.hubs import wait_for
from tests.machine import required
from tests.ports import free_port
from tests.unit.histories import Source

URL = "remote-write+http://mirror.test"
Samples = Counter[tuple[str, str, int, float]]  # metric, GPU, ms, value


def mirror_to(receiver: SampleReceiver, history: EmbeddedHistory, folder: Path, now: float,
              url: str = URL) -> MirrorService:
    return MirrorService(HistoryCopyReader(history.store), receiver, MirrorFolder(folder), url, now)


def truth_of(source: Source, t0: int, t1: int) -> Samples:
    return Counter({(key, gpu, t * 1_000, value): 1 for (gpu, t), row in source.truth.items()
                    if t0 <= t < t1 for key, value in row.items() if isinstance(value, float)})


@dataclass
class MetricsServer:
    """Prometheus or VictoriaMetrics, with its data in a folder, to be killed and started again."""

    kind: str
    folder: Path
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def receiver(self) -> MirrorReceiver:
        return MirrorReceiver(f"remote-write+{self.url}/api/v1/write", None, None)

    def start(self) -> None:
        config = self.folder / "prometheus.yml"
        config.write_text("storage: {tsdb: {out_of_order_time_window: 1h}}\n")
        words = {
            "prometheus": [f"--config.file={config}", f"--storage.tsdb.path={self.folder}/data",
                           "--web.enable-remote-write-receiver",
                           f"--web.listen-address=127.0.0.1:{self.port}"],
            "victoria-metrics": [f"-storageDataPath={self.folder}/data", "-retentionPeriod=100y",
                                 f"-httpListenAddr=127.0.0.1:{self.port}",
                                 "-search.latencyOffset=0s", "-dedup.minScrapeInterval=1ms"],
        }[self.kind]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([required(self.kind), *words], stdout=log, stderr=log,
                                            env={**os.environ, "GOMAXPROCS": "1"})
        wait_for(lambda: self.receiver.started() is not None, why=self.kind)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def samples(self, t0: int, t1: int, metric: str = ".+") -> Samples:
        """Return the samples it has stored, without the markers of ends."""
        match = f'{{__name__=~"gpudeck_gpu_{metric}"}}'
        if self.kind == "prometheus":
            reply = json.loads(self._get("query", query=f"{match}[{t1 - t0}s]", time=t1))
            rows = [(row["metric"], [(t * 1_000, float(value)) for t, value in row["values"]])
                    for row in reply["data"]["result"]]
        else:
            lines = self._get("export", **{"match[]": match, "start": t0, "end": t1}).splitlines()
            rows = [(row["metric"], list(zip(row["timestamps"], row["values"], strict=True)))
                    for row in map(json.loads, lines)]
        return Counter((metric["__name__"].removeprefix("gpudeck_gpu_"), metric["gpu"], round(ms),
                        float(value))
                       for metric, points in rows for ms, value in points
                       if value is not None and t0 * 1_000 <= ms < t1 * 1_000)

    def value(self, query: str, at: float) -> list[Any]:
        series: list[Any] = json.loads(self._get("query", query=query, time=at))["data"]["result"]
        return series

    def _get(self, path: str, **words: Any) -> str:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(words)}",
                                    timeout=60) as answer:
            text: str = answer.read().decode()
            return text


@contextmanager
def metrics_server(kind: str, folder: Path) -> Iterator[MetricsServer]:
    server = MetricsServer(kind, folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
