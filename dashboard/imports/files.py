"""Recordings as files: their kind and their rows."""

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .core.recording import (
    ImportOptions,
    ImportProblems,
    ImportRefusedError,
    RecordedGpus,
    TableRows,
    numbered_columns,
)
from .core.seconds import RecordedRow
from .core.series import SeriesRows

Kind = Literal["csv", "parquet", "prometheus", "text"]
KINDS: tuple[Kind, ...] = ("csv", "parquet", "prometheus", "text")
SNIFFED_BYTES = 65_536
MOST_WHOLE_BYTES = 1_000_000_000  # of a file that is read at once
# Byte order marks, as PowerShell writes them with `>`.
MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


@dataclass(frozen=True, slots=True)
class Recording:
    """A file, which can be read more than once."""

    path: Path
    kind: Kind
    options: ImportOptions

    def rows(self, gpus: RecordedGpus, problems: ImportProblems
             ) -> "tuple[Iterator[RecordedRow], TableRows | SeriesRows]":
        return READERS[self.kind](self, gpus, problems)


def recording(path: Path, kind: Kind | None, options: ImportOptions) -> Recording:
    with _open(path) as file:
        head = file.read(SNIFFED_BYTES)
    if not head:
        raise ImportRefusedError(f"{path} is empty")
    return Recording(path, kind or _kind(head), options)


def _kind(head: bytes) -> Kind:
    if head.startswith(b"PAR1"):
        return "parquet"
    start = head.decode(_encoding(head), "replace").lstrip()
    if start.startswith("{"):
        return "prometheus"
    return "text" if start.startswith(("# HELP", "# TYPE", "DCGM_FI_")) else "csv"


def _open(path: Path) -> Any:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def _encoding(head: bytes) -> str:
    return next((name for mark, name in MARKS.items() if head.startswith(mark)), "utf-8")


def _text(path: Path) -> io.TextIOWrapper:
    with _open(path) as file:
        encoding = _encoding(file.read(4))
    return io.TextIOWrapper(_open(path), encoding, errors="replace", newline="")


def _read_whole(path: Path) -> bytes:
    with _open(path) as file:
        data: bytes = file.read(MOST_WHOLE_BYTES + 1)
    if len(data) > MOST_WHOLE_BYTES:
        raise ImportRefusedError(f"{path} is larger than {MOST_WHOLE_BYTES // 10**9} GB; ask for a "
                                 "shorter range, or for several")
    return data


def _csv(source: Recording, gpus: RecordedGpus, problems: ImportProblems
         ) -> tuple[Iterator[RecordedRow], TableRows]:
    with _text(source.path) as file:
        first = next((line for line in file if line.strip("\0 \r\n")), "")
    mark = "\t" if "\t" in first else ";" if first.count(";") > first.count(",") else ","
    header, options = next(csv.reader([first.replace("\0", "")], delimiter=mark)), source.options
    if not options.has_header:
        header, options = numbered_columns(options, len(header))
    table = TableRows(header, options, gpus, problems)

    def cells() -> Iterator[tuple[int, list[str]]]:
        with _text(source.path) as file:
            # A power failure leaves zeros where the disk was not written.
            reader = csv.reader((line.replace("\0", "") for line in file), delimiter=mark)
            for row in reader:
                yield reader.line_num, row

    return table.rows(cells()), table


def _parquet(source: Recording, gpus: RecordedGpus, problems: ImportProblems
             ) -> tuple[Iterator[RecordedRow], TableRows]:
    import pandas as pd

    try:
        frame = pd.read_parquet(source.path)
    except Exception as error:
        raise ImportRefusedError(f"{source.path} cannot be read as Parquet: {error}") from error
    if isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.rename_axis(frame.index.name or "time").reset_index()
    texts = [_as_texts(frame[name]) for name in frame.columns]
    table = TableRows([str(name) for name in frame.columns], source.options, gpus, problems)
    return table.rows((at, list(row)) for at, row in enumerate(zip(*texts, strict=True), 1)), table


def _as_texts(column: Any) -> list[str]:
    is_time = str(column.dtype).startswith("datetime")
    return ["" if value is None or value != value else value.isoformat() if is_time else str(value)
            for value in column.tolist()]


def _prometheus(source: Recording, gpus: RecordedGpus, problems: ImportProblems
                ) -> tuple[Iterator[RecordedRow], SeriesRows]:
    series = SeriesRows(source.options, gpus, problems)
    return series.of_range(_read_whole(source.path)), series


def _exporter_text(source: Recording, gpus: RecordedGpus, problems: ImportProblems
                   ) -> tuple[Iterator[RecordedRow], SeriesRows]:
    series = SeriesRows(source.options, gpus, problems)
    with _text(source.path) as file:
        return series.of_text(file.read()), series


READERS: dict[Kind, Callable[[Recording, RecordedGpus, ImportProblems],
                             tuple[Iterator[RecordedRow], TableRows | SeriesRows]]] = {
    "csv": _csv, "parquet": _parquet, "prometheus": _prometheus, "text": _exporter_text}
