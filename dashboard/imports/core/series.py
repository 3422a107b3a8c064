"""Recordings from Prometheus: ranges as JSON, and text that an exporter served. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec

from gpudeck.measures.metrics import Absence

from .cells import BadCellError, number
from .columns import DERIVED, MEMORY_TOTAL, RecordedColumn
from .recording import (
    ImportOptions,
    ImportProblems,
    ImportRefusedError,
    RecordedGpus,
    series_column,
)
from .seconds import RecordedGpu, RecordedRow

# Labels that identify a series' GPU, best first; then those of its node and of the GPU's name.
GPU_LABELS = ("UUID", "uuid", "gpu_uuid", "pci_bus_id", "gpu", "index", "minor_number", "device")
HOST_LABELS = ("Hostname", "hostname", "host", "node", "instance")
NAME_LABELS = ("modelName", "name", "gpu_name")
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?")
_LABEL = re.compile(r'([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?\s*')


class RangeSeries(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class RangeData(msgspec.Struct):
    result: list[RangeSeries]


class RangeAnswer(msgspec.Struct):
    """Answer to `query_range`, or to `query` with `[1h]`."""

    data: RangeData
    status: Annotated[str, msgspec.Meta(max_length=16)] = "success"
    warnings: list[str] = []


class SeriesRows:
    def __init__(self, options: ImportOptions, gpus: RecordedGpus, problems: ImportProblems
                 ) -> None:
        self._options, self._gpus, self._problems = options, gpus, problems
        self._columns: dict[str, RecordedColumn | None] = {}
        self._sources: dict[str, str] = {}  # node's name in the recording, by its name here

    @property
    def column_targets(self) -> list[tuple[str, str]]:
        return [(name, column.target) for name, column in self._columns.items()
                if column is not None]

    def of_range(self, data: bytes) -> Iterator[RecordedRow]:
        try:
            answer = msgspec.json.decode(data, type=RangeAnswer)
        except msgspec.MsgspecError as error:
            raise ImportRefusedError(f"this JSON is not what Prometheus answers to query_range: "
                                     f"{error}") from error
        for warning in answer.warnings:
            self._problems.bad(0, f"Prometheus warns: {warning[:200]}")
        for at, series in enumerate(answer.data.result, 1):
            values = series.values or ([] if series.value is None else [series.value])
            for t, text in values:
                yield from self._sample(at, series.metric, t, text)

    def of_text(self, text: str) -> Iterator[RecordedRow]:
        for line, row in enumerate(text.splitlines(), 1):
            if not row.strip() or row.startswith("#"):
                continue
            match = _SAMPLE.fullmatch(row.strip())
            if match is None:
                self._problems.bad(line, f"is no sample: {row[:60]!r}")
                continue
            at = self._options.at if match[4] is None else int(match[4]) / 1_000
            if at is None:
                raise ImportRefusedError("what an exporter served has no times; give the moment at "
                                         "which it was read: --at 2026-01-31T12:00:00Z")
            labels = {name: re.sub(r"\\(.)", r"\1", value)
                      for name, value in _LABEL.findall(match[2] or "")}
            yield from self._sample(line, {"__name__": match[1], **labels}, at, match[3])

    def _sample(self, line: int, labels: Mapping[str, str], at: float, text: str
                ) -> Iterator[RecordedRow]:
        column = self._column(labels.get("__name__", "value"))
        if column is None:
            return
        if labels.get("GPU_I_ID"):
            self._problems.unknown_columns["series of MIG instances (GPU_I_ID)"] = None
            return
        try:
            value = number(text, column)
            gpu = self._gpu(labels)
        except BadCellError as error:
            self._problems.bad(line, str(error))
            return
        if column.target == MEMORY_TOTAL:
            gpu.mem_total_bytes = value if isinstance(value, float) else None
        elif value is not None and value is not Absence.UNKNOWN:
            yield RecordedRow(gpu, at, {column.target: value})

    def _column(self, name: str) -> RecordedColumn | None:
        if name not in self._columns:
            self._columns[name] = column = series_column(name, self._options)
            if column is None and name not in DERIVED:
                self._problems.unknown_columns[name] = None
        return self._columns[name]

    def _gpu(self, labels: Mapping[str, str]) -> RecordedGpu:
        key = self._options.gpu or next((labels[name] for name in GPU_LABELS if labels.get(name)),
                                        None)
        if key is None:
            raise BadCellError("no label says which GPU it is (UUID, gpu); give --gpu 0 if all of "
                               "it is of one")
        source = next((labels[name] for name in HOST_LABELS if labels.get(name)), None)
        host = self._options.node or source
        if host is None:
            raise ImportRefusedError("no label says which node it is; give --node NAME")
        if source is not None and self._sources.setdefault(host, source) != source:
            raise ImportRefusedError(
                f"it is of several nodes ({self._sources[host]}, {source}); leave --node out, and "
                "each is called as it is there")
        index = labels.get("gpu") or labels.get("index")
        gpu = self._gpus.get(host, key, index)
        gpu.name = next((labels[name] for name in NAME_LABELS if labels.get(name)), gpu.name)
        gpu.pci = labels.get("pci_bus_id", gpu.pci)
        return gpu
