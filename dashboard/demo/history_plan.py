"""Plan and progress of the demo's history; a file in the hub's folder."""

from pathlib import Path

import msgspec

from ..runtime.data_folder import write_private

FILE = "past.json"


class DemoHistoryPlan(msgspec.Struct, kw_only=True):
    """The requested history, and its progress."""

    begin: int = 0  # 0: not started
    end: int = 0
    seconds: int  # at most
    gpus: int
    nodes: int
    real: int  # how many of them have real processes
    simulate: str
    made: int = 0  # seconds
    is_open: bool = False  # the newest part can be queried: a visitor sees idle GPUs
    is_ready: bool = False  # all of it can be queried
    is_kept: bool = False  # all of it is in files: a hub that is killed now loses none


def read(folder: Path) -> DemoHistoryPlan | None:
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=DemoHistoryPlan)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def save(folder: Path, past: DemoHistoryPlan) -> None:
    write_private(folder / FILE, msgspec.json.encode(past).decode() + "\n")
