"""The week of the Pool page: a row for each node, with its leases and reservations. What is dragged
over it is assets/pool/pool.mjs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from dash.development.base_component import Component

from gpudeck.markup import make

from ..pool.views import ClaimView, LeaseView, PoolNodeView
from .pool_orders import RESERVE
from .pool_spans import (
    Span,
    free_after,
    lane_runs,
    midnights,
    spans_of,
    stacked_spans,
)
from .pool_words import Gpus, is_reserved, leased_words
from .reading import Parts, Viewer
from .words import amount, moment, plural

MOST_NODES = 128
ANY = "Any node"
GPU_LANE = 22
NODE_LANE, NODE_PX = 14, 48  # the least that has room for a name; of a node's lanes together
CLAIM_LANE = 20
LEAST_ROW, LEAST_BAR = 28, 3
WORDS_FROM = 12  # px of height; below it a bar has no room for words
LETTER_PX, PADDING_PX = 6.6, 14

RowsBy = Literal["node", "gpu"]


@dataclass(frozen=True, slots=True)
class WeekRow:
    """A row of the week. `host` "": of the claims that any node may serve."""

    key: str
    host: str
    places: Sequence[str]
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class PoolWeekView:
    """The week for one viewer. `may_reserve`: dragging over it asks for GPUs."""

    week: int
    rows_by: RowsBy
    may_reserve: bool
    person: Viewer
    gpus: Gpus
    now: float
    zone: str

    def parts(self, nodes: Sequence[PoolNodeView], leases: Sequence[LeaseView],
              claims: Sequence[ClaimView], find: str) -> Parts:
        days = midnights(self.week, self.now, self.zone)
        matches = week_nodes(nodes, leases, find)
        rows = rows_of(matches[:MOST_NODES], leases, claims, self.now)
        more = (f"The first {MOST_NODES} of {amount(len(matches))} nodes. Use the search above."
                if len(matches) > MOST_NODES else None)
        return {"pool-week": f"{self._date(days[0])} \N{EN DASH} {self._date(days[-2])}",
                **_steps(self.week), "pool-how": self.may_reserve and bool(nodes),
                "pool-calendar": self._calendar(days, rows), "pool-week-more": more}

    def _calendar(self, days: Sequence[float], rows: Sequence[WeekRow]) -> Component:
        start, end = days[0], days[-1]
        heads = [make(f"span{'.today' if at == 0 and self.week == 0 else ''}",
                      f"{self._local(days[at]):%a} {self._local(days[at]).day}",
                      style=_place(days[at], days[at + 1], start, end))
                 for at in range(len(days) - 1)]
        now = make("i.calendar-now", hidden=self.week != 0, aria_hidden="true")
        reserve = {"data_reserve": RESERVE} if self.may_reserve else {}
        return make("div.calendar-inner", [
            make("div.calendar-head", [make("span"), make("div.calendar-days", heads)]),
            make("ul.calendar-rows", [self._row(row, start, end) for row in rows]), now],
            data_start=start, data_end=end, **reserve,
            style={"--now": f"{(self.now - start) / (end - start):.5f}"})

    def _row(self, row: WeekRow, start: float, end: float) -> Component:
        lanes, is_any = len(row.places), row.host == ""
        lane = CLAIM_LANE if is_any else GPU_LANE if self.rows_by == "gpu" else max(
            NODE_LANE, NODE_PX // max(1, lanes))
        drawn = [span for span in row.spans if span.end > start and span.start < end]
        bars: list[Component] = []
        for span in drawn:
            style = self._style(span, start, end, free_after(span, drawn, end))
            bars += self._bars(span, lane, style, is_first=not bars)
        return make("li.calendar-row", [
            make("div.calendar-name", self._name(row)),
            make("div.calendar-track", make("div.calendar-bars", bars))],
            data_host=row.host, data_key=row.key,
            style={"--height": f"{max(LEAST_ROW, lane * lanes)}px", "--lane": f"{lane}px"})

    def _name(self, row: WeekRow) -> list[Component]:
        if row.host == "":
            return [make("strong", ANY)]
        name = make("button.as-link", row.host, title=f"Reserve GPUs of {row.host} …",
                    aria_label=f"Reserve GPUs of {row.host}", data_host=row.host
                    ) if self.may_reserve else make("strong", row.host)
        return [name, make("ol", [make("li", f"GPU {place}") for place in row.places])
                if self.rows_by == "gpu" else make("small", plural(len(row.places), "GPU"))]

    def _style(self, span: Span, start: float, end: float, free_s: float) -> dict[str, str]:
        """Return where a bar is, and for the style sheet, which then sees whether its name fits in
        it or beside it: how wide the name is, and how many times its own width is free."""
        length = min(span.end, end) - max(span.start, start)
        return _place(span.start, span.end, start, end) | {
            "--name": f"{len(span.item.owner) * LETTER_PX + PADDING_PX:.1f}px",
            "--after": f"{free_s / max(1.0, length):.3f}"}

    def _bars(self, span: Span, lane: int, style: dict[str, str], is_first: bool
              ) -> list[Component]:
        item, words, name = span.item, self._words(span), make("span", span.item.owner)
        bars: list[Component] = []
        for first, count in lane_runs(span.lanes):
            high = max(LEAST_BAR, lane * count * min(1.0, span.share) - 1)
            top = lane * first + (span.at * lane if span.share < 1 else 0.0)
            bars.append(make(
                f"button.calendar-bar{self._looks(item)}", name if high >= WORDS_FROM else None,
                style=style | {"top": f"{top:.6g}px", "height": f"{high:.6g}px"}, title=words,
                aria_label=words, data_key=f"{item.id} {first}", data_set={"open": item.id},
                data_step="false",
                # One tab stop for a node; arrows lead on.
                tabIndex="0" if is_first and not bars else "-1"))
        return bars

    def _looks(self, item: LeaseView | ClaimView) -> str:
        is_lease = isinstance(item, LeaseView)
        mine = ".mine" if item.owner in self.person.unix_names else ""
        late = ".late" if isinstance(item, LeaseView) and item.until < self.now else ""
        return f"{'.lease' if is_lease else '.claim'}{mine}{late}"

    def _words(self, span: Span) -> str:
        item = span.item
        times = f"{self._time(span.start)} to {self._time(span.end)}"
        if not isinstance(item, LeaseView):
            return f"{item.owner}: {item.asks}, reserved {times}"
        late = "" if item.until >= self.now else (
            f", overdue since {moment(item.until, self.zone)}")
        return f"{item.owner}: {leased_words(item, self.gpus)}, {times}{late}"

    def _local(self, at: float) -> datetime:
        return datetime.fromtimestamp(at, ZoneInfo(self.zone))

    def _date(self, at: float) -> str:
        return f"{self._local(at).day} {self._local(at):%B}"

    def _time(self, at: float) -> str:
        return f"{self._local(at):%a, %H:%M}"


def week_nodes(nodes: Sequence[PoolNodeView], leases: Sequence[LeaseView], find: str
                ) -> list[PoolNodeView]:
    """Return the nodes whose name, or an owner of a lease there, has the text."""
    wanted = find.strip().lower()
    owned = {lease.node for lease in leases if wanted in lease.owner.lower()}
    return [node for node in nodes if node.node in owned or wanted in node.host.lower()]


def rows_of(nodes: Sequence[PoolNodeView], leases: Sequence[LeaseView],
            claims: Sequence[ClaimView], now: float) -> list[WeekRow]:
    """Return the rows of the week: above all, the claims that more than one node may serve."""
    reserved = [claim for claim in claims if is_reserved(claim, now)]
    leases_by_node: dict[str, list[LeaseView]] = {}
    for lease in leases:
        leases_by_node.setdefault(lease.node, []).append(lease)
    loose = stacked_spans(claim for claim in reserved if len(claim.hosts) != 1)
    lanes = 1 + max((span.lanes[0] for span in loose), default=0)
    return [*([WeekRow("", "", [""] * lanes, loose)] if loose else []), *(
        WeekRow(node.node, node.host, [gpu.place for gpu in node.gpus], spans_of(
            node, leases_by_node.get(node.node, []),
            [claim for claim in reserved if claim.hosts == [node.host]], now))
        for node in nodes)]


def _steps(week: int) -> Parts:
    """Return the buttons that lead to another week."""
    steps = (("before", "←", "Previous week", max(0, week - 1), "["),
             ("today", "Today", "Today, this week", 0, None),
             ("after", "→", "Next week", week + 1, "]"))
    return {f"pool-{key}": make(
        f"button#pool-{key}.button.small", words, title=title, aria_label=title,
        data_set={"week": to}, data_step="false", data_shortcut=shortcut,
        disabled=key != "after" and week == 0) for key, words, title, to, shortcut in steps}


def _place(since: float, until: float, start: float, end: float) -> dict[str, str]:
    left, right = (min(1.0, max(0.0, (at - start) / (end - start))) for at in (since, until))
    return {"left": f"{100 * left:.3f}%", "width": f"{100 * (right - left):.3f}%"}
