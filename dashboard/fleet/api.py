"""REST of the fleet: parse the query, ask the views, answer."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from flask import request

from gpudeck.contract.action_views import KeepView
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN

from ..access.policy import Role, may
from ..access.requests import caller
from ..access.routes import Query, Route, see
from ..errors import NotFoundError
from ..web.answers import bad, check_names, one_of, page, read_cursor, read_limit
from ..web.openapi_parts import METRIC_LIST, repeated
from ..web.shared_answers import SharedAnswers
from . import task_list, views
from .available_gpus import reasons
from .filters import MAX_LENGTH, Filter, FilterError, Mask, parse
from .fleet import GpuStatus
from .host_views import host_load
from .node_names import NodeNames
from .state_machine import FleetStateMachine
from .task_groups import group_order, group_tasks
from .task_list import TaskList
from .task_table import NodeTasksCache, Places, TaskColumns, task_table
from .task_targets import task_on_node
from .views import GpuList, GpuView, NodeList, NodeView, TaskView
from .visibility import VisibleFleet, VisibleFleetCache

KNOWN = ("limit", "cursor", "filter")
OF_NODES = ("id",)
OF_GPUS = ("metrics", "node", "uuid")
OF_TASKS = ("sort", "order", "group", "open", "node", "id")


@dataclass(frozen=True, slots=True)
class ListQuery:
    limit: int
    cursor: tuple[str, ...] | None
    picked: Filter | None


def list_query(more: tuple[str, ...] = ()) -> ListQuery:
    check_names((*KNOWN, *more))
    args = request.args
    return ListQuery(read_limit(args.get("limit")), read_cursor(args.get("cursor")),
                     _filter(args.get("filter", "")))


def requested(name: str) -> frozenset[str] | None:
    """Return the values of a repeated parameter; None: everything is asked for. What is not there
    is left out, and that is no error: a Task may end between the list and the look at it."""
    return frozenset(request.args.getlist(name)) or None


def _filter(text: str) -> Filter | None:
    try:
        return parse(text)
    except FilterError as error:
        raise bad(f"filter, at {error.at}: {error.sentence}") from error


def _metrics(text: str | None) -> frozenset[str] | None:
    """Parse keys joined by commas; None: all metrics."""
    if text is None:
        return None
    keys = frozenset(text.split(","))
    unknown = sorted(keys - COLUMN.keys() - SLOW_COLUMN.keys())
    if unknown:
        raise bad(f"there is no metric {unknown[0][:40]!r}")
    return keys


KeepOf = Callable[[str, str], KeepView | None]  # of a node's task


@dataclass(eq=False, slots=True)
class FleetApi:
    machine: FleetStateMachine
    visible_fleets: VisibleFleetCache
    names: NodeNames
    keep_of: KeepOf
    answers: SharedAnswers
    _node_tasks: NodeTasksCache = field(default_factory=NodeTasksCache, init=False)

    def _visible(self) -> VisibleFleet:
        return self.visible_fleets.seen_by(caller())

    def nodes(self) -> NodeList:
        query, mono, visible = list_query(OF_NODES), time.monotonic(), self._visible()
        fleet, ids = self.machine.fleet, requested("id")
        if ids is not None:
            ids = ids.union(*(self.names.ids_named(caller(), name) for name in ids))
        matches = self._matches(query, visible, mono)
        matched = None if matches is None else {
            fleet.node_ids[at] for at in fleet.node_at[: len(fleet)][matches].tolist()}
        listed_ids = sorted({*visible.node_ids, *(self._outside() if matched is None else ())})
        keys = (((node_id,), node_id) for node_id in listed_ids
                if (matched is None or node_id in matched) and (ids is None or node_id in ids))
        page_ids, more = page(keys, query.limit, query.cursor)
        return NodeList([self._node(node_id, mono, ids is not None) for node_id in page_ids], more)

    def node(self, node_id: str) -> NodeView:
        self._require_node(node_id, self._visible())
        return self._node(node_id, time.monotonic(), True)

    def _require_node(self, node_id: str, visible: VisibleFleet) -> None:
        if not visible.sees_node(node_id) and node_id not in self._outside():
            raise _none("node", node_id)

    def _node(self, node_id: str, mono: float, has_links: bool) -> NodeView:
        view = views.node_view(self.machine, node_id, self.names.membership.member(node_id), mono)
        if has_links:
            view.links = views.links_of(self.machine.fleet, node_id)
            node = self.machine.fleet.nodes.get(node_id)
            view.host_load = None if node is None else host_load(node, mono)
        return view

    def _outside(self) -> set[str]:
        """Return nodes that are no part of the fleet, for those who may let them in."""
        if may(caller(), "POST /api/v1/nodes/<node_id>/approve", None, time.time()) is not None:
            return set()
        return {member.node_id for member in self.names.membership.members()
                if member.node_id not in self.machine.fleet.nodes}

    def _matches(self, query: ListQuery, visible: VisibleFleet, mono: float) -> Mask | None:
        if query.picked is None:
            return None
        return query.picked.matches(self.machine.fleet, mono, visible.reads)

    def gpus(self) -> GpuList:
        query, visible = list_query(OF_GPUS), self._visible()
        only = _metrics(request.args.get("metrics"))
        mono, fleet, node_id = time.monotonic(), self.machine.fleet, request.args.get("node")
        if node_id is not None:
            self._require_node(node_id, visible)
        show, matches = fleet.statuses(mono), self._matches(query, visible, mono)
        # By place among what is seen, in fixed width: text then sorts as the number does. A
        # place means a GPU only within its epoch.
        epoch = str(visible.epoch)
        if query.cursor is not None and query.cursor[:1] != (epoch,):
            raise bad("the hub was restarted since this cursor, or groups have changed; start "
                       "again without it")
        slots = (((epoch, f"{place:08d}"), slot) for place, slot in self._places(visible, node_id)
                 if show[slot] != GpuStatus.RETIRED and (matches is None or matches[slot]))
        page_slots, more = page(slots, query.limit, query.cursor)
        on = {slot: ids for at in {int(fleet.node_at[slot]) for slot in page_slots}
              for slot, ids in views.tasks_on(fleet.all_nodes[fleet.node_ids[at]]).items()}
        codes = reasons(fleet, show, mono)
        return GpuList(
            [views.gpu_view(fleet, slot, GpuStatus(show[slot]), int(codes[slot]),
                            on.get(slot, []), mono, only) for slot in page_slots], more)

    def _places(self, visible: VisibleFleet, node_id: str | None) -> Iterable[tuple[int, int]]:
        uuids, fleet = requested("uuid"), self.machine.fleet
        if uuids is None and node_id is None:
            return enumerate(visible.slots.tolist())
        is_asked = np.ones(len(visible.slots), bool)
        if uuids is not None:
            is_asked &= np.isin(visible.slots, [
                slot for uuid in uuids
                if (slot := fleet.find(uuid, visible.place_of)) is not None])
        if node_id is not None:  # pages of a node ask all the time: not by one GPU after the other
            node = fleet.all_nodes.get(node_id)
            is_asked &= fleet.node_at[visible.slots] == (-1 if node is None else node.at)
        places = np.flatnonzero(is_asked)
        return zip(places.tolist(), visible.slots[places].tolist(), strict=True)

    def gpu(self, uuid: str) -> GpuView:
        fleet, mono, visible = self.machine.fleet, time.monotonic(), self._visible()
        slot = fleet.find(uuid, visible.place_of)
        statuses = fleet.statuses(mono)
        show = None if slot is None else GpuStatus(statuses[slot])
        if slot is not None and fleet.node_of(slot).is_imported:
            statuses[slot] = show = GpuStatus.OFFLINE  # it has a past to look at
        if slot is None or show is None or show is GpuStatus.RETIRED:
            raise _none("GPU", uuid)
        on = views.tasks_on(fleet.node_of(slot)).get(slot, [])
        code = int(reasons(fleet, statuses, mono)[slot])
        return views.gpu_view(fleet, slot, show, code, on, mono)

    def tasks(self) -> msgspec.Raw:
        args, visible = request.args, self._visible()
        if "node" in args:
            self._require_node(args["node"], visible)
        key = visible.sight, visible.epoch, tuple(args.items(multi=True))
        return self.answers.encoded(key, lambda: self._tasks(visible))

    def _tasks(self, visible: VisibleFleet) -> TaskList:
        query, args = list_query(OF_TASKS), request.args
        sort = one_of("sort", args.get("sort"), task_list.SORTS)
        order = one_of("order", args.get("order"), task_list.ORDERS) or "asc"
        group = one_of("group", args.get("group"), task_list.GROUP_BYS)
        table, rows = self._table(requested("id"), args.get("node"), visible)
        if query.picked is not None:
            hits = task_list.matching(table, query.picked, visible.reads)
            rows = rows[np.isin(rows, hits)]
        total, groups = len(rows), None
        if sort is not None:
            rows = task_list.sort_tasks(table, rows, sort, order, visible.reads)
        if group is not None:
            group_keys = task_list.group_keys(table, rows, group)
            sums = group_tasks(table, rows, group_keys, group)
            places = np.arange(len(sums)) if sort is None else group_order(sums, sort, order)
            groups = [*sums.views(places, visible.reads)]
            rows = task_list.tasks_in(table, rows, group_keys, group,
                                      frozenset(args.getlist("open")))
        # By place where they are sorted, in fixed width: text then sorts as the number does.
        keys = ((table.key(row) if sort is None else (f"{place:08d}",), row)
                for place, row in enumerate(rows.tolist()))
        page_rows, more = page(keys, query.limit, query.cursor)
        return TaskList(self._task_views(table, page_rows, visible), more, total, groups)

    def _table(self, ids: frozenset[str] | None, node: str | None, visible: VisibleFleet
               ) -> tuple[TaskColumns, Places]:
        """Return the Tasks of visible nodes, and those of them that are asked for."""
        all_nodes = self.machine.fleet.nodes
        nodes = (all_nodes[node_id] for node_id in sorted(visible.node_ids)
                 if node in (None, node_id) and node_id in all_nodes)
        table = task_table(
            self.machine.fleet, (member for member in nodes
                                 if ids is None or not ids.isdisjoint(member.tasks)),
            self._node_tasks, time.monotonic())
        return table, np.array([row for row, task in enumerate(table.tasks)
                                if ids is None or task.id in ids], np.intp)

    def _task_views(self, table: TaskColumns, rows: Iterable[int], visible: VisibleFleet
                    ) -> list[TaskView]:
        tasks = [*table.views(rows, visible.reads)]
        for task in tasks:
            task.keep = self.keep_of(task.node, task.id)
        return tasks

    def task(self, task_id: str) -> TaskView:
        visible = self._visible()
        node, task = task_on_node(visible.nodes(self.machine.fleet), task_id)
        table, rows = self._table(frozenset((task.id,)), node.hello.node_id, visible)
        [view] = self._task_views(table, rows.tolist(), visible)
        return view


def _none(what: str, name: str) -> NotFoundError:
    return NotFoundError(f"there is no {what} {name[:128]!r} here")


_FILTER = ("filter", {"type": "string", "maxLength": MAX_LENGTH})
_OF_NODE = ("node", {"type": "string"})
# In a sorted list rows move while it is read page by page; only by node and id is none missed.
_TASKS_QUERY: Query = (
    _FILTER, _OF_NODE, ("sort", {"enum": [*task_list.SORTS]}),
    ("order", {"enum": ["asc", "desc"], "default": "asc"}),
    ("group", {"enum": list(task_list.GROUP_BYS)}), repeated("open"), repeated("id"))
ROUTES = (
    Route("GET nodes", FleetApi.nodes, "list_nodes", see(Role.VIEWER),
          "Nodes, by id. `filter` keeps those with a matching GPU; `id`: only these "
          "ids or host names, with their `links`.", is_list=True,
          query=(_FILTER, repeated("id"))),
    Route("GET nodes/<node_id>", FleetApi.node, "get_nodes", see(Role.VIEWER),
          "One Node.", errors=(400, 404)),
    Route("GET gpus", FleetApi.gpus, "list_gpus", see(Role.VIEWER),
          "GPUs, by slot. `filter` as on the Fleet page; `node`: only those of one Node; "
          "`uuid`: only these.", is_list=True, errors=(404,),
          query=(_FILTER, _OF_NODE, repeated("uuid"), ("metrics", {
              "type": "string", "pattern": METRIC_LIST,
              "description": "Only these metrics, as comma-separated keys."}))),
    Route("GET gpus/<path:uuid>", FleetApi.gpu, "get_gpus", see(Role.VIEWER),
          "One GPU, by its UUID.", errors=(400, 404)),
    Route("GET tasks", FleetApi.tasks, "list_tasks", see(Role.VIEWER),
          "Tasks, by node and id or as `sort` says. `filter` as on the Tasks page: `user:` and "
          "`task:` match the Task, everything else its GPUs. With `group`, `groups` has "
          "the sums and `items` the Tasks of the groups named by `open`. `id`: only "
          "these.", answer=TaskList, is_list=True, errors=(404,), query=_TASKS_QUERY),
    Route("GET tasks/<path:task_id>", FleetApi.task, "get_tasks", see(Role.VIEWER),
          "One Task.", errors=(400, 404, 409)),
)
