"""Words about the archive of a hub's history, as `GET archive` describes it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from gpudeck.words.actions import age, many

# As docs/scale.md advises to alert: a journal holds a day of copies at most.
LATE_S = 3_600.0


@dataclass(frozen=True, slots=True)
class ArchiveWord:
    """A sentence, how serious it is, and what to do."""

    verdict: Literal["ok", "warning", "problem"]
    says: str
    remedy: str = ""


def archive_words(archive: Mapping[str, Any], now: float) -> list[ArchiveWord]:
    if archive["state"] == "none":
        return [ArchiveWord("ok", "no archive: history is in the hub's data folder alone")]
    return [_state(archive, now), *_more(archive)]


def _state(archive: Mapping[str, Any], now: float) -> ArchiveWord:
    since = archive["failed_since"]
    if archive["state"] == "joining":
        why = "" if since is None else f"; waiting since {_moment(since)}: {archive['why']}"
        return ArchiveWord("warning", "history of before this hub took over is being read from the "
                           f"archive and is not shown yet{why}")
    if since is not None:
        is_long = now - since >= LATE_S
        return ArchiveWord("problem" if is_long else "warning",
                           f"nothing is archived since {_moment(since)}: {archive['why']}",
                           "see docs/scale.md; the hub tries again by itself")
    return ArchiveWord("ok", f"{many(archive['files'], 'file')} of history in the archive")


def _more(archive: Mapping[str, Any]) -> Iterator[ArchiveWord]:
    behind_s, waiting, nodes = (archive[key] for key in (
        "behind_s", "waiting_files", "single_copy_nodes"))
    if behind_s is not None:
        yield ArchiveWord("warning" if behind_s >= LATE_S else "ok",
                          f"the archive is {age(behind_s)} behind", "" if behind_s < LATE_S else
                          "nodes hold copies of what is not archived for a day at most")
    elif waiting:
        yield ArchiveWord("ok", f"{many(waiting, 'file')} to be archived")
    if nodes:
        yield ArchiveWord("problem", f"{many(nodes, 'node')} with a single copy: the hub's disk "
                          "alone has what their journals lost before it was archived",
                          "back up the hub's data folder; the hub's log says of which time")


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%MZ")
