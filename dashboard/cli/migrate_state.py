"""`gpudeck hub migrate-state`: from the hub's folder into a database, and back."""

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
    asked = _parser().parse_args(list(argv))
    if not is_there(asked.data):
        raise CommandError(f"there is no hub state in {asked.data}; name its folder with --data",
                           ExitCode.CANNOT_START)
    open_folder(asked.data)
    with closing(lock_folder(asked.data)):
        try:
            counts = (_to_folder(asked.data) if asked.to == FOLDER
                      else _to_database(asked.data, StateLocation(asked.to, _password(asked))))
        except StateUnavailableError as error:
            raise CommandError(f"{error}; nothing was changed", ExitCode.CANNOT_START) from error
    told = {"to": asked.to, "rows": counts}
    print(json.dumps(told, indent=2) if asked.json else _as_text(asked.to, counts))
    return ExitCode.OK


def _to_database(folder: Path, to: StateLocation) -> dict[str, int]:
    known = location(folder)
    if known is not None:
        raise CommandError(f"the state of this hub is in {known.url} already; move it to the "
                           f"folder first: --to {FOLDER}", ExitCode.USAGE)
    with closing(open_database(to, is_hub=True, patience_s=PATIENCE_S)) as target:
        target.migrate(STEPS)
        _check_empty(target)
        source = in_folder(folder)
        source.migrate(STEPS)
        counts = _copied(source, target)
        source.mark_moved(target.shown)
        keep_location(folder, to)
    return counts


def _to_folder(folder: Path) -> dict[str, int]:
    known = location(folder)
    if known is None:
        raise CommandError("the state of this hub is in its folder already", ExitCode.USAGE)
    with closing(open_database(known, is_hub=True, patience_s=PATIENCE_S)) as source:
        source.migrate(STEPS)
        # Under another name until it is whole: a hub must not take a part of it for its state.
        draft = folder / f"{STATE}.new"
        draft.unlink(missing_ok=True)
        with closing(in_folder(folder, draft.name)) as target:
            counts = _copied(source, target)
            target.connection.execute("pragma journal_mode = delete")
        source.mark_moved(str(folder / STATE))
        draft.rename(folder / STATE)
        (folder / LOCATION).unlink()
    return counts


def _check_empty(target: StateStore) -> None:
    if target.connection.execute("select 1 from meta limit 1").fetchone() is not None:
        raise CommandError(f"{target.shown} has a hub's state in it already; name an empty "
                           "database", ExitCode.CANNOT_START)


def copied_state(where: StateLocation, target: Path) -> None:
    """Of a hub that may go on meanwhile, into a file that was not there."""
    draft = target.with_name(f"{target.name}.new")
    draft.unlink(missing_ok=True)
    with (closing(open_database(where, is_hub=False)) as source,
          closing(in_folder(draft.parent, draft.name)) as made):
        _copied(source, made)
        made.connection.execute("pragma journal_mode = delete")
    draft.replace(target)


def _copied(source: StateStore, target: StateStore) -> dict[str, int]:
    """As of one moment, whole or not at all; how many rows of each table."""
    target.migrate(STEPS)
    source.connection.execute("begin")
    try:
        with together(target.connection):
            return {table: _copied_table(source, target, table, columns)
                    for table, columns in source.tables().items()}
    finally:
        source.connection.execute("rollback")


def _copied_table(source: StateStore, target: StateStore, table: str, columns: list[str]) -> int:
    db, marks = target.connection, ", ".join("?" * len(columns))
    db.execute(f"delete from {table}")  # a step may have put a row there
    rows, sent = source.rows(table, columns), 0
    while some := _some(rows):
        db.executemany(f"insert into {table} ({', '.join(columns)}) values ({marks})", some)
        sent += len(some)
    there = int(db.execute(f"select count(*) from {table}").fetchone()[0])
    if there != sent:
        raise CommandError(f"{table}: {sent} rows were read and {there} are in {target.shown}; "
                           "nothing was changed")
    return sent


def _some(rows: Iterator[Any]) -> list[Any]:
    return list(islice(rows, AT_ONCE))


def _password(asked: argparse.Namespace) -> str | None:
    if asked.password_file is not None:
        return read_secret(asked.password_file)
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
    made = make_verb(verbs, "migrate-state", "move the state of a stopped hub into a database, or "
                                             "back into its folder")
    made.add_argument("--to", type=_target, required=True, metavar="URL|folder",
                      help="postgresql://USER@HOST/DATABASE, or folder")
    made.add_argument("--password-file", metavar="FILE", help="password of the database's user")
    return parser
