"""REST of quotas. ActiveQuotas checks rights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import request

from gpudeck.contract.quota import (
    LIMITS,
    InvalidQuotaError,
    Limit,
    Quota,
    QuotaProblem,
    meaning,
    read,
)

from ..access.policy import PermissionReach, Role
from ..access.requests import body, caller
from ..access.routes import Route, change, see
from ..errors import NotFoundError
from ..fleet.visibility import VisibleFleet, VisibleFleetCache
from ..web import preconditions
from ..web.answers import bad
from . import views
from .active_quotas import ActiveQuotas
from .queries import QuotaQueries
from .store import QuotaVersion
from .usage_history import QuotaUsageSeries, why_not

SPANS = {"3h": 10_800.0, "24h": 86_400.0, "7d": 604_800.0}


@dataclass(frozen=True, slots=True)
class QuotasApi:
    """Routes of quotas. `ladder`: how far the ladder of each job over a quota is."""

    active: ActiveQuotas
    queries: QuotaQueries
    visible_fleets: VisibleFleetCache
    ladder: Callable[[], views.Ladder]
    end_after_s: float

    def _visible(self) -> VisibleFleet:
        return self.visible_fleets.seen_by(caller())

    def quotas(self) -> views.QuotaList:
        visible, ladder = self._visible(), self.ladder()
        mechanisms = views.mechanism_views(
            (node_id, host, report) for node_id, host, report in self.queries.reports()
            if visible.sees_node(node_id))
        return views.QuotaList(self.active.generation, self.queries.service.summed_at, [
            self._view(version, visible, ladder) for version in self.active.versions.values()],
            mechanisms)

    def quota(self, quota_id: str) -> views.QuotaView:
        return self._view(self._version(quota_id), self._visible(), self.ladder())

    def _version(self, quota_id: str) -> QuotaVersion:
        version = self.active.versions.get(quota_id)
        if version is None:
            raise NotFoundError(f"there is no quota {quota_id[:80]!r}")
        return version

    def _view(self, version: QuotaVersion, visible: VisibleFleet, ladder: views.Ladder
              ) -> views.QuotaView:
        return views.quota_view(version, *self.queries.seen_by(visible, version.quota), ladder)

    def of_task(self, task_id: str) -> views.TaskQuotaList:
        return views.TaskQuotaList([*self.queries.of_task(task_id, self._visible())])

    def of_node(self, node_id: str) -> views.NodeQuotaList:
        return views.NodeQuotaList(self.queries.of_node(node_id, _gpu(), self._visible()))

    def of_owner(self, name: str) -> views.OwnerQuotaList:
        """Return an owner's quotas; empty for a hidden owner as for an unknown one."""
        visible, ladder = self._visible(), self.ladder()
        return views.OwnerQuotaList([
            views.owner_quota(balance, self.queries.seen_by(visible, balance.quota)[0], ladder)
            for balance in self.queries.of_owner(name, visible)])

    def versions(self, quota_id: str) -> views.QuotaVersionList:
        versions = self.queries.store.versions(quota_id)
        if not versions:
            raise NotFoundError(f"there never was a quota {quota_id[:80]!r}")
        return views.QuotaVersionList(versions)

    def past(self, quota_id: str) -> views.QuotaHistoryView:
        visible, quota = self._visible(), self._version(quota_id).quota
        holder, limit, span_s = _past_query()
        is_theirs = quota.subject_kind != "user" or quota.subject_name == holder
        if not is_theirs or not (
                self.queries.sees_all(visible, quota) or holder in visible.reads.own):
            raise NotFoundError(f"nothing of {holder[:80]!r} is seen here")
        if limit not in quota.limits:
            raise NotFoundError(f"{quota.id} does not limit {limit}")
        why = why_not(quota, limit)
        step_s, line = (0, QuotaUsageSeries([], [], [])) if why else self.queries.past(
            quota, limit, holder, span_s)
        return views.QuotaHistoryView(quota.id, limit, holder, step_s, line.t, line.usage,
                                      line.most, why)

    def put(self, quota_id: str) -> views.QuotaView:
        version = self.active.versions.get(quota_id)
        preconditions.check("quota", quota_id, None if version is None else version.generation)
        fields: dict[str, Any] = body(dict)
        if "ladder" in fields and fields["ladder"] is None:
            del fields["ladder"]
        problems = [QuotaProblem("id", "is given by the URL: leave it out here")] if (
            "id" in fields) else []
        try:
            quota = read(fields | {"id": quota_id}, self.end_after_s)
        except InvalidQuotaError as error:
            problems += error.problems
        if problems:
            raise bad("; ".join(map(str, problems)))
        self.active.put(caller(), quota)
        return self.quota(quota_id)

    def remove(self, quota_id: str) -> None:
        self.active.remove(caller(), quota_id)

    def check(self, draft: views.QuotaDraft) -> views.QuotaCheck:
        """Return what is wrong with a draft, or who would exceed it now."""
        try:
            quota: Quota = read(draft.quota, self.end_after_s)
            if draft.is_new and quota.id in self.active.versions:
                raise InvalidQuotaError([
                    QuotaProblem("id", preconditions.exists_sentence("quota", quota.id))])
        except InvalidQuotaError as error:
            return views.QuotaCheck(error.problems, "", 0, [])
        visible, conflict = self._visible(), self.active.conflict(quota)
        if conflict is not None:
            return views.QuotaCheck([QuotaProblem("subject", conflict)], meaning(quota), 0, [])
        balances = self.queries.try_out(quota, visible)
        over = [views.balance_view(balance, {}) for balance in balances if balance.is_over][:100]
        return views.QuotaCheck([], meaning(quota), len(balances), over,
                                self.queries.reach(quota, visible))


def _past_query() -> tuple[str, Limit, float]:
    args = request.args
    limit = next((name for name in LIMITS if name == args.get("limit")), None)
    span_s = SPANS.get(args.get("last", "24h"))
    if set(args) - {"holder", "limit", "last"} or limit is None or span_s is None or (
            not args.get("holder")):
        raise bad(f"holder and limit are needed: limit is one of {', '.join(LIMITS)}, last is one "
                  f"of {', '.join(SPANS)}")
    return args["holder"], limit, span_s


def _gpu() -> str | None:
    gpus = request.args.getlist("gpu")
    if len(gpus) > 1 or set(request.args) - {"gpu"} or "" in gpus:
        raise bad("the one parameter here is `gpu`, a UUID; without it it is of the whole node")
    return gpus[0] if gpus else None


ROUTES = (
    # Everyone sees their own use; sums of others need sight of all of them.
    Route("GET quotas", QuotasApi.quotas, "list_quotas", see(Role.VIEWER),
          "All Quotas: who holds how much of them, and on how many nodes each is wanted, applied "
          "and in force."),
    Route("GET quotas/<quota_id>", QuotasApi.quota, "get_quota", see(Role.VIEWER),
          "One Quota.", errors=(404,)),
    Route("PUT quotas/<quota_id>", QuotasApi.put, "put_quota", change(Role.ADMIN),
          "A new Quota, or a change of one. Nodes hold it from their next look on, also without "
          "the hub.", reads=views.NewQuota, errors=(409,), version="generation"),
    Route("DELETE quotas/<quota_id>", QuotasApi.remove, "remove_quota", change(Role.ADMIN),
          "Remove a Quota; its versions are kept.", errors=(404,)),
    Route("GET quotas/<quota_id>/versions", QuotasApi.versions, "list_quota_versions",
          see(Role.OPERATOR, PermissionReach.NONE),
          "Its versions, newest first; also of a removed one.", errors=(404,)),
    Route("GET quotas/<quota_id>/past", QuotasApi.past, "get_quota_past", see(Role.VIEWER),
          "A holder's usage of one limit over the last hours, day or week, and the limit at that "
          "time.", errors=(404,),
          query=(("holder", {"type": "string", "minLength": 1}), ("limit", {"enum": list(LIMITS)}),
                 ("last", {"enum": ["3h", "24h", "7d"], "default": "24h"}))),
    Route("POST quota-checks", QuotasApi.check, "check_quota",
          change(Role.OPERATOR, PermissionReach.VISIBLE, is_fresh=False),
          "Validation errors, or the owners that would exceed it now."),
    Route("GET tasks/<path:task_id>/quotas", QuotasApi.of_task, "get_task_quotas", see(Role.VIEWER),
          "Which Quotas apply to a Task, why, and its owner's usage of them.",
          errors=(404, 409)),
    Route("GET nodes/<node_id>/quotas", QuotasApi.of_node, "get_node_quotas", see(Role.VIEWER),
          "The Quotas that concern a Node, or one GPU of it, whether they are in force there, and "
          "who of their holders is there.", errors=(404,),
          query=(
              ("gpu", {"type": "string", "minLength": 1, "description": "Of this GPU alone."}),)),
    Route("GET owners/<name>/quotas", QuotasApi.of_owner, "get_owner_quotas", see(Role.VIEWER),
          "All Quotas that apply to one owner, also those without usage now."),
)
