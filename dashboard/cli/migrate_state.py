"""`gpudeck hub migrate-state`: move the state from the hub's folder into a database, and back."""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import read_secret

from ..runtime.data_folder import lock_folder, open_folder
from ..runtime.sql_transaction import together
from ..runtime.state_location import (
    LOCATION,
    STATE,
    StateLocation,
    in_folder,
    is_there,
    keep_location,
    location,
    open_database,
)
from ..runtime.state_store import StateStore, StateUnavailableError
from ..settings import database
from ..state import STEPS
from .parts import make_parser, make_verb

AT_ONCE = 500
PATIENCE_S = 600.0
FOLDER = "folder"


def migrate_state(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    if not is_there(args.data):
        raise CommandError(f"there is no hub state in {args.data}; name its folder with --data",
                           ExitCode.CANNOT_START)
    open_folder(args.data)
    with closing(lock_folder(args.data)):
        try:
            counts = (_to_folder(args.data) if args.to == FOLDER
                      else _to_database(args.data, StateLocation(args.to, _password(args))))
        except StateUnavailableError as error:
            raise CommandError(f"{error}; nothing was changed", ExitCode.CANNOT_START) from error
    report = {"to": args.to, "rows": counts}
    print(json.dumps(report, indent=2) if args.json else _as_text(args.to, counts))
    return ExitCode.OK


def _to_database(folder: Path, to: StateLocation) -> dict[str, int]:
    current = location(folder)
    if current is not None:
        raise CommandError(f"the state of this hub is in {current.url} already; move it to the "
                           f"folder first: --to {FOLDER}", ExitCode.USAGE)
    with closing(open_database(to, is_hub=True, patience_s=PATIENCE_S)) as target:
        target.migrate(STEPS)
        _check_empty(target)
        source = in_folder(folder)
        source.migrate(STEPS)
        counts = _copy_rows(source, target)
        source.mark_moved(target.shown)
        keep_location(folder, to)
    return counts


def _to_folder(folder: Path) -> dict[str, int]:
    current = location(folder)
    if current is None:
        raise CommandError("the state of this hub is in its folder already", ExitCode.USAGE)
    with closing(open_database(current, is_hub=True, patience_s=PATIENCE_S)) as source:
        source.migrate(STEPS)
        # Under another name until it is complete: a hub must not take a part of it for its state.
        draft = folder / f"{STATE}.new"
        draft.unlink(missing_ok=True)
        with closing(in_folder(folder, draft.name)) as target:
            counts = _copy_rows(source, target)
            target.connection.execute("pragma journal_mode = delete")
        source.mark_moved(str(folder / STATE))
        draft.rename(folder / STATE)
        (folder / LOCATION).unlink()
    return counts


def _check_empty(target: StateStore) -> None:
    if target.connection.execute("select 1 from meta limit 1").fetchone() is not None:
        raise CommandError(f"{target.shown} has a hub's state in it already; name an empty "
                           "database", ExitCode.CANNOT_START)


def copy_state(database_location: StateLocation, target: Path) -> None:
    """Copy the state of a hub, which may keep running, into a new file."""
    draft = target.with_name(f"{target.name}.new")
    draft.unlink(missing_ok=True)
    with (closing(open_database(database_location, is_hub=False)) as source,
          closing(in_folder(draft.parent, draft.name)) as copy):
        _copy_rows(source, copy)
        copy.connection.execute("pragma journal_mode = delete")
    draft.replace(target)


def _copy_rows(source: StateStore, target: StateStore) -> dict[str, int]:
    """Copy all rows as of one moment, all or none; return the number of rows per table."""
    target.migrate(STEPS)
    source.connection.execute("begin")
    try:
        with together(target.connection):
            return {table: _copy_table(source, target, table, columns)
                    for table, columns in source.tables().items()}
    finally:
        source.connection.execute("rollback")


def _copy_table(source: StateStore, target: StateStore, table: str, columns: list[str]) -> int:
    db, marks = target.connection, ", ".join("?" * len(columns))
    db.execute(f"delete from {table}")  # a migration step may have added a row
    rows, count = source.rows(table, columns), 0
    while batch := _next_batch(rows):
        db.executemany(f"insert into {table} ({', '.join(columns)}) values ({marks})", batch)
        count += len(batch)
    stored = int(db.execute(f"select count(*) from {table}").fetchone()[0])
    if stored != count:
        raise CommandError(f"{table}: {count} rows were read and {stored} are in {target.shown}; "
                           "nothing was changed")
    return count


def _next_batch(rows: Iterator[Any]) -> list[Any]:
    return list(islice(rows, AT_ONCE))


def _password(args: argparse.Namespace) -> str | None:
    if args.password_file is not None:
        return read_secret(args.password_file)
    return os.environ.get("GPUDECK_STATE_PASSWORD")


def _as_text(to: str, counts: dict[str, int]) -> str:
    lines = [f"{table}: {count}" for table, count in counts.items() if count]
    return "\n".join([f"moved to {to}, rows of each table:", *lines])


def _target(raw: str) -> str:
    if raw == FOLDER:
        return raw
    try:
        return database(raw)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, or {FOLDER!r}") from error


def _parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("hub", "Move a hub's state to another database engine.")
    verb_parser = make_verb(verbs, "migrate-state", "move the state of a stopped hub into a "
                            "database, or back into its folder")
    verb_parser.add_argument("--to", type=_target, required=True, metavar="URL|folder",
                             help="postgresql://USER@HOST/DATABASE, or folder")
    verb_parser.add_argument("--password-file", metavar="FILE",
                             help="password of the database's user")
    return parser
