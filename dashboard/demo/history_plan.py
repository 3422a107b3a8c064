"""What past the demo wants, and how far its hub is with it; a file in the hub's folder."""

from pathlib import Path

import msgspec

from ..runtime.data_folder import write_private

FILE = "past.json"


class DemoHistoryPlan(msgspec.Struct, kw_only=True):
    """What is wanted, and how far it is; in the hub's folder."""

    begin: int = 0  # 0: not begun
    end: int = 0
    seconds: int  # at most
    gpus: int
    nodes: int
    real: int  # how many of them have real processes
    simulate: str
    made: int = 0  # seconds
    is_open: bool = False  # the newest of it can be asked about: who opens the page sees waste
    is_ready: bool = False  # to be asked about
    is_kept: bool = False  # in files: a hub that is killed now loses none of it


def read(folder: Path) -> DemoHistoryPlan | None:
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=DemoHistoryPlan)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def save(folder: Path, past: DemoHistoryPlan) -> None:
    write_private(folder / FILE, msgspec.json.encode(past).decode() + "\n")
