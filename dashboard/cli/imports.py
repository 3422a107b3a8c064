"""`gpudeck import`: import another program's recording into a hub's history, at its own times."""

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gpudeck.cli.command_parser import CommandParser
from gpudeck.client.hub import Client, Item
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.times import moment_of
from gpudeck.measures.metrics import Absence
from gpudeck.words.actions import second_words

from ..imports.core.columns import ColumnMapError, parse_map
from ..imports.core.recording import (
    ImportOptions,
    ImportProblems,
    ImportRefusedError,
    RecordedGpus,
)
from ..imports.core.seconds import ImportedSecond, RecordedGpu, SecondsOfGpus
from ..imports.files import KINDS, Recording, recording
from .rules_hub import add_reach, client_of

ROWS_BETWEEN = 20_000  # rows read between two transfers of complete seconds
CELLS_AT_ONCE = 60_000  # per request, which may have a megabyte
SENT_WITHIN_S = 60.0
STEPS = {1: "by the second", 60: "by the minute only: it is older than seconds are kept",
         3_600: "by the hour only: it is older than minutes are kept"}


def import_(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    try:
        recordings = [recording(path, args.format, _options(args)) for path in args.files]
        checks = [_check(source) for source in recordings]
        nodes = [] if args.check else _send_all(args, recordings)
    except (ImportRefusedError, ColumnMapError) as error:
        raise CommandError(f"{error}", ExitCode.USAGE) from error
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}", ExitCode.USAGE) from error
    report: Item = {"files": checks, "nodes": nodes}
    print(json.dumps(report, indent=2) if args.json else "\n".join(_lines(report, args.check)))
    return ExitCode.OK


def _check(source: Recording) -> Item:
    """Read all of a recording before any of it is sent, so that a refused one leaves nothing
    behind."""
    gpus, problems, seconds = RecordedGpus(), ImportProblems(), SecondsOfGpus()
    rows, table = source.rows(gpus, problems)
    begin, end, count = float("inf"), 0.0, 0
    for row in rows:
        count += 1
        begin, end = min(begin, row.at), max(end, row.at)
        if not seconds.add(row):
            problems.bad(0, f"a row of {row.gpu.key} is over a minute behind those before it")
        if count % ROWS_BETWEEN == 0:
            for _ in seconds.closed():
                pass
    if not count:
        first = f"; the first row: {problems.listed[0][1]}" if problems.listed else ""
        raise ImportRefusedError(f"{source.path}: no row of it can be read{first}")
    return {"file": str(source.path), "format": source.kind, "samples": count,
            "start": begin, "end": end,
            "nodes": {host: [gpu.key for gpu in gpus.of(host)] for host in gpus.hosts()},
            "columns": dict(table.column_targets), "unknown_columns": [*problems.unknown_columns],
            "bad": problems.bad_rows,
            "bad_rows": [{"line": line, "why": why} for line, why in problems.listed]}


def _send_all(args: argparse.Namespace, recordings: Iterable[Recording]) -> list[Item]:
    client = client_of(args)
    nodes: dict[str, Item] = {}
    for source in recordings:
        gpus, problems, seconds = RecordedGpus(), ImportProblems(), SecondsOfGpus()
        rows, _ = source.rows(gpus, problems)
        for count, row in enumerate(rows, 1):
            seconds.add(row)
            if count % ROWS_BETWEEN == 0:
                _send(client, source, seconds.closed(), nodes)
        _send(client, source, seconds.rest(), nodes)
    return [nodes[host] for host in sorted(nodes)]


def _send(client: Client, source: Recording, seconds: Iterator[ImportedSecond],
          nodes: dict[str, Item]) -> None:
    for batch in _batches(sorted(seconds, key=lambda second: (second.gpu.host, second.t))):
        body = _body(batch, source.path.name)
        answer = client.hub.ask_for("POST", "imports", body, SENT_WITHIN_S)
        node = nodes.setdefault(answer["host"], {
            "host": answer["host"], "node": answer["node"], "seconds": 0, "step_s": 1, "gpus": []})
        node["seconds"] += answer["samples"]
        node["step_s"] = max(node["step_s"], answer["step_s"])
        node["gpus"] = sorted({*node["gpus"], *answer["uuids"]})


def _batches(seconds: Sequence[ImportedSecond]) -> Iterator[list[ImportedSecond]]:
    batch: list[ImportedSecond] = []
    cells = 0
    for second in seconds:
        if batch and (cells > CELLS_AT_ONCE or second.gpu.host != batch[0].gpu.host):
            yield batch
            batch, cells = [], 0
        batch.append(second)
        cells += len(second.values) + 2
    if batch:
        yield batch


def _body(batch: list[ImportedSecond], source: str) -> Item:
    gpus = list({id(second.gpu): second.gpu for second in batch}.values())
    places = {id(gpu): at for at, gpu in enumerate(gpus)}
    keys = sorted({key for second in batch for key in second.values})
    return {"node": batch[0].gpu.host, "gpus": [_gpu(gpu) for gpu in gpus],
            "gpu": [places[id(second.gpu)] for second in batch],
            "t": [second.t for second in batch],
            "values": {key: [_cell(second.values.get(key)) for second in batch] for key in keys},
            "lost": [at for at, second in enumerate(batch) if second.is_lost],
            "source": source[:256]}


def _gpu(gpu: RecordedGpu) -> Item:
    return {"key": gpu.key, "index": gpu.index, "name": gpu.name, "serial": gpu.serial,
            "pci_bus_id": gpu.pci, "mem_total_bytes": gpu.mem_total_bytes}


def _cell(value: float | Absence | None) -> float | str | None:
    return value.word if isinstance(value, Absence) else value


# -- output


def _lines(report: Item, is_check: bool) -> Iterator[str]:
    for file in report["files"]:
        nodes = ", ".join(f"{host} ({len(gpus)} GPUs)" for host, gpus in file["nodes"].items())
        yield (f"{file['file']}: {file['samples']:,} samples of {nodes}, "
               f"{second_words(file['start'])} to {second_words(file['end'])} UTC")
        yield "  read: " + ", ".join(f"{name} as {of}" for name, of in file["columns"].items())
        if file["unknown_columns"]:
            yield "  not known, left out: " + ", ".join(file["unknown_columns"])
            yield "  (--map 'COLUMN=NUMBER' says what one is; docs/metrics.md lists the numbers)"
        for bad in file["bad_rows"]:
            where = f"line {bad['line']}: " if bad["line"] else ""
            yield f"  {where}{bad['why']}"
        if file["bad"] > len(file["bad_rows"]):
            yield f"  and {file['bad'] - len(file['bad_rows']):,} more"
    if is_check:
        yield "Nothing was sent (--check)."
    for node in report["nodes"]:
        yield (f"Imported {node['seconds']:,} GPU-seconds as node {node['host']} ({node['node']}), "
               f"kept {STEPS[node['step_s']]}")


# -- options


def _options(args: argparse.Namespace) -> ImportOptions:
    words = [part for word in args.map for part in word.split(",") if part]
    at = None if args.at is None else moment_of(args.at, time.time())
    return ImportOptions(args.node, args.tz, args.gpu, args.in_order, at, not args.no_header,
                         parse_map(words))


def _zone(word: str) -> tzinfo:
    if word == "local":
        zone = datetime.now().astimezone().tzinfo
        assert zone is not None, "this machine has one"
        return zone
    if word.upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(word)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(
            f"{word!r} is not a time zone; write for example UTC, local or Europe/Berlin") from None


def _gpu_count(word: str) -> int:
    if not word.isdigit() or not 1 <= int(word) <= 256:
        raise argparse.ArgumentTypeError("a number from 1 to 256 is needed")
    return int(word)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="gpudeck import", description=(
        "Import recordings (CSV, Parquet, logs of nvidia-smi, what dcgm-exporter served, ranges of "
        "Prometheus) into a hub's history, at their own times."))
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+", type=Path)
    add("--node", metavar="NAME", help="node to import it as; default: the file's own host names")
    add("--tz", metavar="ZONE", type=_zone,
        help="time zone of times without one: UTC, local, Europe/Berlin")
    add("--map", metavar="COLUMN=NUMBER[:UNIT]", action="append", default=[],
        help="what a column is: a number of docs/metrics.md, or time, gpu, index, uuid, host, name")
    add("--gpu", metavar="NAME", help="the one GPU that all rows are of")
    add("--in-order", metavar="N", type=_gpu_count,
        help="N GPUs follow each other in the same order, without a column that names them")
    add("--at", metavar="TIME", help="when it was read, for what has no times")
    add("--no-header", action="store_true", help="the first row is data; --map 1=time,2=index,...")
    add("--format", choices=KINDS, help="default: as the file begins")
    add("--check", action="store_true", help="read all of it, report, send nothing")
    add("--json", action="store_true", help="as JSON")
    add_reach(parser)
    return parser

