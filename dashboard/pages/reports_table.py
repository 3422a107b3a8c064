"""Tables, lists and sentences of a report, for people: elements from values, without a clock."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from dash.development.base_component import Component

from gpudeck.markup import make

from .time_ranges import DAY_S, HOUR_S
from .words import NONE, age, amount, bytes_words, moment, plural

FIRST_ROWS, MOST_ROWS = 200, 1_000  # a thousand take the hub a third of a second to write
TOP = 8
SMALL = 9.995  # below this, two digits: ten minutes are not nothing
Item = Mapping[str, Any]
By = Literal["user", "team", "job", "launch", "slurm_job", "container", "pod", "namespace", "unit",
             "node", "model", "gpu"]
SortKey = Literal["name", "idle_hours", "idle_cost", "idle_share", "gpu_hours", "util_pct",
                  "sm_pct", "mem_used_bytes", "mem_max_bytes", "energy_kwh", "co2_kg", "cost"]
Order = Literal["asc", "desc"]
Measure = Literal["idle", "held"]
HEADS: dict[By, str] = {
    "user": "Owner", "team": "Team", "job": "Job", "launch": "Launch", "slurm_job": "Slurm job",
    "container": "Container", "pod": "Pod", "namespace": "Namespace", "unit": "Systemd unit",
    "node": "Node", "model": "GPU model", "gpu": "GPU"}
# Column of a measure and its words.
MEASURES: dict[Measure, tuple[SortKey, str]] = {
    "idle": ("idle_hours", "idle GPU-hours"), "held": ("gpu_hours", "GPU-hours")}
PARTS_OF_OWNERS = ("job", "launch", "slurm_job", "container", "pod", "namespace", "unit")
_PAST_OF: dict[str, tuple[str, str]] = {  # parameter of History, and what precedes the key in it
    "user": ("owner", "user:"), "team": ("team", ""), "node": ("node", ""), "gpu": ("gpu", "")}


@dataclass(frozen=True, slots=True)
class ReportPart:
    """Report as `GET reports` answers, and how the page shows it."""

    report: Item
    by: By
    sort: SortKey
    order: Order
    currency: str
    is_whole: bool  # more than the first rows
    zone: str

    @property
    def total(self) -> Item:
        total: Item = self.report["total"]
        return total

    @property
    def items(self) -> Sequence[Item]:
        items: Sequence[Item] = self.report["items"]
        return items

    @property
    def unknown(self) -> str:
        """Words for the one whose name is not known."""
        return "unknown owner" if self.by in ("user", "team") else f"{HEADS[self.by]} not known"

    def name(self, item: Item) -> str:
        return self.unknown if item["name"] is None else str(item["name"])

    def money(self, value: float) -> str:
        return f"{value:,.2f} {self.currency}".rstrip()

    def cost(self, item: Item) -> str:
        """Energy is a part of the cost where it has a price, and may be a minimum."""
        words = self.money(item["cost"])
        return words if self.report["price_kwh"] is None else at_least(item, words)


@dataclass(frozen=True, slots=True)
class Column:
    key: SortKey
    head: str
    meaning: str
    words: Callable[[ReportPart, Item], str]  # of a value that is known


COLUMNS = (
    Column("idle_hours", "Idle GPU-hours", "Hours held in minutes in which utilization never "
           "exceeded 5 %", lambda _, item: fine(item["idle_hours"])),
    Column("idle_cost", "Idle cost", "Idle GPU-hours at the price above",
           lambda part, item: part.money(item["idle_cost"])),
    Column("idle_share", "Idle", "Idle share of the GPU-hours with known utilization",
           lambda _, item: f"{amount(100 * item['idle_share'], 1)} %"),
    Column("gpu_hours", "GPU-hours", "Hours in which a task was on a GPU, total over all GPUs",
           lambda _, item: fine(item["gpu_hours"])),
    Column("util_pct", "Avg utilization", "Average GPU utilization while held: the share of time "
           "in which any kernel ran, not the share of the chip",
           lambda _, item: f"{amount(item['util_pct'], 1)} %"),
    Column("sm_pct", "SM activity", "Average SM activity while held, where the boards report it: "
           "how much of the chip worked", lambda _, item: f"{amount(item['sm_pct'], 1)} %"),
    Column("mem_used_bytes", "Avg memory", "Average memory held per GPU while tasks were on it",
           lambda _, item: bytes_words(item["mem_used_bytes"])),
    Column("mem_max_bytes", "Peak memory", "Highest memory of one job on one GPU",
           lambda _, item: bytes_words(item["mem_max_bytes"])),
    Column("energy_kwh", "Energy", "Energy drawn by the GPUs while held, in kWh; split evenly "
           "between owners sharing a GPU",
           lambda _, item: at_least(item, f"{fine(item['energy_kwh'])} kWh")),
    Column("co2_kg", "CO₂", "Energy at the grams of CO₂ per kWh above",
           lambda _, item: at_least(item, f"{fine(item['co2_kg'])} kg")),
    Column("cost", "Cost", "GPU-hours and energy at the prices above",
           lambda part, item: part.cost(item)))


def fine(value: float) -> str:
    return f"{value:.2f}" if value < SMALL else amount(value, 1)


def at_least(item: Item, words: str) -> str:
    """Mark a minimum: what nobody measured is not in it."""
    return f"≥ {words}" if item["energy_share"] < 0.995 else words


def share_words(share: float) -> str:
    return "less than 1 %" if share < 0.01 else f"{int(100 * share)} %"


def shown_columns(part: ReportPart) -> list[Column]:
    """Return the columns without those that nothing is known of: a price or a factor is missing, or
    no board reports it."""
    report = part.report
    missing = {"cost": report["price_gpu_hour"] is None and report["price_kwh"] is None,
               "idle_cost": part.total["idle_cost"] is None,
               "co2_kg": report["co2_g_per_kwh"] is None,
               "sm_pct": part.total["sm_pct"] is None}
    return [column for column in COLUMNS if not missing.get(column.key)]


def table(part: ReportPart) -> list[Component]:
    """Table with the total at its foot; or a sentence."""
    if not part.items:
        return [make("p.none", "No history yet: it starts with the first task on a GPU."
                     if part.report["since"] is None else "No GPU was held in this time.",
                     role="status")]
    columns = shown_columns(part)
    rows = sort_items(part.items, part.sort, part.order)
    first = rows[:MOST_ROWS if part.is_whole else FIRST_ROWS]
    heads = [_head(part, "name", HEADS[part.by], None),
             *(_head(part, column.key, column.head, column.meaning) for column in columns)]
    body = [make("tr", _row(part, columns, item, _row_name(part, item)),
                 data_key="unknown" if item["of"] is None else f"={item['of']}") for item in first]
    foot = make("tr", _row(part, columns, part.total, "Total"))
    whole = make("table.report", [make("thead", make("tr", heads)), make("tbody", body),
                                  make("tfoot", foot)])
    return [whole, *_more(len(first), len(rows))]


def _more(first: int, count: int) -> list[Component]:
    """Line below a table with only the first rows."""
    if first == count:
        return []
    words = f"The first {amount(first)} of {amount(count)} rows; the total is of all. "
    label = "Show all" if count <= MOST_ROWS else f"Show {amount(MOST_ROWS)}"
    return [make("p.report-more", [words, "CSV and Parquet have all rows." if first == MOST_ROWS
                                   else make("button.as-link", label, data_set={"rows": "all"})])]


def _head(part: ReportPart, key: SortKey, words: str, meaning: str | None) -> Component:
    """Head that sorts wherever it is clicked: its words fill only a corner of it."""
    is_sorted = part.sort == key
    order = ("asc" if part.order == "desc" else "desc") if is_sorted else (
        "asc" if key == "name" else "desc")
    return make("th" if key == "name" else "th.number",
                make("button.as-link", words, title=meaning, data_sort=key), scope="col",
                data_key=key, data_set={"sort": key, "order": order},
                aria_sort={"asc": "ascending", "desc": "descending"}[part.order]
                if is_sorted else None)


def _row(part: ReportPart, columns: Sequence[Column], item: Item, name: Component | str
         ) -> list[Component]:
    return [make("th", name, scope="row"), *(
        make("td.number", NONE if item[column.key] is None else column.words(part, item),
             data_head=column.head) for column in columns)]


def _row_name(part: ReportPart, item: Item) -> Component | str:
    """Return the name, with a link to the job or to the past of what it names."""
    of, by, name = item["of"], part.by, part.name(item)
    if of is None:
        return name
    if by == "job" and name != of:
        return make("a", name, href=f"/job/{quote(of, safe='')}", title=name)
    if of == "" or by not in _PAST_OF:
        return name
    parameter, kind = _PAST_OF[by]
    span = f"start={part.report['start']}&end={part.report['end']}"
    return make("a", name, href=f"/history?{parameter}={quote(kind + of, safe='')}&{span}",
                title="Over time")


def sort_items(items: Sequence[Item], sort: SortKey, order: Order) -> list[Item]:
    """Sort; what is not known comes last, either way."""
    measured = [item for item in items if item[sort] is not None]
    key: Callable[[Item], Any] = (lambda item: natural(item[sort])) if sort == "name" else (
        lambda item: item[sort])
    return [*sorted(measured, key=key, reverse=order == "desc"),
            *(item for item in items if item[sort] is None)]


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Return a key for a natural sort: 3 before n2, before N10."""
    return [(False, int(part), "") if part.isascii() and part.isdecimal() else
            (True, 0, part.casefold()) for part in re.split(r"([0-9]+)", name) if part]


def most_idle(items: Sequence[Item]) -> Item | None:
    return next(iter(sort_items(items, "idle_hours", "desc")), None)


def largest_of(items: Sequence[Item], key: SortKey, count: int) -> list[Item]:
    """Return the largest `count`; the one with the most idle hours is always among them."""
    waster, largest = most_idle(items), sort_items(items, key, "desc")[:count]
    if waster is None or any(item is waster for item in largest):
        return largest
    return [*largest[:count - 1], waster]


def shown_measure(part: ReportPart, show: Measure) -> Measure:
    """Return idle hours where there are any, unless all hours were chosen."""
    return "idle" if show == "idle" and (part.total["idle_hours"] or 0) > 0 else "held"


def largest(part: ReportPart, measure: Measure) -> list[Item]:
    key, _ = MEASURES[measure]
    items = part.items if measure == "held" else [
        item for item in part.items if (item["idle_hours"] or 0) > 0]
    return largest_of(items, key, TOP)


def top_list(part: ReportPart, measure: Measure) -> list[Component]:
    """List of the largest: their idle hours; of all hours also those in use."""
    items = largest(part, measure)
    key, words = MEASURES[measure]
    is_held = measure == "held"
    most = max((item[key] for item in items), default=0)
    hues = iter(range(1, TOP + 1))  # as many as the figure has: none for what is not known
    return [make("h2", [f"Top {len(items)} by {words}", *([make("span.top-key", [
                make("i.top-idle"), "idle", make("i.top-used"), "in use"])] if is_held else [])]),
            *(_top_row(part, item, 0 if item["of"] is None else next(hues), is_held, most)
              for item in items)]


def _top_row(part: ReportPart, item: Item, hue: int, is_held: bool, most: float) -> Component:
    idle_hours = item["idle_hours"] or 0.0
    used_hours = item["gpu_hours"] - idle_hours if is_held else 0.0
    bars = [make(f"i.{name}", style={"width": f"{100 * hours / (most or 1):.2f}%"})
            for name, hours in (("top-idle", idle_hours), ("top-used", used_hours))]
    hours = f"{amount(item['gpu_hours'], 1)} GPU-hours, {amount(idle_hours, 1)} idle"
    return make("div.top-row", [
        make("span.top-name", [
            make("i.top-swatch", style={
                "background": f"var(--hue-{hue})" if hue else "transparent"}), part.name(item)]),
        make("span.top-bar", bars, role="img", aria_label=hours),
        make("span.top-hours", fine(item["gpu_hours"] if is_held else idle_hours))])


def cards(part: ReportPart) -> dict[str, tuple[bool, str, str]]:
    """Return of each card of what was wasted: if it is a waste, its figure, and its detail."""
    total, price = part.total, part.report["price_gpu_hour"]
    idle, cost = total["idle_hours"], total["idle_cost"]
    has_idle = idle is not None and idle > 0
    most = most_idle(part.items) if has_idle else None
    of = f"of {fine(total['gpu_hours'])} GPU-hours" if part.items else ""
    return {
        "idle": (has_idle, NONE if idle is None else fine(idle) if has_idle else "none",
                 f"{of}, {share_words(total['idle_share'])}" if has_idle and of else of),
        "cost": (has_idle and cost is not None, NONE if cost is None else part.money(cost),
                 "Enter a price per GPU-hour above" if price is None and cost is None
                 else "" if total["cost"] is None else f"of {part.money(total['cost'])}"),
        "most": (has_idle, *(("none", "") if most is None else _most_words(part, most)))}


def _most_words(part: ReportPart, most: Item) -> tuple[str, str]:
    whole = part.total["idle_hours"]
    words = [f"{fine(most['idle_hours'])} idle GPU-hours",
             f"{share_words(most['idle_hours'] / whole)} of all"]
    if most["idle_cost"] is not None:
        words.append(part.money(most["idle_cost"]))
    return part.name(most), " · ".join(words)


def coverage_words(report: Item, now: float) -> str | None:
    """Describe how much of the span the numbers are of; None: of all of it."""
    coverage, backfilling = report["coverage"], report["backfilling"]
    if report["joining"]:
        return "History of before this hub took over is being read from the archive."
    if coverage is None or coverage >= 0.995:
        return (f"Backfill under way: {plural(backfilling, 'node')} still "
                f"{'sends' if backfilling == 1 else 'send'} what was measured while the hub was "
                "away.") if backfilling > 0 else None
    whole_s = min(report["end"], now) - report["start"]
    unit, words, digits = ((60, "min", 0) if whole_s < 3 * HOUR_S else
                           (HOUR_S, "h", 1) if whole_s < 3 * DAY_S else (DAY_S, "days", 1))
    covered_s = coverage * whole_s
    is_small = digits > 0 and covered_s < unit  # 50 min are not "0.0 of 7.0 days"
    part = age(covered_s) if is_small else amount(covered_s / unit, digits)
    covered = f"{part} of {amount(whole_s / unit, digits)} {words}"
    if backfilling > 0:
        return f"This span is being filled: {covered}; backfill under way."
    span = "this span until now" if report["end"] > now else "this span"
    return f"History covers {covered} ({share_words(coverage)}) of {span}."


def notes(part: ReportPart) -> list[str]:
    """Return sentences that explain the numbers."""
    by, since, lines = part.by, part.report["since"], [
        "A GPU-hour is an hour in which a task was on a GPU. Owners sharing a GPU each count it in "
        "full; its energy is divided among them."]
    if by in ("node", "gpu", "model"):
        lines.append(f"The GPU-hours of a {HEADS[by]} are the total of its owners.")
    if by in PARTS_OF_OWNERS:
        lines.append("Where jobs of one owner share a GPU, its hours are divided among them by "
                     "their time; average memory is of each job on each GPU.")
    if by == "team":
        lines.append("No owner is in two teams, as the table in Settings says now; a team that has "
                     "a price is billed at it.")
    if any(item["energy_kwh"] is not None and item["energy_share"] < 0.995 for item in part.items):
        lines.append("≥: power readings are incomplete; energy and cost are minimums.")
    if since is not None and since > part.report["start"] + HOUR_S:
        lines.append(f"Data starts on {moment(since, part.zone)}.")
    return lines
