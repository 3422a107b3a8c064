"""Spans of the Pool's week: who holds which GPUs of a node from when to when, and who has reserved
them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from ..pool.views import ClaimView, LeaseView, PoolNodeView
from .pool_words import WHOLE_PCT

DAYS = 7
FULL = 1.001  # shares of a GPU that add up to it, as numbers of a computer do


@dataclass(frozen=True, slots=True)
class Span:
    """A lease or a claim in the row of a node. `lanes`: its GPUs, by their order there; `share`: of
    a GPU; `at`: where within the lane a part of a GPU begins."""

    item: LeaseView | ClaimView
    start: float
    end: float
    lanes: tuple[int, ...]
    share: float = 1.0
    at: float = 0.0


def midnights(week: int, now: float, zone: str) -> list[float]:
    """Return the midnights of seven days from today on, `week` weeks ahead, and the one after them;
    a day may have 23 or 25 hours."""
    today = datetime.fromtimestamp(now, ZoneInfo(zone)).replace(
        hour=0, minute=0, second=0, microsecond=0)
    return [(today + timedelta(days=DAYS * week + day)).timestamp() for day in range(DAYS + 1)]


def spans_of(node: PoolNodeView, leases: Iterable[LeaseView], claims: Iterable[ClaimView],
             now: float) -> list[Span]:
    """Return what stands in the row of a node. Where it is not decided yet which GPUs a reservation
    gets, it stands on some that are free then."""
    lane_of = {gpu.uuid: lane for lane, gpu in enumerate(node.gpus)}
    spans = _lease_spans(leases, lane_of, now)
    for claim in claims:
        start, end = _bounds(claim)
        own = _lanes(claim.kept, lane_of)
        busy_gpus = {lane for span in spans if span.end > start and span.start < end
                 for lane in span.lanes}
        by_use = sorted(lane_of.values(), key=lambda lane: lane in busy_gpus)
        spans.append(Span(claim, start, end, own or tuple(by_use[:claim.gpus])))
    return spans


def _lease_spans(leases: Iterable[LeaseView], lane_of: Mapping[str, int], now: float
                 ) -> list[Span]:
    spans: list[Span] = []
    used: dict[int, float] = {}  # of a lane, how much of it is drawn already
    for lease in leases:
        lanes, share = _lanes(lease.gpus, lane_of), lease.share_pct / WHOLE_PCT
        at = max((used.get(lane, 0.0) for lane in lanes), default=0.0)
        used |= dict.fromkeys(lanes, at + share)
        spans.append(Span(lease, lease.since, max(lease.until, now), lanes, share,
                          0.0 if at + share > FULL else at))
    return spans


def _lanes(uuids: Iterable[str], lane_of: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(lane_of[uuid] for uuid in uuids if uuid in lane_of)


def _bounds(claim: ClaimView) -> tuple[float, float]:
    start = claim.starts_at or claim.asked_at
    return start, start + claim.term_s


def stacked_spans(claims: Iterable[ClaimView]) -> list[Span]:
    """Return claims for any node, one below the other where they would lie on each other."""
    ends: list[float] = []
    spans = []
    for claim in claims:
        start, end = _bounds(claim)
        lane = next((lane for lane, busy in enumerate(ends) if busy <= start), len(ends))
        ends[lane:lane + 1] = [end]
        spans.append(Span(claim, start, end, (lane,)))
    return spans


def lane_runs(lanes: Iterable[int]) -> list[tuple[int, int]]:
    """Return neighbours together, as their first lane and their number."""
    runs: list[tuple[int, int]] = []
    for lane in sorted(lanes):
        first, count = runs[-1] if runs else (-1, 0)
        if lane == first + count:
            runs[-1] = (first, count + 1)
        else:
            runs.append((lane, 1))
    return runs


def free_after(span: Span, spans: Sequence[Span], week_end: float) -> float:
    """Return for how many seconds after its end the lanes of a span stay free, within the week."""
    end = min(span.end, week_end)
    starts = [max(other.start, end) for other in spans
              if other.item is not span.item and other.end > end
              and not set(other.lanes).isdisjoint(span.lanes)]
    return min([week_end, *starts]) - end
