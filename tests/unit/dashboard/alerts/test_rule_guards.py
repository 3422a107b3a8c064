"""Guards of rules that act: they are there from the start, and a token is its owner."""

import inspect
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.access.passwords import PasswordService
from dashboard.access.policy import Actor, Role, Scope
from dashboard.access.services import AccessServices
from dashboard.access.store import AccountsStore, User
from dashboard.alerts.active_rules import ActiveRules
from dashboard.alerts.admin import RuleAdmin
from dashboard.alerts.core.rule import Rule, read
from dashboard.alerts.core.rule import version as version_of
from dashboard.alerts.rehearsal.record import RehearsalRecord
from dashboard.alerts.rehearsal.service import RehearsalService
from dashboard.alerts.service import AlertService, AlertSources
from dashboard.alerts.silences import SilenceService
from dashboard.alerts.store import AlertsStore
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.sign_in_notes import SignInWriter
from dashboard.audit.store import AuditStore
from dashboard.errors import InvalidChangeError
from dashboard.fleet.fleet import Fleet
from dashboard.quotas.active_quotas import ActiveQuotas
from dashboard.quotas.deployment import QuotaDeployer
from dashboard.quotas.queries import QuotaQueries
from dashboard.quotas.service import QuotaService
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState

EVERYTHING = Scope(("*",))
PROOF_S = 3_600.0


@pytest.mark.parametrize("part", [
    AlertSources, AlertService, ActiveRules, RuleAdmin, SilenceService,
    RehearsalService, ActiveQuotas, QuotaService, QuotaDeployer, QuotaQueries],
    ids=lambda part: part.__name__)
def test_nothing_is_built_without_what_guards_it(part: type) -> None:
    parameters = inspect.signature(part).parameters.values()
    assert [parameter.name for parameter in parameters
            if parameter.default is not parameter.empty] == []
    with pytest.raises(TypeError):
        part()


class Site:
    """Site of two admins, one of whom has a token; and the rules."""

    def __init__(self, folder: Path) -> None:
        self.state = HubState.open(folder)
        self.state.store(AccountsStore).add_user(User("ada", Role.ADMIN, EVERYTHING, None, 0.0))
        events, store = Dispatcher(), self.state.store(AlertsStore)
        audit = AuditRecorder(self.state.store(AuditStore), None, events)
        access = AccessServices(self.state, SignInWriter(self.state), PasswordService(), audit,
                                events)
        people = access.accounts
        _, session = access.sessions.begin("ada", "link", "127.0.0.1")
        self.ada = people.person(session)
        self.bob = replace(self.ada, name="bob", credential="")
        word, _ = access.admin.add_token(self.ada, "ci", Role.ADMIN, EVERYTHING, time.time() + 60)
        token = people.program(word)
        assert token is not None
        assert token.name != "ada"
        self.token = token
        self.rehearsals = RehearsalService(
            store, audit, Fleet(1), None, tuple, people.person_behind)  # type: ignore[arg-type]
        self.rules = ActiveRules(store, Dispatcher())
        self.admin = RuleAdmin(self.rules, store, audit, people.person_behind,
                               self.rehearsals.of_rule, True, PROOF_S)

    def approve(self, rule: Rule, by: Actor) -> None:
        """Approve a rehearsal over a long enough span."""
        now = time.time()
        self.state.store(AlertsStore).put_backtest(RehearsalRecord(
            f"b-{by.name}", rule, rule.id, version_of(rule), now - PROOF_S - 60, now - 60, "eve",
            now, 60, "done"))
        self.rehearsals.approve(by, f"b-{by.name}")


@pytest.fixture(name="site")
def a_site(tmp_path: Path) -> Iterable[Site]:
    tmp_path.chmod(0o700)
    site = Site(tmp_path)
    yield site
    site.state.close()


def a_rule(**more: object) -> Rule:
    return read({"id": "idle", "title": "Idle with memory held", "of": "task", "scope": "*",
                 "signal": "sm_pct", "fire": "<= 1", "for": "30s", "mode": "dry_run",
                 "ladder": [{"do": "tell"}, {"do": "end", "after": "60s"}],
                 "expires": time.strftime("%Y-%m-%d", time.gmtime(time.time() + 9e5))} | more)


def test_what_a_token_puts_its_owner_has_put(site: Site) -> None:
    site.admin.put(site.token, a_rule())
    [(_, author, *_)] = site.state.store(AlertsStore).versions("idle")
    assert author == "ada"
    site.admin.set_mode(site.token, "idle", "confirm", None)
    assert {by for _, by, *_ in site.state.store(AlertsStore).versions("idle")} == {"ada"}


@pytest.mark.parametrize("is_token_first", [True, False])
def test_nobody_approves_their_own_rule_by_a_token(site: Site, is_token_first: bool) -> None:
    first, second = (site.token, site.ada) if is_token_first else (site.ada, site.token)
    site.admin.put(first, a_rule())
    site.admin.set_mode(first, "idle", "confirm", None)
    site.approve(a_rule(), second)
    for actor, why in ((first, "its author"), (second, "its author"), (site.bob, "its author")):
        with pytest.raises(InvalidChangeError, match=f"another admin than .*{why}"):
            site.admin.set_mode(actor, "idle", "auto", None)
    site.approve(a_rule(), site.bob)
    site.admin.set_mode(site.bob, "idle", "auto", None)
    assert site.rules.rules["idle"][1].mode == "auto"


def test_no_way_leads_past_the_policy(site: Site) -> None:
    with pytest.raises(InvalidChangeError, match="a new rule starts"):
        site.admin.put(site.ada, a_rule(mode="auto"))
    site.admin.put(site.ada, a_rule())
    with pytest.raises(InvalidChangeError, match="another admin"):
        site.admin.put(site.ada, a_rule(mode="auto"))
    site.admin.put(site.ada, a_rule(mode="auto", fire="<= 2"))
    assert site.rules.rules["idle"][1].mode == "dry_run", "it means something else now"
