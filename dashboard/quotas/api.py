"""REST of quotas. QuotaAdmin checks rights."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, request

from gpudeck.quota import (
    LIMITS,
    InvalidQuotaError,
    Limit,
    Quota,
    QuotaProblem,
    meaning,
    read,
)

from ..access.policy import PermissionReach, Role
from ..access.requests import asker, body
from ..access.routes import Route, change, see, serve_routes
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..web import preconditions
from ..web.answers import ApiError, answer, bad
from .active_quotas import ActiveQuotas
from .admin import QuotaAdmin
from .queries import QuotaQueries
from .store import QuotaVersionRecord
from .usage_history import QuotaUsageSeries, why_not
from .views import (
    Ladder,
    NewQuota,
    NodeQuotaList,
    OwnerQuotaList,
    QuotaCheck,
    QuotaDraft,
    QuotaHistoryView,
    QuotaList,
    QuotaVersionList,
    QuotaView,
    TaskQuotaList,
    balance_view,
    flaw_view,
    mechanism_views,
    node_quota,
    owner_quota,
    quota_view,
    task_quota,
    version_view,
)

SPANS = {"3h": 10_800.0, "24h": 86_400.0, "7d": 604_800.0}


class QuotasApi:
    """The routes. `ladder`: how far the ladder of each job over a quota is."""

    def __init__(self, active: ActiveQuotas, queries: QuotaQueries, admin: QuotaAdmin,
                 fleet: Fleet, lenses: VisibleFleetCache, ladder: Callable[[], Ladder],
                 end_after_s: float) -> None:
        self._active = active
        self._queries = queries
        self._admin = admin
        self._ladder = ladder
        self._fleet = fleet
        self._lenses = lenses
        self._end_after_s = end_after_s

    def _lens(self) -> VisibleFleet:
        return self._lenses.of(VisibilityScope.of(asker()))

    def quotas(self) -> Response:
        lens, ladder = self._lens(), self._ladder()
        mechanisms = mechanism_views(
            (node_id, host, report) for node_id, host, report in self._queries.reports()
            if lens.sees_node(node_id))
        return answer(QuotaList(self._active.generation, self._queries.summed_at(), [
            self._view(version, lens, ladder) for version in self._active.versions.values()],
            mechanisms))

    def quota(self, quota_id: str) -> Response:
        return answer(self._view(self._version(quota_id), self._lens(), self._ladder()))

    def _version(self, quota_id: str) -> QuotaVersionRecord:
        version = self._active.versions.get(quota_id)
        if version is None:
            raise ApiError(HTTPStatus.NOT_FOUND, f"there is no quota {quota_id[:80]!r}")
        return version

    def _view(self, version: QuotaVersionRecord, lens: VisibleFleet, ladder: Ladder) -> QuotaView:
        return quota_view(version, *self._queries.seen_by(lens, version.quota), ladder)

    def of_task(self, task_id: str) -> Response:
        lens = self._lens()
        for node in lens.nodes(self._fleet):
            if task_id in node.tasks:
                whose = node.tasks[task_id].user
                may_read = lens.is_whole or (whose is not None and whose in lens.reads.own)
                return answer(TaskQuotaList([
                    task_quota(limit, choice, balance if may_read else None, task_id)
                    for limit, choice, balance in self._queries.of_task(node, task_id)]))
        raise ApiError(HTTPStatus.NOT_FOUND, f"there is no task {task_id[:128]!r} here")

    def of_node(self, node_id: str) -> Response:
        lens, gpu = self._lens(), _gpu()
        if not lens.sees_node(node_id):
            raise ApiError(HTTPStatus.NOT_FOUND, f"there is no node {node_id[:128]!r} here")
        if gpu is not None and self._fleet.slot_on(node_id, gpu) is None:
            raise ApiError(HTTPStatus.NOT_FOUND, f"there is no GPU {gpu[:128]!r} on it")
        return answer(NodeQuotaList([
            node_quota(each.quota, each.deployed, each.holders, each.task_ids)
            for each in self._queries.of_node(self._fleet.nodes[node_id], gpu, lens)]))

    def of_owner(self, name: str) -> Response:
        """Empty for a hidden owner as for an unknown one."""
        lens, ladder = self._lens(), self._ladder()
        return answer(OwnerQuotaList([
            owner_quota(each, self._queries.seen_by(lens, each.quota)[0], ladder)
            for each in self._queries.of_owner(name, lens)]))

    def versions(self, quota_id: str) -> Response:
        found = self._queries.versions(quota_id)
        if not found:
            raise ApiError(HTTPStatus.NOT_FOUND, f"there never was a quota {quota_id[:80]!r}")
        return answer(QuotaVersionList([version_view(each) for each in found]))

    def past(self, quota_id: str) -> Response:
        lens, quota = self._lens(), self._version(quota_id).quota
        holder, limit, span_s = _past_asked()
        is_theirs = quota.subject_kind != "user" or quota.subject_name == holder
        if not is_theirs or not (
                self._queries.sees_all(lens, quota) or holder in lens.reads.own):
            raise ApiError(HTTPStatus.NOT_FOUND, f"nothing of {holder[:80]!r} is seen here")
        if limit not in quota.limits:
            raise ApiError(HTTPStatus.NOT_FOUND, f"{quota.id} does not limit {limit}")
        why = why_not(quota, limit)
        step_s, line = (0, QuotaUsageSeries([], [], [])) if why else self._queries.past(
            quota, limit, holder, span_s)
        return answer(QuotaHistoryView(quota.id, limit, holder, step_s, line.t, line.used,
                                       line.most, why))

    def put(self, quota_id: str) -> Response:
        known = self._active.versions.get(quota_id)
        preconditions.look("quota", quota_id, None if known is None else known.generation)
        given: dict[str, Any] = body(dict)
        if "ladder" in given and given["ladder"] is None:
            del given["ladder"]
        problems = [QuotaProblem("id", "is the one in the address: leave it out here")] if (
            "id" in given) else []
        try:
            quota = read(given | {"id": quota_id}, self._end_after_s)
        except InvalidQuotaError as error:
            problems += error.problems
        if problems:
            raise bad("; ".join(map(str, problems)))
        self._admin.put(asker(), quota)
        return self.quota(quota_id)

    def remove(self, quota_id: str) -> Response:
        self._admin.remove(asker(), quota_id)
        return Response(status=HTTPStatus.NO_CONTENT)

    def check(self) -> Response:
        """What is wrong with it, or who would be over it now."""
        draft = body(QuotaDraft)
        try:
            quota: Quota = read(draft.quota, self._end_after_s)
            if draft.is_new and quota.id in self._active.versions:
                raise InvalidQuotaError([QuotaProblem("id",
                                                      preconditions.taken("quota", quota.id))])
        except InvalidQuotaError as error:
            return answer(QuotaCheck([flaw_view(each) for each in error.problems], "", 0, []))
        lens, conflict = self._lens(), self._active.conflict(quota)
        if conflict is not None:
            return answer(QuotaCheck([flaw_view(QuotaProblem("subject", conflict))],
                                     meaning(quota), 0, []))
        found = self._queries.try_out(quota, lens)
        return answer(QuotaCheck([], meaning(quota), len(found),
                                 [balance_view(each) for each in found if each.is_over][:100],
                                 self._queries.reach(quota, lens)))


def _past_asked() -> tuple[str, Limit, float]:
    given = request.args
    limit = next((each for each in LIMITS if each == given.get("limit")), None)
    span_s = SPANS.get(given.get("last", "24h"))
    if set(given) - {"holder", "limit", "last"} or limit is None or span_s is None or (
            not given.get("holder")):
        raise ApiError(HTTPStatus.BAD_REQUEST, "holder and limit are needed: limit is one of "
                       f"{', '.join(LIMITS)}, last is one of {', '.join(SPANS)}")
    return given["holder"], limit, span_s


def _gpu() -> str | None:
    given = request.args.getlist("gpu")
    if len(given) > 1 or set(request.args) - {"gpu"} or "" in given:
        raise ApiError(HTTPStatus.BAD_REQUEST,
                       "the one parameter here is `gpu`, a UUID; without it it is of the whole "
                       "node")
    return given[0] if given else None


ROUTES = (
    # Everyone sees their own use; sums of others need sight of all of them.
    Route("GET quotas", QuotasApi.quotas, "list_quotas",
          see(Role.VIEWER),
          "All Quotas: who holds how much of them, and on how many nodes each is wanted, "
          "applied and in force.",
          answer=QuotaList),
    Route("GET quotas/<quota_id>", QuotasApi.quota, "get_quota",
          see(Role.VIEWER),
          "One Quota.",
          answer=QuotaView, errors=(404,)),
    Route("PUT quotas/<quota_id>", QuotasApi.put, "put_quota",
          change(Role.ADMIN),
          "A new Quota, or a change of one. Nodes hold it from their next look on, also "
          "without the hub.",
          answer=QuotaView, body=NewQuota, errors=(400, 409, 412, 415, 503),
          version="generation"),
    Route("DELETE quotas/<quota_id>", QuotasApi.remove, "remove_quota",
          change(Role.ADMIN),
          "It limits nobody any more; what it was is kept.",
          status=204, errors=(404, 503)),
    Route("GET quotas/<quota_id>/versions", QuotasApi.versions, "list_quota_versions",
          see(Role.OPERATOR, PermissionReach.NONE),
          "What it was, newest first; also of one that was removed.",
          answer=QuotaVersionList, errors=(404,)),
    Route("GET quotas/<quota_id>/past", QuotasApi.past, "get_quota_past",
          see(Role.VIEWER),
          "What a holder had of one limit over the last hours, day or week, beside what it "
          "gave then.",
          answer=QuotaHistoryView, errors=(400, 404),
          query=(("holder", {"type": "string", "minLength": 1}), ("limit", {"enum": list(LIMITS)}),
                 ("last", {"enum": ["3h", "24h", "7d"], "default": "24h"}))),
    Route("POST quota-checks", QuotasApi.check, "check_quota",
          change(Role.OPERATOR, PermissionReach.LENS, is_fresh=False),
          "What is wrong with it, or who would be over it at this moment.",
          answer=QuotaCheck, body=QuotaDraft, errors=(400, 415)),
    Route("GET tasks/<path:task_id>/quotas", QuotasApi.of_task, "get_task_quotas",
          see(Role.VIEWER),
          "Which Quotas count for a Task, why these, and what its owner has of them.",
          answer=TaskQuotaList, errors=(404,)),
    Route("GET nodes/<node_id>/quotas", QuotasApi.of_node, "get_node_quotas",
          see(Role.VIEWER),
          "The Quotas that concern a Node, or one Gpu of it, whether they are in force there, "
          "and who of their holders is there.",
          answer=NodeQuotaList, errors=(400, 404),
          query=(("gpu", {"type": "string", "minLength": 1, "description": "Of this Gpu alone."}),
                 )),
    Route("GET owners/<name>/quotas", QuotasApi.of_owner, "get_owner_quotas",
          see(Role.VIEWER),
          "All that counts for one owner, also where they hold nothing of it now.",
          answer=OwnerQuotaList),
)


def add_quotas_api(server: Flask, api: QuotasApi) -> None:
    serve_routes(server, api, ROUTES)
