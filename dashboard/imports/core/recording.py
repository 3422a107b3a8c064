"""Rows of a recording, and the problems in it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo

from gpudeck.measures.metrics import Absence

from .cells import BadCellError, NoZoneError, moment, number
from .columns import KEYS, MEMORY_TOTAL, RecordedColumn, column_of
from .seconds import RecordedGpu, RecordedRow, Value

MOST_LISTED = 20
MOST_GPUS = 256


class ImportRefusedError(ValueError):
    """The recording cannot be imported; the message says which option is needed."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of an import. `node`: the node of all rows; None: the recording names it. `gpu`: the
    GPU of all rows. `in_order`: number of GPUs whose rows follow each other in the same order.
    `at`: when the data was read, for recordings without times."""

    node: str | None = None
    zone: tzinfo | None = None
    gpu: str | None = None
    in_order: int | None = None
    at: float | None = None
    has_header: bool = True
    mapped: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(slots=True)
class ImportProblems:
    unknown_columns: dict[str, None] = field(default_factory=dict)
    bad_rows: int = 0
    listed: list[tuple[int, str]] = field(default_factory=list)  # line, and why

    def bad(self, line: int, why: str) -> None:
        self.bad_rows += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append((line, why))


class RecordedGpus:
    """GPUs of all nodes of a recording."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, RecordedGpu]] = {}

    def get(self, host: str, key: str, index: str | None) -> RecordedGpu:
        gpus = self._of.setdefault(host, {})
        gpu = gpus.get(key)
        if gpu is None:
            if len(gpus) == MOST_GPUS:
                raise ImportRefusedError(f"{host} would have more than {MOST_GPUS} GPUs; is the "
                                         "column that names the GPU the right one? --map names it")
            place = int(index) if index is not None and index.isdigit() and len(index) < 5 else (
                len(gpus))
            gpu = gpus[key] = RecordedGpu(host, key, place)
        return gpu

    def hosts(self) -> list[str]:
        return sorted(self._of)

    def of(self, host: str) -> list[RecordedGpu]:
        return sorted(self._of[host].values(), key=lambda gpu: (gpu.index, gpu.key))


class TableRows:
    """A table with a header: CSV or Parquet. A row belongs to one GPU, or to several if the names
    of columns contain a GPU."""

    def __init__(self, header: list[str], options: ImportOptions, gpus: RecordedGpus,
                 problems: ImportProblems) -> None:
        self._options, self._gpus, self._problems = options, gpus, problems
        self._header = header
        self._columns = [column_of(name, options.mapped) for name in header]
        for name, column in zip(header, self._columns, strict=True):
            if column is None and name.strip():
                problems.unknown_columns[name.strip()] = None
        self._roles = {column.target: at for at, column in reversed([*enumerate(self._columns)])
                       if column is not None and not column.is_metric and column.gpu is None}
        self._keys = [role for role in KEYS if role in self._roles]
        self._rows = 0
        self._names: dict[int, str] = {}
        self._check()

    @property
    def column_targets(self) -> list[tuple[str, str]]:
        """Known columns with what each is read as."""
        return [(column.name.strip(), column.target) for column in self._columns
                if column is not None]

    def _check(self) -> None:
        wide = any(column is not None and column.gpu is not None for column in self._columns)
        if not any(column is not None and column.is_metric for column in self._columns):
            raise ImportRefusedError(
                f"no column is known; it has {', '.join(map(repr, self._header[:12]))}. Say what "
                "they are with --map 'COLUMN=NUMBER', or --no-header if the first row is data")
        if "time" not in self._roles:
            raise ImportRefusedError("no column says the time; name it with --map 'COLUMN=time'")
        if not (self._keys or wide or self._options.gpu is not None or self._options.in_order):
            raise ImportRefusedError(
                "no column says which GPU a row is of. Record with `nvidia-smi --query-gpu="
                "timestamp,index,uuid,...`; for this file give --gpu 0 if all of it is of one GPU, "
                "--in-order N if N GPUs follow each other in the same order, or --map 'COLUMN=gpu'")
        if self._options.node is None and "host" not in self._roles:
            raise ImportRefusedError("which node is it? Give --node NAME")

    def rows(self, cells_of: Iterator[tuple[int, list[str]]]) -> Iterator[RecordedRow]:
        for line, cells in cells_of:
            if not any(cell.strip() for cell in cells) or self._is_header(cells):
                continue
            if len(cells) != len(self._columns):
                self._problems.bad(line, f"has {len(cells)} of {len(self._columns)} columns")
                continue
            try:
                yield from self._row(line, cells)
            except BadCellError as error:
                self._problems.bad(line, str(error))
            except NoZoneError as error:
                raise ImportRefusedError(
                    f"times such as {str(error)[:30]!r} do not say their zone; give the one of the "
                    "machine that wrote them: --tz Europe/Berlin, or --tz UTC") from error

    def _is_header(self, cells: list[str]) -> bool:
        """Tell whether this is the header again: restarted loggers append to the same file."""
        return self._options.has_header and [cell.strip() for cell in cells] == [
            name.strip() for name in self._header]

    def _row(self, line: int, cells: list[str]) -> Iterator[RecordedRow]:
        at = moment(cells[self._roles["time"]], self._options.zone)
        host = self._options.node or cells[self._roles["host"]].strip()
        if not host:
            raise BadCellError("it does not say its node")
        values = self._values(line, cells)
        for named_gpu, gpu_values in values.items():
            if gpu_values:
                yield RecordedRow(self._gpu(host, cells, named_gpu), at, gpu_values)

    def _values(self, line: int, cells: list[str]) -> dict[str | None, dict[str, Value]]:
        """Return the values by the GPU in the column's name, if any. A bad cell is reported and
        does not invalidate its row."""
        values: dict[str | None, dict[str, Value]] = {}
        for column, cell in zip(self._columns, cells, strict=True):
            if column is None or not column.is_metric:
                continue
            try:
                value = number(cell, column)
            except BadCellError as error:
                self._problems.bad(line, str(error))
                value = Absence.UNKNOWN
            if value is not None:
                values.setdefault(column.gpu, {}).setdefault(column.target, value)
        return values

    def _gpu(self, host: str, cells: list[str], named_gpu: str | None) -> RecordedGpu:
        gpu = self._gpus.get(host, *self._key(cells, named_gpu))
        gpu.name = self._text_of(cells, "name") or gpu.name
        gpu.serial = self._text_of(cells, "serial") or gpu.serial
        gpu.pci = self._text_of(cells, "pci") or gpu.pci
        if gpu.mem_total_bytes is None and MEMORY_TOTAL in self._roles:
            at = self._roles[MEMORY_TOTAL]
            column = self._columns[at]
            assert column is not None
            total = number(cells[at], column)
            gpu.mem_total_bytes = None if isinstance(total, Absence) else total
        return gpu

    def _key(self, cells: list[str], named_gpu: str | None) -> tuple[str, str | None]:
        """Return the key of the row's GPU, and its index, if there is one."""
        if named_gpu is not None:
            return named_gpu, named_gpu
        index = self._text_of(cells, "index")
        for role in self._keys:
            if word := self._text_of(cells, role):
                return word, index if index is not None else word
        if self._options.gpu is not None:
            return self._options.gpu, self._options.gpu
        if self._options.in_order is None:
            raise BadCellError("it does not say its GPU")
        place, self._rows = self._rows % self._options.in_order, self._rows + 1
        name = self._text_of(cells, "name") or ""
        if self._names.setdefault(place, name) != name:
            raise ImportRefusedError(
                f"GPU {place} would be {self._names[place]!r} in one row and {name!r} in another: "
                f"the rows are not of {self._options.in_order} GPUs in the same order")
        return str(place), str(place)

    def _text_of(self, cells: list[str], role: str) -> str | None:
        at = self._roles.get(role)
        word = "" if at is None else cells[at].strip()
        return None if word.strip("[]").upper() in ("", "N/A", "UNKNOWN ERROR") else word[:90]


def numbered_columns(options: ImportOptions, width: int) -> tuple[list[str], ImportOptions]:
    """Return header and options of a table without one: its columns are numbered from 1."""
    if not options.mapped:
        raise ImportRefusedError("without a header, say what the columns are: --map 1=time,2=index,"
                                 "3=util_pct")
    return [str(at + 1) for at in range(width)], replace(options, has_header=False)


def series_column(name: str, options: ImportOptions) -> RecordedColumn | None:
    column = column_of(name, options.mapped)
    return column if column is not None and (
        column.is_metric or column.target == MEMORY_TOTAL) else None
