"""REST of the past: `series`, `instant`, `usage`, `reports`, `mps/past`; fleet/past_api has the
rest. The engine runs in gevent's native threads; queries are bounded first."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import Response, request
from msgspec import Raw

from gpudeck.measures.metrics import COLUMNS, SLOW

from ..access.policy import Actor, Role
from ..access.requests import caller
from ..access.routes import Route, see
from ..errors import NotFoundError, ResultTooLargeError
from ..web.answers import bad, check_names, one_of
from ..web.moments import moment
from ..web.openapi_parts import FORMAT, METRIC, METRIC_LIST, PRICE_SCHEMA, TIME, needed
from ..web.query_pool import QueryPool
from .inventory import VisibleInventory
from .mps_usage import USES, MpsUsageView, mps_past
from .reads.coverage import covered_share
from .reads.file_responses import body_of, requested_form, respond_as
from .reads.protocol import History
from .report_views import Report, ReportPrices, report_columns, report_view
from .usage_names import KNOWN_BY, REPORT_BYS, UsageNames, regrouped, source_of
from .views import (
    InstantView,
    ItemPlaces,
    SeriesView,
    UsageList,
    instant_view,
    series_columns,
    series_view,
    usage_columns,
    usage_view,
)

if TYPE_CHECKING:
    import pandas as pd

MAX_POINTS = 20_000
MAX_ALSO = 16
MAX_ALSO_POINTS = 4_000  # one line of each of them
MAX_BESIDE = 7
MAX_VALUES = 150_000  # points of all lines of an answer
WANTED_POINTS = 1_000
MAX_USAGE_ROWS = 20_000
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200,
         86_400, 604_800)
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
MAX_MINUTES_S = 25 * HOUR_S  # of usage by the minute
MAX_MPS_S = 7 * DAY_S
MAX_USES = 500_000
LATE_S = 15.0
METRICS = frozenset(metric.key for metric in (*COLUMNS, *SLOW))
PRICE = r"[0-9]{1,9}(\.[0-9]{1,9})?"


@dataclass(eq=False, slots=True)
class HistoryApi:
    history: History
    questions: QueryPool
    inventory: Callable[[Actor], VisibleInventory]
    cluster: str
    usage_names: UsageNames

    def series(self) -> Response:
        args = _arguments("gpu", "metric", "start", "end", "step", "also", "beside", "format")
        form, inventory = requested_form(), self._inventory()
        gpus = [_needed(args, "gpu"), *_beside(args)]
        metrics = [_metric(args), *_also(args)]
        start, end = _span(900.0)
        step = max(_step(args.get("step"), end - start), self.history.finest(start))
        span = int(start // step) * step, -int(-end // step) * step
        _check_points(len(gpus), len(metrics), span, step)
        nodes, places = inventory.nodes, {gpu: inventory.place(gpu) for gpu in gpus}

        def body() -> tuple[bool, bytes]:
            frame = self.history.series(gpus, metrics, *span, step, nodes=nodes)
            view = series_view(frame, gpus, metrics, span, step)
            return len(frame) > 0, body_of(
                form, view, lambda: series_columns(view, self.cluster, places))

        has_any, content = self.questions.ask(body)
        if not has_any and not inventory.has(gpus[0]):
            raise NotFoundError(f"there is no GPU {gpus[0][:128]!r} here")
        return respond_as(form, content, "series", *span)

    def instant(self) -> Raw:
        args = _arguments("metric", "at")
        metric, inventory = _metric(args), self._inventory()
        asked_at = moment("at")
        at = time.time() - 2.0 if asked_at is None else asked_at
        nodes, gpus = inventory.nodes, inventory.gpus()
        return self.questions.encoded(lambda: instant_view(
            self.history.instant(metric, at, nodes), metric, int(at), gpus))

    def usage(self) -> Response:
        args = _arguments("by", "bucket", "start", "end", "of", "format")
        form, by, of = requested_form(), _by(args), args.get("of")
        bucket = _bucket(args.get("bucket", str(DAY_S)), by == "user" and of is not None)
        start, end = _span(7.0 * DAY_S if bucket % HOUR_S == 0 else DAY_S)
        if bucket % HOUR_S and self.history.finest(start) == HOUR_S:
            bucket = HOUR_S
        span = int(start // bucket) * bucket, -int(-end // bucket) * bucket
        if bucket % HOUR_S and span[1] - span[0] > MAX_MINUTES_S:
            raise bad("at most a day by the minute; use whole hours, such as 3600")
        inventory = self._inventory()
        nodes, where = inventory.nodes, self._places(inventory, by)

        def body() -> bytes:
            is_known = by not in KNOWN_BY
            frame = self.history.usage(source_of(by), bucket, *span, nodes,
                                       of if is_known else None)
            if not is_known:
                frame = regrouped(frame, by, self._belongs(inventory, by, frame))
                frame = frame if of is None else frame[frame[by] == of]
            _check_rows(len(frame))
            view = usage_view(frame, by, bucket, span)
            return body_of(form, view, lambda: usage_columns(view, where))

        return respond_as(form, self.questions.ask(body), "usage", *span)

    def reports(self) -> Response:
        args = _arguments("by", "start", "end", "price_gpu_hour", "price_kwh", "co2_g_per_kwh",
                       "format")
        form, by = requested_form(), _by(args)
        prices = ReportPrices(_price(args, "price_gpu_hour"), _price(args, "price_kwh"),
                              self.usage_names.team_prices(), _price(args, "co2_g_per_kwh"))
        start, end = _span(7.0 * DAY_S)
        span = int(start // HOUR_S) * HOUR_S, -int(-end // HOUR_S) * HOUR_S
        inventory = self._inventory()
        nodes, where = inventory.nodes, self._places(inventory, by)
        there = {gpu for gpu, _ in inventory.gpus()}
        backfilling, places = inventory.backfilling(), self.history.places

        def body() -> bytes:
            frame = self.history.usage(source_of(by), 0, *span, nodes)
            if by in KNOWN_BY:
                frame = regrouped(frame, by, self._belongs(inventory, by, frame))
            _check_rows(len(frame))
            names = self._names(inventory, by, frame)
            teams = self._belongs(inventory, "team", frame) if by == "user" else None
            report = report_view(frame, by, span, prices, names, self.history.since(), teams)
            hours, until = self.history.hours_seen(*span, nodes)
            report.coverage = covered_share(hours, span[0], until, there)
            report.backfilling = backfilling
            report.joining = places is not None and places.is_waiting
            return body_of(form, report, lambda: report_columns(report, where))

        return respond_as(form, self.questions.ask(body), f"report_by_{by}", *span)

    def mps(self) -> Raw:
        node_id = _needed(_arguments("node", "start", "end"), "node")
        gpus = self._inventory().gpus_of(node_id)
        if gpus is None:
            raise NotFoundError(f"there is no node {node_id[:128]!r} here")
        start, end = _span(1.0 * DAY_S)
        # A minute that is not over, or not notified yet, has another number in a moment.
        end = min(end, time.time() - LATE_S)
        span = int(start // MINUTE_S) * MINUTE_S, int(end // MINUTE_S) * MINUTE_S
        if span[1] - span[0] > MAX_MPS_S or span[1] <= span[0]:
            raise bad("from one whole minute to 7 days; ask for another time")
        nodes = frozenset((node_id,))

        def view() -> MpsUsageView:
            uses = self.history.tasks(*span, nodes=nodes, limit=MAX_USES + 1, words=USES)
            if len(uses) > MAX_USES:
                raise ResultTooLargeError(f"more than {MAX_USES:,} uses of GPUs; ask for a "
                                          "shorter time")
            loads = self.history.series(gpus, ["util_pct"], *span, MINUTE_S, ("mean", "n"), nodes)
            return mps_past(node_id, gpus, uses, loads, span)

        return self.questions.encoded(view)

    def _names(self, inventory: VisibleInventory, by: str, frame: "pd.DataFrame"
               ) -> Mapping[str, str]:
        """Return names of what a report is by, where that is not a name already."""
        match by:
            case "node":
                return inventory.hosts()
            case "gpu":
                return inventory.gpu_names()
            case "job" | "launch":
                return self.usage_names.called(by, _keys(frame, by), inventory.line)
        return {}

    def _belongs(self, inventory: VisibleInventory, by: str, frame: "pd.DataFrame"
                 ) -> Mapping[str, str]:
        """Return the team of each owner, or the model of each GPU."""
        return (inventory.models() if by == "model"
                else self.usage_names.teams_of(_keys(frame, "user")))

    def _places(self, inventory: VisibleInventory, by: str) -> ItemPlaces:
        hosts = inventory.hosts()
        return ItemPlaces(self.cluster, hosts if by == "node" else {
            gpu: hosts[node] for gpu, node in inventory.gpus()} if by == "gpu" else {})

    def _inventory(self) -> VisibleInventory:
        return self.inventory(caller())


def _arguments(*names: str) -> dict[str, str]:
    check_names(names)
    return dict(request.args)


def _needed(args: dict[str, str], name: str) -> str:
    if not args.get(name):
        raise bad(f"{name} is needed")
    return args[name]


def _metric(args: dict[str, str]) -> str:
    metric = _needed(args, "metric")
    if metric not in METRICS:
        raise bad(f"there is no metric {metric[:40]!r}; docs/metrics.md and /api/v1/openapi.json "
                   "list them")
    return metric


def _also(args: dict[str, str]) -> list[str]:
    """Return further metrics on the same seconds, for a page that draws them all."""
    keys = [key for key in args.get("also", "").split(",") if key]
    if len(keys) > MAX_ALSO:
        raise bad(f"also has at most {MAX_ALSO} metrics")
    return [_metric({"metric": key}) for key in dict.fromkeys(keys)
            if key != args["metric"]]


def _beside(args: dict[str, str]) -> list[str]:
    """Return further GPUs, on the same seconds."""
    gpus = [gpu for gpu in dict.fromkeys(args.get("beside", "").split(","))
            if gpu not in ("", args["gpu"])]
    if len(gpus) > MAX_BESIDE:
        raise bad(f"`beside` has at most {MAX_BESIDE} GPUs")
    return gpus


def _check_points(gpus: int, metrics: int, span: tuple[int, int], step: int) -> None:
    points = (span[1] - span[0]) // step
    if points > MAX_POINTS:
        raise bad(f"that would be more than {MAX_POINTS:,} points; a step of "
                   f"{_step(None, span[1] - span[0])} shows this span well, with every peak")
    if metrics > 1 and points > MAX_ALSO_POINTS:
        raise bad(f"with `also`, at most {MAX_ALSO_POINTS:,} points")
    if points * gpus * metrics > MAX_VALUES:
        raise bad(f"that would be more than {MAX_VALUES:,} points in all; ask for fewer GPUs or "
                   "metrics, or for a longer step")


def _check_rows(count: int) -> None:
    if count > MAX_USAGE_ROWS:
        raise ResultTooLargeError(f"that would be more than {MAX_USAGE_ROWS:,} rows; ask for a "
                                  "longer bucket or a shorter time")


def _price(args: dict[str, str], name: str) -> float | None:
    if name not in args:
        return None
    if not re.fullmatch(PRICE, args[name]):
        raise bad(f"{name} is a number such as 2.5")
    return float(args[name])


def _by(args: dict[str, str]) -> str:
    return one_of("by", args.get("by"), REPORT_BYS) or "user"


def _keys(frame: "pd.DataFrame", by: str) -> list[str]:
    return [key for key in frame[by].unique().tolist() if isinstance(key, str) and key]


def _bucket(raw: str, may_be_fine: bool) -> int:
    bucket = _whole("bucket", raw)
    is_fine = may_be_fine and bucket % MINUTE_S == 0 and bucket < HOUR_S
    if (bucket % HOUR_S and not is_fine) or bucket > 366 * DAY_S:
        raise bad("bucket is in seconds: whole hours, such as 3600 or 86400; for one user, "
                   "with `of`, also whole minutes, such as 60")
    return bucket


def _span(default_s: float) -> tuple[float, float]:
    start, end = moment("start"), moment("end")
    end = time.time() if end is None else end
    start = max(0.0, end - default_s) if start is None else start
    if start >= end:
        raise bad("start must be before end; end defaults to now")
    return start, end


def _step(raw: str | None, span_s: float) -> int:
    if raw is None:
        return next((step for step in STEPS if span_s / step <= WANTED_POINTS),
                    -(-int(span_s / WANTED_POINTS) // DAY_S) * DAY_S)
    step = _whole("step", raw)
    tier_s = next(tier_s for tier_s in (HOUR_S, MINUTE_S, 1) if step >= tier_s)
    if step % tier_s:
        raise bad(f"a step of a minute or more is in whole minutes, of an hour or more in whole "
                   f"hours: {step - step % tier_s} or {step - step % tier_s + tier_s}")
    return step


def _whole(name: str, raw: str) -> int:
    if not raw.isascii() or not raw.isdigit() or len(raw) > 9 or int(raw) < 1:
        raise bad(f"{name} is a whole number of seconds, 1 to 999999999")
    return int(raw)


ROUTES = (
    Route("GET series", HistoryApi.series, "get_series", see(Role.VIEWER),
          "A metric of one GPU over time. Times are UTC seconds or RFC 3339; the default `step` "
          "gives at most a thousand points.", answer=SeriesView, errors=(404, 503),
          is_file=True,
          query=(needed("gpu", {"type": "string", "minLength": 1}), needed("metric", METRIC),
                 ("start", TIME),
                 ("end", TIME), ("step", {"type": "integer", "minimum": 1}),
                 ("also", {"type": "string", "pattern": METRIC_LIST,
                           "description": "Further metrics, as comma-separated keys."}),
                 ("beside", {"type": "string", "description": "Further GPUs at the same times, "
                             "as comma-separated UUIDs."}), FORMAT)),
    Route("GET instant", HistoryApi.instant, "get_instant", see(Role.VIEWER),
          "A metric of every GPU at one moment: a value, or the reason why it is missing.",
          answer=InstantView, errors=(503,), query=(needed("metric", METRIC), ("at", TIME))),
    Route("GET usage", HistoryApi.usage, "get_usage", see(Role.VIEWER),
          "GPU usage of owners, teams, jobs, pods, nodes and more, per bucket of whole hours; for "
          "one user and at most a day, also whole minutes.", answer=UsageList, errors=(503,),
          is_file=True,
          query=(("by", {"enum": list(REPORT_BYS), "default": "user"}),
                 ("bucket", {"type": "integer", "minimum": 60, "default": 86_400}),
                 ("of", {"type": "string", "description": "Only this one."}), ("start", TIME),
                 ("end", TIME), FORMAT)),
    Route("GET reports", HistoryApi.reports, "get_report", see(Role.VIEWER),
          "GPU usage of owners, teams, jobs, pods, nodes and more over whole hours, and its cost. "
          "Whatever it is by, the parts add up to the same whole.",
          answer=Report, errors=(503,), is_file=True,
          query=(("by", {"enum": list(REPORT_BYS), "default": "user"}), ("start", TIME),
                 ("end", TIME), ("price_gpu_hour", PRICE_SCHEMA),
                 ("price_kwh", PRICE_SCHEMA), ("co2_g_per_kwh", PRICE_SCHEMA), FORMAT)),
    Route("GET mps/past", HistoryApi.mps, "get_mps_past", see(Role.VIEWER),
          "MPS load of a Node, by the minute, for the last day or at most 7 days: number "
          "of clients, and load of its GPUs.", answer=MpsUsageView, errors=(404, 503),
          query=(needed("node", {"type": "string", "minLength": 1}), ("start", TIME),
                 ("end", TIME))),
)
