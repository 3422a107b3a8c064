"""REST for moving through the past of the whole fleet: `block`, many moments of one metric at
once, and `totals`, the line above the map at one of them."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flask import Response, request
from msgspec import Raw

from gpudeck.contract.repairs import of_gpu
from gpudeck.measures.metrics import COLUMN, COLUMNS, SLOW

from ..access.policy import Role
from ..access.requests import caller
from ..access.routes import Route, see
from ..errors import NotFoundError
from ..history.columns.instants import Pair
from ..history.columns.memory import BLOCK_S
from ..history.reads.file_responses import body_of, requested_form, respond_as
from ..history.reads.protocol import History, Nodes
from ..web.answers import bad, check_names, one_of
from ..web.moments import moment
from ..web.openapi_parts import FORMAT, METRIC, TIME, needed
from ..web.query_pool import QueryPool
from . import past_moment, past_views
from .fleet import Fleet
from .idle_history import BACK_S, GPUS_AT_ONCE, idle_since
from .past_moment import PastPool
from .past_views import FleetLoadView, PastBlockView, PastTotalsView
from .views import TOTALLED
from .visibility import VisibleFleet, VisibleFleetCache

MAX_MOMENTS = 60
# What an answer costs is how many stretches of five minutes it reads, and of what changes seldom,
# how many moments.
MAX_STRETCHES = 13
MAX_STEP_S = 86_400
MINUTE_S, HOUR_S = 60, 3_600
MAX_USES = 200_000
LATEST_AGO_S = 5.0  # younger seconds are still on their way from some nodes
MAX_LOAD_STEPS = 750
METRICS = tuple(metric.key for metric in (*COLUMNS, *SLOW))


@dataclass(eq=False, slots=True)
class FleetPastApi:
    history: History
    questions: QueryPool
    fleet: Fleet
    visible_fleets: VisibleFleetCache
    pool_at: Callable[[float], PastPool]

    def block(self) -> Raw:
        check_names(("metric", "start", "step", "count"))
        metric = one_of("metric", request.args.get("metric", ""), METRICS)
        assert metric is not None, "another word is refused"
        start, step = _second("start"), _whole("step", MAX_STEP_S)
        moments = range(start, start + step * _whole("count", MAX_MOMENTS), step)
        _check_cost(metric, moments)
        on, nodes = self._ground(metric)
        return self.questions.encoded(lambda: past_views.block_view(
            self.history.instants(metric, moments, nodes), on, metric, start, step))

    def totals(self) -> Raw:
        check_names(("at",))
        given = moment("at")
        at = int(time.time() - LATEST_AGO_S if given is None else given)
        on, nodes = self._ground(*TOTALLED)
        return self.questions.encoded(lambda: past_views.totals_view(
            {key: self.history.instants(key, (at,), nodes) for key in TOTALLED}, on, at))

    def moment(self) -> Raw:
        check_names(("at",))
        at = _second("at")
        on, nodes = self._ground(*past_moment.METRICS)
        pool, closed, history = self.pool_at(at), self._out_of_service(at), self.history
        is_whole = nodes is None

        def view() -> past_moment.PastMomentView:
            reads = past_moment.MomentReads(
                {key: history.instants(key, (at,), nodes) for key in past_moment.METRICS},
                past_moment.newest_minute(history.tasks(
                    at // MINUTE_S * MINUTE_S - MINUTE_S, at + 1, nodes=nodes, limit=MAX_USES,
                    words=past_moment.WORDS)))
            idle = [gpu for gpu, _ in reads.held_idle()]
            back_s = max(HOUR_S, min(BACK_S, BACK_S * GPUS_AT_ONCE // max(1, len(idle))))
            since = idle_since(history, idle, nodes, at, back_s) if idle else {}
            return past_moment.moment_view(reads, since, pool, closed, on, at, is_whole)

        return self.questions.encoded(view)

    def _out_of_service(self, at: float) -> set[Pair]:
        """Return the GPUs that are out of service now and were then."""
        fleet = self.fleet
        return {(fleet.uuids[slot], node_id) for slot in np.flatnonzero(
                    fleet.service[:len(fleet)]).tolist()
                for node_id in (fleet.node_ids[fleet.node_at[slot]],)
                if (repairs := fleet.nodes[node_id].repairs) is not None
                and (repair := of_gpu(repairs.repairs, fleet.facts[slot].parent_uuid
                                      or fleet.uuids[slot])) is not None
                and repair.began_at <= at}

    def load(self) -> Response:
        check_names(("start", "end", "step", "group", "model", "gpus", "format"))
        form = requested_form()
        start, end = _second("start"), _second("end")
        step = _whole("step", MAX_STEP_S)
        if step % MINUTE_S or not 0 < (end - start) // step <= MAX_LOAD_STEPS:
            raise bad(f"step is whole minutes, and start to end 1 to {MAX_LOAD_STEPS} of them")
        start, end = start // step * step, -(-end // step) * step
        visible = self.visible_fleets.seen_by(caller())
        parts = self._parts(visible)
        gpus = _of(parts, request.args.get("group"), request.args.get("model"), _comma_list("gpus"))
        now, nodes = time.time(), visible.only

        def body() -> bytes:
            load = past_views.load_view(
                self.history.together(gpus, past_views.LOAD_METRICS, start, end, step,
                                      ("mean", "n"), nodes), start, end, step, now,
                sorted({group for group, _ in parts.values()}),
                sorted({model for _, model in parts.values()}))
            return body_of(form, load, lambda: past_views.load_columns(load))

        return respond_as(form, self.questions.ask(body), "load", start, end)

    def _parts(self, visible: VisibleFleet) -> dict[str, tuple[str, str]]:
        """Return group and model of each GPU that is there now; a split board is represented by its
        instances."""
        fleet = self.fleet
        split = fleet.is_split()
        return {fleet.uuids[slot]: (fleet.group_of(fleet.node_ids[fleet.node_at[slot]]),
                                    fleet.facts[slot].name)
                for slot in visible.slots.tolist() if not fleet.retired[slot] and not split[slot]}

    def _ground(self, *metrics: str) -> tuple[past_views.LayoutSnapshot, Nodes]:
        visible = self.visible_fleets.seen_by(caller())
        return past_views.ground(self.fleet, visible, metrics, time.monotonic()), visible.only


def _of(parts: dict[str, tuple[str, str]], group: str | None, model: str | None,
        only: frozenset[str] | None) -> list[str]:
    uuids = [uuid for uuid, part in parts.items()
             if group in (None, part[0]) and model in (None, part[1])
             and (only is None or uuid in only)]
    if not uuids and only is not None:
        raise NotFoundError("there are none of these GPUs here")
    if not uuids and (group, model) != (None, None):
        selection = " and ".join(f"{kind} {name[:128]!r}"
                                 for kind, name in (("group", group), ("model", model)) if name)
        raise NotFoundError(f"there is no GPU of {selection} here")
    return uuids


def _comma_list(name: str) -> frozenset[str] | None:
    """Return several values, separated by commas; None: it is not asked for."""
    return frozenset(request.args[name].split(",")) if name in request.args else None


def _second(name: str) -> int:
    seconds = moment(name)
    if seconds is None:
        raise bad(f"{name} is needed")
    return int(seconds)


def _whole(name: str, most: int) -> int:
    raw = request.args.get(name, "")
    if not raw.isascii() or not raw.isdigit() or len(raw) > 9 or not 1 <= int(raw) <= most:
        raise bad(f"{name} is a whole number from 1 to {most:,}")
    return int(raw)


def _check_cost(metric: str, moments: range) -> None:
    stretches = len({t // BLOCK_S for t in moments}) if metric in COLUMN else len(moments)
    if stretches > MAX_STRETCHES:
        raise bad(f"at most {MAX_STRETCHES} stretches of five minutes at once, and {MAX_STRETCHES} "
                  f"moments of rarely changing metrics; ask for a smaller count")


ROUTES = (
    Route("GET block", FleetPastApi.block, "get_block", see(Role.VIEWER),
          "A metric of every GPU at up to 60 moments, as the cells of the map of the Fleet page.",
          answer=PastBlockView, errors=(503,),
          query=(needed("metric", METRIC), needed("start", TIME),
                 needed("step", {"type": "integer", "minimum": 1, "maximum": 86_400}),
                 needed("count", {"type": "integer", "minimum": 1, "maximum": 60}))),
    Route("GET totals", FleetPastApi.totals, "get_totals", see(Role.VIEWER),
          "The totals of the fleet at one past moment, as far as history knows them; without `at`, "
          "5 s ago.", answer=PastTotalsView, errors=(503,), query=(("at", TIME),)),
    Route("GET moment", FleetPastApi.moment, "get_moment", see(Role.VIEWER),
          "Owners, memory, waste, leases and free GPUs of the fleet at one past moment.",
          answer=past_moment.PastMomentView, errors=(503,), query=(needed("at", TIME),)),
    Route("GET load", FleetPastApi.load, "get_load", see(Role.VIEWER),
          "Utilization, power and memory of the whole fleet over a span, or of a group of nodes, a "
          "model or some GPUs, and the busiest hour in it.",
          answer=FleetLoadView, errors=(404, 503), is_file=True,
          query=(needed("start", TIME), needed("end", TIME),
                 needed("step", {"type": "integer", "minimum": 60, "maximum": 86_400,
                                 "multipleOf": 60}),
                 ("group", {"type": "string"}), ("model", {"type": "string"}),
                 ("gpus", {"type": "string", "description": "UUIDs, separated by commas."}),
                 FORMAT)),
)
