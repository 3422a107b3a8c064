"""Location of a hub's state: a file in its folder, or the database that its folder names. So all
that works on a hub's folder finds it."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpudeck.errors import CommandError, ExitCode

from .data_folder import write_private
from .sqlite_state import SqliteStateStore, explained
from .state_store import StateStore

if TYPE_CHECKING:
    from .postgres_hold import HubHold

STATE, LOCATION = "state.db", "state.json"


@dataclass(frozen=True, slots=True)
class StateLocation:
    url: str
    password: str | None


def location(folder: Path) -> StateLocation | None:
    """Return the database that the folder names; None: the state is in the folder itself."""
    path = folder / LOCATION
    try:
        return StateLocation(**json.loads(path.read_text())) if path.exists() else None
    except (ValueError, TypeError) as error:
        raise CommandError(f"{path} is damaged; start the hub once with --state, which writes it",
                           ExitCode.CANNOT_START) from error


def is_there(folder: Path) -> bool:
    """Return whether a hub has run here."""
    return (folder / STATE).exists() or (folder / LOCATION).exists()


def keep_location(folder: Path, where: StateLocation) -> None:
    if (folder / STATE).exists():
        raise CommandError(f"the state of this hub is in {folder / STATE}; move it with: gpudeck "
                           f"hub migrate-state --to {where.url}", ExitCode.CANNOT_START)
    write_private(folder / LOCATION, json.dumps(asdict(where)) + "\n")


def in_folder(folder: Path, name: str = STATE) -> StateStore:
    return SqliteStateStore(folder / name)


def open_store(folder: Path, is_hub: bool = False, hold: "HubHold | None" = None) -> StateStore:
    where = location(folder)
    return in_folder(folder) if where is None else open_database(where, is_hub, hold=hold)


def open_database(where: StateLocation, is_hub: bool, patience_s: float | None = None,
                  hold: "HubHold | None" = None) -> StateStore:
    with _driver_explained():
        from . import postgres_state
    return postgres_state.PostgresStateStore(
        where.url, where.password, is_hub,
        postgres_state.PATIENCE_S if patience_s is None else patience_s, hold)


def waiting_hold(where: StateLocation) -> "HubHold":
    """Return the hold of a hub that waits until it has the database."""
    with _driver_explained():
        from . import postgres_state
    return postgres_state.waiting_hold(where.url, where.password)


@contextlib.contextmanager
def _driver_explained() -> Iterator[None]:
    """Explain a missing driver, which is part of an extra."""
    try:
        yield
    except ImportError as error:
        raise CommandError("state in PostgreSQL needs its driver: pip install "
                           "'gpudeck[postgres]'", ExitCode.CANNOT_START) from error


def errors_explained(folder: Path) -> "contextlib.AbstractContextManager[None]":
    """Context for running a hub: a sentence instead of a traceback, where the state is a file."""
    return explained(folder / STATE) if location(folder) is None else contextlib.nullcontext()
