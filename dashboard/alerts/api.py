"""REST of rules, alerts and silences. The services check rights."""

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

from flask import request
from msgspec import convert
from msgspec.structs import replace

from ..access.policy import PermissionReach, Role
from ..access.requests import body, caller
from ..access.routes import Route, change, see
from ..errors import NotFoundError, RecoveringError
from ..fleet.visibility import VisibleFleet, VisibleFleetCache
from ..web import preconditions
from ..web.answers import (
    Key,
    bad,
    check_names,
    cursor_of,
    one_of,
    read_cursor,
    read_limit,
)
from ..web.moments import moment
from ..web.openapi_parts import MAX_WORD, TIME
from .admin import RuleAdmin
from .core.firing_alerts import Alert
from .core.query import AlertQuery
from .core.rule import InvalidRuleError, Rule, RuleProblem, check, read
from .core.silence import Silence
from .queries import AlertQueries
from .rules_file import dump_one, one_rule
from .silences import SilenceService
from .store import MOST_LISTED, AlertPlace
from .views import (
    NO_DETAIL,
    AlertDetail,
    AlertList,
    NewSilence,
    RuleCheck,
    RuleDraft,
    RuleList,
    RuleModeChange,
    RuleProblemView,
    RuleView,
    SilenceList,
    SilenceView,
    alert_view,
    name_of,
    silence_view,
)

RECOVERING = ("recovering: the hub has just started, and looks whether the alerts of before still "
              "fire")
RETRY_S = 1.0
STATES = ("open", "pending", "ended")
SEEN_BY_DEFAULT_S = 7 * 86_400.0
MATCHES_SHOWN = 100
MOST_TARGETS = 20
MOST_USERS = 200


class AlertDetailSource(Protocol):
    """Reasons why actions on each alert are on hold, and its ladder, by alert id."""

    def all(self) -> dict[str, AlertDetail]: ...


@dataclass(eq=False, slots=True)
class AlertsApi:
    queries: AlertQueries
    admin: RuleAdmin
    silencing: SilenceService
    visible_fleets: VisibleFleetCache
    details: AlertDetailSource
    proof_h: int

    def _visible(self) -> VisibleFleet:
        return self.visible_fleets.seen_by(caller())

    # -- alerts

    def alerts(self) -> AlertList:
        check_names(("state", "start", "end", "rule", "targets", "gpus", "group", "model", "users",
                     "limit", "cursor"))
        query, visible_fleet, rule = self._about(), self._visible(), request.args.get("rule")
        state = one_of("state", request.args.get("state"), STATES) or "open"
        start, end = moment("start"), moment("end")
        now = time.time()
        if len(rule or "") > MAX_WORD:
            raise bad(f"rule has at most {MAX_WORD} characters")
        after = _place(read_cursor(request.args.get("cursor")))
        limit = read_limit(request.args.get("limit"), MOST_LISTED)
        if state == "ended":
            visible_alerts, more = self.queries.ended(
                visible_fleet, now - SEEN_BY_DEFAULT_S if start is None else start,
                now if end is None else end, query, rule, after, limit)
        else:
            if self.queries.alerts.is_recovering:
                raise RecoveringError(RECOVERING, RETRY_S)
            candidates = self.queries.open() if state == "open" else self.queries.pending()
            visible_alerts, more = _paged(
                (alert for alert in candidates if self.queries.is_seen(alert.target, visible_fleet)
                 and (rule is None or rule == alert.rule_id) and query.matches(alert)),
                1 if state == "pending" else -1, after, limit)
        details = self.queries.unseen() | self.details.all() if state == "open" else {}
        return AlertList([
            alert_view(alert, self.queries.gpus_seen(alert.target, visible_fleet),
                       self.silencing.matching(alert, alert.ended_at or now),
                       details.get(alert.id, NO_DETAIL))
            for alert in visible_alerts],
                         None if more is None else cursor_of((repr(more[0]), more[1])))

    def _about(self) -> AlertQuery:
        gpus = _several("gpus")
        return AlertQuery(_several("targets"), gpus,
                          frozenset() if gpus is None else self.queries.nodes_of(gpus),
                          self.queries.part(request.args.get("group"), request.args.get("model")),
                          _several("users", MOST_USERS))

    # -- rules

    def rules(self) -> RuleList:
        return RuleList(self.queries.all_rules(), self.proof_h)

    def rule(self, rule_id: str) -> RuleView:
        view = self.queries.rule(rule_id)
        if view is None:
            raise NotFoundError(f"there is no rule {rule_id[:80]!r}")
        return view

    def set_mode(self, mode_change: RuleModeChange, rule_id: str) -> RuleView:
        self.admin.set_mode(caller(), rule_id, mode_change.mode, mode_change.expires)
        return self.rule(rule_id)

    def put_rule(self, rule_id: str) -> RuleView:
        former = self.queries.rule(rule_id)
        preconditions.check("rule", rule_id, None if former is None else former.number)
        rule = read({"id": rule_id} | body(dict))
        if rule.id != rule_id:
            raise bad("the rule's id must match the one in the URL")
        self.admin.put(caller(), rule)
        return replace(self.rule(rule_id), warning=self.queries.warning(rule))

    def remove_rule(self, rule_id: str) -> None:
        self.admin.remove(caller(), rule_id)

    def check_rule(self, draft: RuleDraft) -> RuleCheck:
        """Return the problems of a draft, or the targets that meet its condition now."""
        rule = None
        if (draft.rule is None) == (draft.yaml is None):
            raise bad("give the rule either as fields (rule) or as text (yaml)")
        try:
            rule = read(draft.rule if draft.yaml is None else one_rule(draft.yaml))
            ready = check(rule)
            if draft.is_new and self.queries.rule(rule.id) is not None:
                raise InvalidRuleError([
                    RuleProblem("id", preconditions.exists_sentence("rule", rule.id))])
        except InvalidRuleError as error:
            return RuleCheck(convert(error.problems, list[RuleProblemView], from_attributes=True),
                             rule=rule, yaml="" if rule is None else dump_one(rule))
        targets, matching, basis = self.queries.try_out(rule)
        visible = self._visible()
        visible_targets = [target for target in matching if self.queries.is_seen(target, visible)]
        listed = visible_targets[:MATCHES_SHOWN]
        return RuleCheck(
            [], targets if visible.is_whole else len(visible_targets), len(visible_targets),
            [target.key for target in listed], [name_of(rule.of, target) for target in listed],
            rule, dump_one(rule), basis, self.queries.refused_rungs(ready, visible),
            self.queries.warning(rule))

    # -- silences

    def silences(self) -> SilenceList:
        now = time.time()
        silences = sorted(self.silencing.silences.values(),
                          key=lambda silence: (-silence.until, silence.id))
        return SilenceList([self._silence(silence, now) for silence in silences[:MOST_LISTED]])

    def _silence(self, silence: Silence, now: float) -> SilenceView:
        return silence_view(silence, self.queries.host_of(silence.node), now)

    def silence(self, draft: NewSilence) -> SilenceView:
        begins = time.time() if draft.begins is None else draft.begins
        silence = self.silencing.create(caller(), Silence(
            "", "", draft.because, begins, draft.until, draft.rule, draft.node, draft.target,
            draft.user))
        return self._silence(silence, time.time())

    def end_silence(self, silence_id: str) -> None:
        self.silencing.end(caller(), silence_id)


def _several(name: str, most: int = MOST_TARGETS) -> frozenset[str] | None:
    text = request.args.get(name)
    if text is None:
        return None
    names = frozenset(text.split(","))
    if len(names) > most or any(len(value) > MAX_WORD for value in names):
        raise bad(f"at most {most} {name} are accepted at once")
    return names


def _place(cursor: Key | None) -> AlertPlace | None:
    if cursor is None:
        return None
    with suppress(ValueError):
        at, alert_id = cursor
        if isfinite(float(at)):
            return float(at), alert_id
    raise bad("this cursor is not from this list; start again without it")


def _paged(alerts: Iterable[Alert], direction: int, after: AlertPlace | None, limit: int
           ) -> tuple[list[Alert], AlertPlace | None]:
    """Return a page in order of time (`direction` 1: oldest first), and the place after which the
    next one starts. An alert that ends in the meantime does not shift the others."""
    def key(place: AlertPlace) -> AlertPlace:
        return direction * place[0], place[1]

    places = {(alert.fired_at, alert.id): alert for alert in alerts}
    following = sorted((place for place in places if after is None or key(place) > key(after)),
                       key=key)
    more = following[limit - 1] if len(following) > limit else None
    return [places[place] for place in following[:limit]], more


ROUTES = (
    # Whoever may see a node sees its alerts; rules concern the whole fleet.
    Route("GET alerts", AlertsApi.alerts, "list_alerts", see(Role.VIEWER),
          "Firing alerts; with `state=pending` those not true for long enough yet, `fired_at` "
          "in the future; with `state=ended` resolved ones of the last seven days or between "
          "`start` and `end`; newest first. A page of `ended` may hold fewer than `limit`: there "
          "is more as long as there is a `next`. Right after a restart of the hub: 503, with "
          "`Retry-After`.", errors=(503,), is_list=True, page_size=MOST_LISTED,
          query=(("state", {"enum": ["open", "pending", "ended"], "default": "open"}),
                 ("rule", {"type": "string", "maxLength": MAX_WORD}), ("start", TIME),
                 ("targets",
                  {"type": "string", "description": "Only these, up to 20, comma-separated."}),
                 ("gpus", {"type": "string", "description": "Alerts about these GPUs, "
                           "up to 20, comma-separated: their own, those of tasks, "
                           "jobs and owners on them, and of their nodes."}), ("end", TIME),
                 ("group", {"type": "string", "description": "Alerts about GPUs and nodes of "
                            "this group, as it is now."}),
                 ("model", {"type": "string", "description": "Alerts about GPUs of this model "
                            "and their nodes."}),
                 ("users", {"type": "string", "description": "Alerts about these owners and "
                            "their tasks and jobs, up to 200, comma-separated."}))),
    Route("GET rules", AlertsApi.rules, "list_rules", see(Role.VIEWER, PermissionReach.NONE),
          "All Rules, and how many targets are in which phase."),
    Route("GET rules/<rule_id>", AlertsApi.rule, "get_rule", see(Role.VIEWER, PermissionReach.NONE),
          "One Rule.", errors=(404,)),
    Route("PUT rules/<rule_id>", AlertsApi.put_rule, "put_rule", change(Role.ADMIN),
          "A new Rule, or a new version of one.", reads=Rule, errors=(409,), version="number"),
    Route("DELETE rules/<rule_id>", AlertsApi.remove_rule, "remove_rule", change(Role.ADMIN),
          "Remove a Rule; its versions are kept.", errors=(404,)),
    # Lowering is immediate; raising takes an admin with a fresh password, as RuleAdmin checks.
    Route("POST rules/<rule_id>/mode", AlertsApi.set_mode, "set_rule_mode",
          change(Role.OPERATOR, is_fresh=False),
          "Set a Rule's mode; raising it takes an admin, and auto takes proof.",
          errors=(404,)),
    Route("POST rule-checks", AlertsApi.check_rule, "check_rule",
          change(Role.OPERATOR, PermissionReach.VISIBLE, is_fresh=False),
          "Validation errors, or the targets the Rule matches now."),
    Route("GET silences", AlertsApi.silences, "list_silences",
          see(Role.VIEWER, PermissionReach.NONE),
          "All Silences, including expired ones."),
    Route("POST silences", AlertsApi.silence, "add_silence", change(Role.OPERATOR, is_fresh=False),
          "Silence matching alerts until `until`, within 30 days: no notifications, no actions.",
          status=201, errors=(404,)),
    Route("DELETE silences/<silence_id>", AlertsApi.end_silence, "end_silence",
          change(Role.OPERATOR, is_fresh=False),
          "End a Silence now.", errors=(404,)),
)
