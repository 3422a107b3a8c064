"""Sentences and tables of the Forecasts page, from the hub's forecasts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from dash.development.base_component import Component

from gpudeck.markup import make

from ..insight.pool_outlook_views import (
    LeaseRunTimeView,
    RunTimeList,
    RunTimeTestView,
    SpanView,
    WaitList,
    WaitView,
)
from ..insight.views import (
    DemandForecastView,
    DemandTestView,
    GrowingMemoryView,
    IntervalView,
    MemoryForecastList,
    MemoryTestView,
)
from .words import age, amount, bytes_words, moment, plural

HOUR_S = 3_600
DIFFERS = 1.1  # busiest to quietest hours
FAR_S = 29.9 * 86_400  # from here on nothing is said
BUSY_HOURS = 3
HIDDEN = "Shown to users who see the whole fleet, once history has been read."


@dataclass(frozen=True, slots=True)
class Peak:
    """The hour in which most is expected, in the unit that is shown."""

    begins: str
    low: float
    mid: float
    high: float
    gpus: int


@dataclass(frozen=True, slots=True)
class DemandUnit:
    """Unit of a demand on the page: `per` of the API's units make one `name`."""

    name: str
    per: float
    peak_words: Callable[[Peak], str]

    def amount(self, value: float) -> str:
        return amount(value / self.per, 0 if self.per == 1 else 1)


def held_words(peak: Peak) -> str:
    free, least, most = (amount(max(0.0, peak.gpus - gpus))
                         for gpus in (peak.mid, peak.high, peak.low))
    return (f"Peak at {peak.begins}: about {amount(peak.mid)} of {amount(peak.gpus)} GPUs held "
            f"({amount(peak.low)} to {amount(peak.high)} in 8 of 10 cases), {free} free "
            f"({least} to {most}).")


def queue_words(peak: Peak) -> str:
    return (f"Peak at {peak.begins}: claims for about {amount(peak.mid)} GPUs wait "
            f"({amount(peak.low)} to {amount(peak.high)} in 8 of 10 cases).")


def power_words(peak: Peak) -> str:
    return (f"Peak at {peak.begins}: about {amount(peak.mid, 1)} kW "
            f"({amount(peak.low, 1)} to {amount(peak.high, 1)} in 8 of 10 cases).")


UNITS = {"gpus_held": DemandUnit("GPUs", 1, held_words),
         "gpus_waited_for": DemandUnit("GPUs", 1, queue_words),
         "power_w": DemandUnit("kW", 1_000, power_words)}


def demand_words(demand: DemandForecastView | None, zone: str, offset_h: int) -> str:
    """Tell the peak and the busiest hours. None: not for this viewer, or not computed yet.
    `offset_h`: hours by which the viewer's clock is ahead of UTC."""
    if demand is None:
        return HIDDEN
    unit = UNITS[demand.name]
    peak = (f"Not known: {demand.why}." if demand.why
            else unit.peak_words(_peak(demand, unit, zone)))
    return f"{peak} {busiest_words(demand.usual_day, unit, offset_h)}".strip()


def _peak(demand: DemandForecastView, unit: DemandUnit, zone: str) -> Peak:
    top = demand.p50.index(max(demand.p50))
    low, mid, high = (values[top] / unit.per for values in (demand.p10, demand.p50, demand.p90))
    return Peak(moment(demand.starts_at + top * HOUR_S, zone), low, mid, high, demand.gpus)


def busiest_words(day: Sequence[float], unit: DemandUnit, offset_h: int) -> str:
    """Name the hours in a row in which it is highest on a usual day, where they differ from the
    others. `day`: by the hours of UTC."""
    if not day:
        return ""
    means = [sum(day[(hour + more) % 24] for more in range(BUSY_HOURS)) / BUSY_HOURS
             for hour in range(len(day))]
    top = means.index(max(means))
    if means[top] <= DIFFERS * min(means):
        return ""
    begins, ends = (f"{(hour + offset_h) % 24}:00" for hour in (top, top + BUSY_HOURS))
    return (f"Busiest on a usual day of the last two weeks: {begins} to {ends}, with "
            f"{unit.amount(means[top])} {unit.name}.")


def demand_test_words(demand: DemandForecastView | None) -> str:
    return "" if demand is None or demand.test is None else _test_words(
        demand.test, UNITS[demand.name])


def _test_words(test: DemandTestView, unit: DemandUnit) -> str:
    inside = "" if test.covered_pct is None else (
        f" {amount(test.covered_pct)} % of the hours were within p10 and p90.")
    error, naive_error = (amount(test.errors[name] / unit.per, 1)
                   for name in (test.method, test.best_naive))
    return (f"Test: {plural(test.days, 'day')} of the past, forecast from what was known before "
            f"them: off by {error} {unit.name} on average, the best naive guess "
            f"({test.best_naive}) by {naive_error}, which makes {amount(100 * test.ratio)} % of "
            f"its error.{inside}")


def run_words(runs: RunTimeList) -> str:
    if runs.why:
        return f"Not known: {runs.why}."
    return "" if runs.items else "No lease that is active now can be predicted from earlier runs."


def wait_words(waits: WaitList) -> str:
    return f"Not known: {waits.why}." if waits.why else ""


def span_test_words(test: RunTimeTestView | None, thing: str) -> str:
    if test is None:
        return ""
    guesses = ", ".join(f"{name} by {amount(factor, 2)}"
                        for name, factor in test.naive_off_by.items())
    return (f"Test: {plural(test.runs, thing)} of the past, each predicted from those before it: "
            f"off by a factor of {amount(test.off_by, 2)} on average; {guesses}. "
            f"{amount(test.inside_pct)} % were within the middle half, where 50 % are expected.")


def memory_words(memory: MemoryForecastList) -> str:
    if not memory.items:
        return "No task's memory grew in all of the last 48 minutes."
    return f"{plural(len(memory.items), 'task')} grew in all of the last 48 minutes."


def memory_test_words(test: MemoryTestView) -> str:
    if test.forecasts == 0:
        return ""
    return (f"Test: {plural(test.forecasts, 'forecast')} of 64 minutes within the last week were "
            f"off by {bytes_words(test.error_bytes)} on average; assuming constant memory, by "
            f"{bytes_words(test.naive_error_bytes)}.")


# -- tables

Cell = str | Component


def leases_table(leases: Sequence[LeaseRunTimeView]) -> Component | None:
    return _table(("Owner", "Node", "GPUs", "Ends in", "From"), [
        (lease.lease, (lease.owner, lease.host, amount(lease.gpus), _span_words(lease.left),
                       f"{plural(lease.left.runs, 'run')}: {lease.left.of}")) for lease in leases])


def waits_table(waits: Sequence[WaitView]) -> Component | None:
    return _table(("Claims for", "Wait", "9 of 10 within", "From"), [
        (item.size, (item.size, *_wait_cells(item))) for item in waits])


def _wait_cells(item: WaitView) -> tuple[Cell, Cell, Cell]:
    if item.wait is None:
        return "not known", "", plural(item.waits, "wait")
    return _span_words(item.wait), age(item.wait.p90_s), plural(item.wait.runs, "wait")


def memory_table(growing: Sequence[GrowingMemoryView]) -> Component | None:
    return _table(("Owner", "GPU", "Grows by", "Full to 95 % in"), [
        (f"{item.task_id} {item.gpu}", (
            "unknown owner" if item.user is None else item.user, _gpu_link(item),
            _growth_words(item.bytes_per_s), _full_cell(item))) for item in growing])


def _gpu_link(item: GrowingMemoryView) -> Component:
    return make("a", f"{item.host} {item.place}",
                href=f"/gpu/{quote(item.host, safe='')}/{quote(item.place, safe='')}")


def _growth_words(per_s: IntervalView) -> str:
    low, mid, high = (bytes_words(value * HOUR_S) for value in (per_s.low, per_s.mid, per_s.high))
    return f"{mid} an hour ({low} to {high})"


def _full_cell(item: GrowingMemoryView) -> Cell:
    full = item.full_in_s
    if full is None:
        return make("span.forecast-why", "not known", title=item.why)
    if full.mid >= FAR_S:
        return "more than 30 d"
    latest = "more than 30 d" if full.high >= FAR_S else age(full.high)
    return f"{age(full.mid)} ({age(full.low)} to {latest})"


def _span_words(span: SpanView) -> str:
    return f"{age(span.p50_s)} (half of them {age(span.p25_s)} to {age(span.p75_s)})"


def _table(heads: Sequence[str], rows: Sequence[tuple[str, Sequence[Cell]]]) -> Component | None:
    """Make a table of rows, each with its key; the first cell of a row is its head."""
    if not rows:
        return None
    return make("table.report", [
        make("thead", make("tr", [make("th", head, scope="col") for head in heads])),
        make("tbody", [make("tr", [
            make("th", cells[0], scope="row"),
            *(make("td", cell, data_head=head)
              for head, cell in zip(heads[1:], cells[1:], strict=True))], data_key=key)
            for key, cells in rows])])
