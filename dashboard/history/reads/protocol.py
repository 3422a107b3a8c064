"""Answers of every engine of history, as DataFrames. Times are UTC seconds by the hub's clock.

Nothing is made up: where no sample is, there is no row; where a metric is missing, its value is
null and, where the engine keeps it, `missing` says why.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from gpudeck.contract.sequence_ranges import SequenceRanges

from ..columns.grid import HistoryGrid, TaskRows, Wanted, XidRow
from ..columns.instants import InstantMatrix
from ..columns.rows import HistoryMessage
from ..ingest.message_places import MessagePlaces, StreamKey

if TYPE_CHECKING:
    import pandas as pd

Agg = Literal["min", "mean", "max", "n"]
AGGS: tuple[Agg, ...] = ("min", "mean", "max")
By = Literal["user", "node", "gpu", "job", "launch", "slurm_job", "container", "pod", "namespace",
             "unit"]
BYS: tuple[By, ...] = get_args(By)
Nodes = frozenset[str] | None  # None: all of them


@dataclass(frozen=True, slots=True)
class HistoryInfo:
    """Contents and state of history."""

    kinds: dict[str, dict[str, Any]]  # files, rows, bytes, oldest, newest
    bytes: int
    open_seconds: int  # GPU-seconds in memory
    quarantined: list[str]
    counts: dict[str, int]
    error: str | None


class RuleHistory(Protocol):
    """Reads of history by Rules: the minute that has just ended, and rehearsals of any span."""

    def minute(self, start: int, metrics: Wanted) -> HistoryGrid:
        """Read a minute that ended just now, which no file has yet."""

    def past(self, metrics: Wanted, grid: HistoryGrid) -> None:
        """Fill the grid: whole minutes, or seconds as long as those are kept."""

    def seen(self, grid: HistoryGrid) -> None:
        """Fill a grid of seconds with SEEN: where there is a sample of the GPU, and its state."""

    def held(self, t0: int, t1: int, columns: Sequence[str] = ...) -> Iterator[TaskRows]:
        """Read who held what, by the minute; `columns`: only these."""

    def xids(self, t0: float, t1: float) -> list[XidRow]: ...

    def begins(self, step_s: int) -> int | None:
        """Return the first second of which there is any; None: there is none."""


class History(Protocol):
    places: MessagePlaces | None  # of messages; None: files do not move as they are written

    @property
    def rules(self) -> RuleHistory: ...

    def append(self, messages: Sequence[HistoryMessage], segment: int) -> None:
        """Take messages that are on disk, in this segment of the head log."""

    def first_segment(self) -> int | None:
        """Return the oldest segment of the head log that is still needed; None: none is."""

    def unarchived(self) -> list[tuple[StreamKey, int, SequenceRanges]]:
        """Return stream, first second and ranges, by block, of messages that are not archived."""

    def save_places(self, has_checkpoints: bool) -> None:
        """Save what the head log is about to forget: which messages are in files.
        `has_checkpoints`: the state has those of all nodes."""

    def maintain(self, now: float, mono: float) -> None:
        """Run every few seconds, in a native thread. Never raises: `info` counts what failed."""

    def close(self) -> None: ...

    def series(self, gpus: Sequence[str], metrics: Sequence[str], t0: float, t1: float, step: int,
               aggs: Sequence[Agg] = AGGS, nodes: Nodes = None) -> "pd.DataFrame":
        """gpu, t, and METRIC_AGG for each: one row per bucket of `step` seconds that has a
        sample."""

    def together(self, gpus: Sequence[str], metrics: Sequence[str], t0: float, t1: float,
                 step: int, aggs: Sequence[Agg] = AGGS, nodes: Nodes = None) -> "pd.DataFrame":
        """t, and METRIC_AGG of the samples of all these GPUs as if they were one's."""

    def instant(self, metric: str, t: float, nodes: Nodes = None) -> "pd.DataFrame":
        """gpu, node, t, value, missing: one row per GPU that was ever there."""

    def instants(self, metric: str, moments: Sequence[int], nodes: Nodes = None) -> InstantMatrix:
        """Read as `instant`, for some moments in ascending order."""

    def usage(self, by: By, bucket: int, t0: float, t1: float, nodes: Nodes = None,
              of: str | None = None) -> "pd.DataFrame":
        """Columns t, `by`, and what each held in whole hours; with `of`, of this one only, and of a
        user in whole minutes too. Bucket 0: the whole of it at once."""

    def held(self, by: Sequence[By], t0: float, t1: float) -> "pd.DataFrame":
        """Columns of `by`, and the `gpu_s` of each combination, in whole hours."""

    def tasks(self, t0: float, t1: float, gpus: Sequence[str] | None = None, nodes: Nodes = None,
              limit: int = 10_000, words: Sequence[str] | None = None) -> "pd.DataFrame":
        """Read one row per minute, GPU and Task. `words`: only these columns, `t gpu task` at
        least. What was written before a column was there has null in it."""

    def events(self, t0: float, t1: float, nodes: Nodes = None, limit: int = 10_000,
               gpus: Sequence[str] | None = None, kinds: Sequence[str] | None = None
               ) -> "pd.DataFrame":
        """Return the newest of these, newest last."""

    def hosts(self, t0: float, t1: float, step: int, nodes: Nodes = None) -> "pd.DataFrame":
        """node, t, samples, and mean and max of each number of hosts, in steps of whole
        minutes."""

    def finest(self, t: float) -> int:
        """Return the shortest step in which that time is known: a second, a minute, an hour."""

    def hours_seen(self, t0: float, t1: float, nodes: Nodes = None
                   ) -> tuple["pd.DataFrame", int]:
        """Read what `coverage` needs of each GPU, in whole hours as far as they are in files; and
        until when they are."""

    def since(self) -> int | None:
        """Return the first hour of which it is known who held what; None: of none."""

    def info(self) -> HistoryInfo: ...
