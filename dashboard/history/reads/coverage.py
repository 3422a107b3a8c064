"""Share of a span that history knows. Pure."""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

HOUR_S = 3_600


class HoursSeen(NamedTuple):
    """First and last hour of one GPU in a span, and its seconds in all, and in these two."""

    gpu: str
    first: int
    last: int
    seconds: float
    first_s: float
    last_s: float


def covered_share(hours: "pd.DataFrame", start: int, end: int, there: Collection[str]
                  ) -> float | None:
    """Return the share that history has of the seconds that the GPUs of a span were there. `hours`:
    rows of HoursSeen. `end`: until when it could be known; `there`: GPUs that the fleet has now,
    and which should have been heard of until then. A GPU that came or went within the span is no
    hole before or after; where history itself begins later than the span, that is one."""
    if end <= start:
        return None
    if not len(hours):
        return 0.0 if there else None
    rows = [HoursSeen(*row) for row in zip(*(hours[name].tolist() for name in HoursSeen._fields),
                                           strict=True)]
    begins = min(row.first for row in rows)
    expected_s = sum(_expected_s(row, (start, end), row.first == begins, row.gpu in there)
                     for row in rows)
    return min(1.0, sum(row.seconds for row in rows) / expected_s) if expected_s else None


def _expected_s(row: HoursSeen, span: tuple[int, int], is_from_start: bool, is_there: bool
                ) -> float:
    """Count its first and its last hour as whole where it was there before and after them."""
    start, end = span
    head = min(row.first + HOUR_S, end) - start if is_from_start else row.first_s
    if row.first == row.last:
        return head + max(0, end - row.first - HOUR_S) if is_there else head
    middle = row.last - row.first - HOUR_S
    return head + middle + (end - row.last if is_there else row.last_s)
