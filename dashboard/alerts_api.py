"""REST of rules, alerts and silences. What is allowed, the desk decides."""

import time
from collections.abc import Callable
from http import HTTPStatus

from flask import Blueprint, Flask, Response, request

from .alerts import AlertDesk
from .alerts_store import MOST_LISTED
from .alerts_views import (
    AlertList,
    NewSilence,
    RuleCheck,
    RuleDraft,
    RuleList,
    RuleView,
    SilenceList,
    SilenceView,
    alert_view,
    problem_view,
    rule_view,
    silence_view,
)
from .api import PREFIX, Wrong, answer, bad, check_names, one_of
from .core.alerts.rule import RuleProblems, check, read
from .core.alerts.silence import Silence
from .core.lens import Lens, Lenses, Sight
from .events_api import moment
from .openapi import MAX_WORD
from .people_api import asker, body
from .rule_wants import AlertDetails

STATES = ("open", "ended")
SEEN_BY_DEFAULT_S = 7 * 86_400.0
MATCHES_SHOWN = 100


class AlertsApi:
    def __init__(self, desk: AlertDesk, lenses: Lenses, details: AlertDetails) -> None:
        self._details = details
        self._desk = desk
        self._lenses = lenses

    def _lens(self) -> Lens:
        return self._lenses.of(Sight.of(asker()))

    # -- alerts

    def alerts(self) -> Response:
        check_names(("state", "start", "end", "rule"))
        state = one_of("state", request.args.get("state"), STATES) or "open"
        start, end = moment("start"), moment("end")
        now = time.time()
        found = self._desk.alerts.firing() if state == "open" else self._desk.ended(
            now - SEEN_BY_DEFAULT_S if start is None else start, now if end is None else end)
        lens, rule = self._lens(), request.args.get("rule")
        if len(rule or "") > MAX_WORD:
            raise bad(f"rule has at most {MAX_WORD} characters")
        seen = [alert for alert in found if self._desk.is_seen(alert.target, lens)
                and (rule is None or rule == alert.rule_id)]
        seen.sort(key=lambda alert: (-alert.fired_at, alert.id))
        told = self._details.all() if state == "open" else {}
        return answer(AlertList([alert_view(alert, *told.get(alert.id, ([], None)))
                                 for alert in seen[:MOST_LISTED]]))

    # -- rules

    def rules(self) -> Response:
        return answer(RuleList([self._rule(rule_id) for rule_id in sorted(self._desk.rules)]))

    def rule(self, rule_id: str) -> Response:
        if rule_id not in self._desk.rules:
            raise Wrong(HTTPStatus.NOT_FOUND, f"there is no rule {rule_id[:80]!r}")
        return answer(self._rule(rule_id))

    def _rule(self, rule_id: str) -> RuleView:
        number, rule = self._desk.rules[rule_id]
        ready = self._desk.ready.get(rule_id)
        watch = self._desk.evaluator.watches.get(rule_id)
        why_not = "it is not well written any more: edit it" if ready is None else (
            "" if watch is None else watch.trouble)
        return rule_view(rule, number, "" if ready is None else ready.version, watch, why_not)

    def put_rule(self, rule_id: str) -> Response:
        try:
            rule = read({"id": rule_id} | body(dict))
            if rule.id != rule_id:
                raise bad("the rule's id is the one in the address")
            self._desk.put_rule(asker(), rule)
        except RuleProblems as error:
            raise bad("; ".join(map(str, error.problems))) from None
        return answer(self._rule(rule_id))

    def remove_rule(self, rule_id: str) -> Response:
        self._desk.remove_rule(asker(), rule_id)
        return Response(status=HTTPStatus.NO_CONTENT)

    def check_rule(self) -> Response:
        """What is wrong with it, or whom it is true of now."""
        try:
            rule = read(body(RuleDraft).rule)
            check(rule)
        except RuleProblems as error:
            return answer(RuleCheck([problem_view(each) for each in error.problems], 0, 0, []))
        targets, matching = self._desk.try_out(rule)
        lens = self._lens()
        seen = [target.key for target in matching if self._desk.is_seen(target, lens)]
        return answer(RuleCheck([], targets if lens.is_whole else len(seen), len(seen),
                                seen[:MATCHES_SHOWN]))

    # -- silences

    def silences(self) -> Response:
        now = time.time()
        found = sorted(self._desk.silences.values(), key=lambda each: (-each.until, each.id))
        return answer(SilenceList([self._silence(each, now) for each in found[:MOST_LISTED]]))

    def _silence(self, silence: Silence, now: float) -> SilenceView:
        return silence_view(silence, self._desk.host_of(silence.node), now)

    def silence(self) -> Response:
        asked = body(NewSilence)
        begins = time.time() if asked.begins is None else asked.begins
        made = self._desk.silence(asker(), Silence("", "", asked.because, begins, asked.until,
                                                   asked.rule, asked.node, asked.target,
                                                   asked.user))
        return answer(self._silence(made, time.time()), HTTPStatus.CREATED)

    def end_silence(self, silence_id: str) -> Response:
        self._desk.end_silence(asker(), silence_id)
        return Response(status=HTTPStatus.NO_CONTENT)


def add_alerts_api(server: Flask, api: AlertsApi) -> None:
    routes = Blueprint("alerts", __name__, url_prefix=PREFIX)
    table: tuple[tuple[str, str, Callable[..., Response]], ...] = (
        ("GET", "/alerts", api.alerts),
        ("GET", "/rules", api.rules), ("GET", "/rules/<rule_id>", api.rule),
        ("PUT", "/rules/<rule_id>", api.put_rule),
        ("DELETE", "/rules/<rule_id>", api.remove_rule),
        ("POST", "/rule-checks", api.check_rule),
        ("GET", "/silences", api.silences), ("POST", "/silences", api.silence),
        ("DELETE", "/silences/<silence_id>", api.end_silence),
    )
    for method, rule, view in table:
        routes.add_url_rule(rule, f"{view.__name__} {method}", view, methods=[method],
                            provide_automatic_options=False)
    server.register_blueprint(routes)
