"""REST of the archive: whether history is in it, and how far it is behind."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from ..access.policy import PermissionReach, Role
from ..access.routes import Route, see
from .files.archive_mover import ArchiveMover

ArchiveCondition = Literal["none", "archiving", "failed", "joining"]


class ArchiveView(Struct):
    """`state`: `joining` while what the archive has of before this hub took over is not in its
    history yet. `behind_s`: age of the oldest second that is not archived; null: files move later
    than they are written. `single_copy_nodes`: nodes whose journal lost what is not archived."""

    state: ArchiveCondition = "none"
    failed_since: float | None = None
    why: str | None = None
    behind_s: float | None = None
    files: int = 0
    bytes: int = 0
    waiting_files: int = 0
    single_copy_nodes: int = 0


@dataclass(eq=False, slots=True)
class ArchiveApi:
    archive: ArchiveMover | None
    single_copy_nodes: Callable[[], int]

    def get(self) -> ArchiveView:
        return ArchiveView() if self.archive is None else archive_view(
            self.archive, self.single_copy_nodes(), time.time())


def archive_view(archive: ArchiveMover, single_copy_nodes: int, now: float) -> ArchiveView:
    info = archive.info()
    state: ArchiveCondition = "archiving" if info.error is None else "failed"
    return ArchiveView(
        "joining" if info.is_joining else state, info.failed_since, info.error,
        info.behind_s(now) if archive.is_at_seal else None, info.files, info.bytes,
        info.waiting_files, single_copy_nodes)


ROUTES = (
    Route("GET archive", ArchiveApi.get, "get_archive", see(Role.OPERATOR, PermissionReach.NONE),
          "State of the archive of history: whether files reach it, and how far it is behind."),
)
