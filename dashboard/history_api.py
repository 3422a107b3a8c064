"""REST on the past: `series`, `instant`, `usage`. The engine runs in gevent's native threads; what
it is asked is bounded first."""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

import gevent
from flask import Blueprint, Flask, Response, request
from gevent.lock import BoundedSemaphore

from gpudeck.metrics import COLUMNS, SLOW

from .api import PREFIX, Wrong, answer
from .core.access import Actor
from .core.fleet import Fleet
from .core.lens import Lens, Lenses, Sight
from .events_api import moment
from .history.protocol import BYS, By, History, Nodes, NoSuchMetric, TooMuch
from .history_views import instant_view, series_view, usage_view

MAX_POINTS = 20_000
MAX_ALSO = 16
MAX_ALSO_POINTS = 4_000  # one line of each of them
WANTED_POINTS = 1_000
MAX_USAGE_ROWS = 20_000
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200,
         86_400, 604_800)
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
AT_ONCE = 4
WAIT_S = 10.0
METRICS = frozenset(metric.key for metric in (*COLUMNS, *SLOW))

T = TypeVar("T")


class HistoryApi:
    def __init__(self, history: History, fleet: Fleet, lenses: Lenses) -> None:
        self._history = history
        self._fleet = fleet
        self._lenses = lenses
        self._turns = BoundedSemaphore(AT_ONCE)

    def series(self) -> Response:
        given = _given("gpu", "metric", "start", "end", "step", "also")
        gpu, lens = _needed(given, "gpu"), self._lens()
        metrics = [_metric(given), *_also(given)]
        start, end = _span(900.0)
        step = _step(given.get("step"), end - start)
        span = int(start // step) * step, -int(-end // step) * step
        if (span[1] - span[0]) // step > MAX_POINTS:
            raise _bad(f"that would be more than {MAX_POINTS:,} points; a step of "
                       f"{_step(None, end - start)} shows this span well, with every peak")
        if len(metrics) > 1 and (span[1] - span[0]) // step > MAX_ALSO_POINTS:
            raise _bad(f"with `also`, at most {MAX_ALSO_POINTS:,} points")
        nodes = _nodes_of(lens)
        frame = self._ask(lambda: self._history.series([gpu], metrics, *span, step, nodes=nodes))
        if not len(frame) and not self._is_known(gpu, lens):
            raise Wrong(HTTPStatus.NOT_FOUND, f"there is no Gpu {gpu[:128]!r} here")
        return answer(series_view(frame, gpu, metrics, span, step))

    def instant(self) -> Response:
        given = _given("metric", "at")
        metric, lens = _metric(given), self._lens()
        asked_at = moment("at")
        at = time.time() - 2.0 if asked_at is None else asked_at
        nodes = _nodes_of(lens)
        frame = self._ask(lambda: self._history.instant(metric, at, nodes))
        known = [(self._fleet.uuids[slot], self._fleet.node_ids[self._fleet.node_at[slot]])
                 for slot in lens.slots.tolist() if not self._fleet.retired[slot]]
        return answer(instant_view(frame, metric, int(at), known))

    def usage(self) -> Response:
        given = _given("by", "bucket", "start", "end")
        by, bucket = _by(given.get("by", "user")), _bucket(given.get("bucket", str(DAY_S)))
        start, end = _span(7.0 * DAY_S)
        span = int(start // bucket) * bucket, -int(-end // bucket) * bucket
        nodes = _nodes_of(self._lens())
        frame = self._ask(lambda: self._history.usage(by, bucket, *span, nodes))
        if len(frame) > MAX_USAGE_ROWS:
            raise _bad(f"that would be more than {MAX_USAGE_ROWS:,} rows; ask for a longer bucket "
                       "or a shorter time")
        return answer(usage_view(frame, by, bucket, span))

    def _lens(self) -> Lens:
        actor: Actor = request.environ["gpudeck.actor"]
        return self._lenses.of(Sight.of(actor))

    def _is_known(self, gpu: str, lens: Lens) -> bool:
        return self._fleet.find(gpu, lens.place_of) is not None

    def _ask(self, question: Callable[[], T]) -> T:
        if not self._turns.acquire(timeout=WAIT_S):
            raise Wrong(HTTPStatus.SERVICE_UNAVAILABLE,
                        "too many questions to history at once; ask again in a moment")
        try:
            found: T | Exception = gevent.get_hub().threadpool.apply(_caught, (question,))
        finally:
            self._turns.release()
        if isinstance(found, TooMuch | NoSuchMetric):
            raise _bad(str(found))
        if isinstance(found, Exception):
            raise found
        return found


def _caught(question: Callable[[], T]) -> T | Exception:
    """gevent writes an exception that leaves a thread to stderr."""
    try:
        return question()
    except Exception as error:
        return error


def _nodes_of(lens: Lens) -> Nodes:
    return None if lens.is_whole else frozenset(lens.node_ids)


def _given(*known: str) -> dict[str, str]:
    for name in request.args:
        if name not in known:
            raise _bad(f"there is no parameter {name[:40]!r}; there are {', '.join(known)}")
        if len(request.args.getlist(name)) > 1:
            raise _bad(f"{name} is given more than once")
    return dict(request.args)


def _needed(given: dict[str, str], name: str) -> str:
    if not given.get(name):
        raise _bad(f"{name} is needed")
    return given[name]


def _metric(given: dict[str, str]) -> str:
    metric = _needed(given, "metric")
    if metric not in METRICS:
        raise _bad(f"there is no metric {metric[:40]!r}; docs/metrics.md and /api/v1/openapi.json "
                   "list them")
    return metric


def _also(given: dict[str, str]) -> list[str]:
    """Further metrics on the same seconds, for a page that draws them all."""
    wanted = given["also"].split(",") if "also" in given else []
    if len(wanted) > MAX_ALSO:
        raise _bad(f"also has at most {MAX_ALSO} metrics")
    return [_metric({"metric": key}) for key in dict.fromkeys(wanted)
            if key != given["metric"]]


def _by(given: str) -> By:
    for by in BYS:
        if by == given:
            return by
    raise _bad(f"by is one of {', '.join(BYS)}")


def _bucket(raw: str) -> int:
    bucket = _whole("bucket", raw)
    if bucket % HOUR_S or bucket > 366 * DAY_S:
        raise _bad("bucket is a number of seconds: whole hours, such as 3600 or 86400")
    return bucket


def _span(default_s: float) -> tuple[float, float]:
    start, end = moment("start"), moment("end")
    end = time.time() if end is None else end
    start = max(0.0, end - default_s) if start is None else start
    if start >= end:
        raise _bad("start must be before end")
    return start, end


def _step(raw: str | None, span_s: float) -> int:
    if raw is None:
        return next((step for step in STEPS if span_s / step <= WANTED_POINTS),
                    -(-int(span_s / WANTED_POINTS) // DAY_S) * DAY_S)
    step = _whole("step", raw)
    tier_s = next(tier_s for tier_s in (HOUR_S, MINUTE_S, 1) if step >= tier_s)
    if step % tier_s:
        raise _bad(f"a step of a minute or more is in whole minutes, of an hour or more in whole "
                   f"hours: {step - step % tier_s} or {step - step % tier_s + tier_s}")
    return step


def _whole(name: str, raw: str) -> int:
    if not raw.isascii() or not raw.isdigit() or len(raw) > 9 or int(raw) < 1:
        raise _bad(f"{name} is a whole number of seconds")
    return int(raw)


def _bad(detail: str) -> Wrong:
    return Wrong(HTTPStatus.BAD_REQUEST, detail)


def add_history_api(server: Flask, history: History, fleet: Fleet, lenses: Lenses) -> None:
    api = HistoryApi(history, fleet, lenses)
    routes = Blueprint("history", __name__, url_prefix=PREFIX)
    table: tuple[tuple[str, Callable[..., Any]], ...] = (
        ("/series", api.series), ("/instant", api.instant), ("/usage", api.usage))
    for rule, view in table:
        routes.add_url_rule(rule, view_func=view, provide_automatic_options=False)
    server.register_blueprint(routes)
