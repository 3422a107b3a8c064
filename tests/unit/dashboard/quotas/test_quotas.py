"""Quotas at the hub: what is signed, what a node has of it, hours, and how far a ladder is."""

import random
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.actions.signing_policy import RecentSignings, SigningBudget, SigningPolicy
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditStore
from dashboard.automation.intents import ActionIntent, RequestedKeep
from dashboard.automation.quota_source import QuotaIntentSource, progress
from dashboard.fleet.fleet import Fleet, Node
from dashboard.fleet.visibility import EVERYTHING_SEEN, VisibleFleetCache
from dashboard.nodes.events import GroupChanged
from dashboard.quotas.active_quotas import ActiveQuotas
from dashboard.quotas.deployment import QuotaDeployer
from dashboard.quotas.evaluate import OverKey, deployments, for_node, over_since
from dashboard.quotas.gpu_hours import QuotaGpuHours, UserGpuSeconds, grain, hours_of
from dashboard.quotas.prometheus import quota_families
from dashboard.quotas.queries import QuotaQueries
from dashboard.quotas.service import HOURS_EVERY_S, QuotaService
from dashboard.quotas.store import QuotasStore
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck.contract import ladder
from gpudeck.contract.desired_state import DesiredState, InForce, QuotaEnforcement
from gpudeck.contract.quota import Per, Quota
from gpudeck.contract.quota_usage import (
    QuotaBalance,
    QuotaIndex,
    QuotaOffender,
    TaskHolding,
    balances,
)
from gpudeck.contract.wire import GpuFacts, Hello, Inventory, Task

NOW = 1_000_000.0


def hello(name: str) -> Hello:
    return Hello((1,), bytes(32), bytes(64), name, f"host-{name}", "boot", "s", 0, "0", "nvml")


@pytest.fixture(name="fleet")
def _fleet() -> Fleet:
    fleet = Fleet(1)
    for name in ("n1", "n2"):
        node = fleet.hello(hello(name), NOW, 0.0)
        fleet.inventory(node, Inventory(1, (GpuFacts(f"GPU-{name}", 0, "H100"),)))
    fleet.set_group("n2", "lab")
    return fleet


# -- the signer

def desired(**more: object) -> DesiredState:
    fields = {"node_id": "n", "epoch": 3, "generation": 5, "issued_at": NOW, "group": "default"}
    return DesiredState(**(fields | more))  # type: ignore[arg-type]


def test_the_signer_signs_what_is_new_and_of_now() -> None:
    signing = SigningPolicy(SigningBudget(), 3, RecentSignings())
    assert signing.judge_desired(desired(), NOW) is None
    assert signing.judge_desired(desired(), NOW) is None  # for another node
    for wrong in (desired(epoch=2), desired(issued_at=NOW - 60), desired(issued_at=NOW + 60),
                  desired(generation=4)):
        refusal = signing.judge_desired(wrong, NOW)
        assert refusal is not None
        assert refusal.code == "signer"
    assert signing.judge_desired(desired(generation=6), NOW) is None


# -- the nodes

@pytest.mark.parametrize(("scope", "nodes"), [
    ("fleet", {"n1", "n2"}), ("group:lab", {"n2"}), ("group:default", {"n1"}),
    ("node:host-n1", {"n1"}), ("node:n2", {"n2"}), ("gpu:GPU-n1", {"n1"}), ("gpu:GPU-x", set())])
def test_a_node_is_told_what_concerns_it(fleet: Fleet, scope: str, nodes: set[str]) -> None:
    quota = Quota("q", "*", scope, gpus=1)
    assert {node_id for node_id, node in fleet.nodes.items()
            if for_node([quota], fleet, node)} == nodes
    assert {deployment.node for deployment in deployments(quota, 1, fleet, {})} == nodes


def test_wanted_applied_and_in_force_are_three_things(fleet: Fleet) -> None:
    quota = Quota("q", "*", "node:n1", gpus=1)

    def state_of(in_force: InForce | None) -> tuple[bool, bool, str]:
        [deployment] = deployments(quota, 7, fleet, {} if in_force is None else {"n1": in_force})
        return deployment.is_applied, deployment.is_in_force, deployment.proof

    assert state_of(None)[:2] == (False, False)
    assert state_of(InForce(6, NOW, NOW))[:2] == (False, False)
    assert "not signed" in state_of(InForce(6, NOW, NOW, trouble="it is not signed"))[2]
    assert state_of(InForce(7, NOW, NOW))[:2] == (True, False)
    forbidden = InForce(7, NOW, NOW, (QuotaEnforcement("q", False, "none", "rules may not act"),))
    assert state_of(forbidden) == (True, False, "rules may not act")
    full = InForce(7, NOW, NOW, (QuotaEnforcement("q", True, "ladder", "3 tasks of it seen here"),))
    assert state_of(full) == (True, True, "3 tasks of it seen here")
    fleet.nodes["n1"].disconnect()  # what it said before is not said of now
    assert state_of(full)[:2] == (True, False)


def active_of(state: HubState, events: Dispatcher) -> ActiveQuotas:
    audit = AuditRecorder(state.store(AuditStore), None, events)
    return ActiveQuotas(state.store(QuotasStore), audit, events)


class Signer:
    epoch = 1

    def sign_desired(self, desired: DesiredState) -> DesiredState:
        return desired


def test_a_node_is_sent_what_it_lacks_and_again_until_it_has_it(tmp_path: Path, fleet: Fleet
                                                               ) -> None:
    state, events = HubState.open(tmp_path), Dispatcher()
    active, messages = active_of(state, events), list[tuple[str, int, int]]()
    deployer = QuotaDeployer(
        active, fleet, Signer(), ("n1", "n3"),  # type: ignore[arg-type]
        lambda node_id, desired: bool(messages.append(
            (node_id, desired.generation, len(desired.quotas)))))  # type: ignore[union-attr, func-returns-value]
    deployer.step(NOW, 0.0)
    assert messages == [], "there never was a quota"
    state.store(QuotasStore).put(Quota("q", "*", "group:default", gpus=1), "ada", NOW)
    active.reload()
    for mono in (1.0, 2.0, 15.9):
        deployer.step(NOW, mono)
    assert messages == [("n1", 1, 1)]
    deployer.step(NOW, 16.0)
    assert messages[1:] == [("n1", 1, 1)], "it has not said that it has it"
    deployer.reported("n1", InForce(1, NOW, NOW))
    deployer.step(NOW, 40.0)
    fleet.set_group("n1", "lab")
    events.dispatch(GroupChanged("n1", "lab"))
    deployer.step(NOW, 41.0)
    assert messages[2:] == [("n1", 2, 0)], "of another group, and of another generation"
    deployer.joined("n1")
    deployer.step(NOW, 42.0)
    assert messages[3:] == [("n1", 2, 0)]
    state.close()


# -- for Prometheus

def test_of_what_is_not_known_whole_no_number_is_given() -> None:
    quota = Quota("q", "*", mem_bytes=10)

    def values(amount: float, is_whole: bool) -> dict[str, str]:
        usage = QuotaBalance(quota, "mem_bytes", "alice", amount, 10.0, is_whole, 1, ("alice",))
        text = "".join(quota_families([(quota, [], [usage])]))
        return {name: value for name, holder, value in re.findall(
            r'^gpudeck_quota_(\w+){[^\n]*holder="(\w+)"} (\S+)$', text, re.M)}

    assert values(4.0, True) == {"used": "4", "over": "0"}
    assert values(11.0, True) == {"used": "11", "over": "1"}
    assert values(4.0, False) == {}
    assert values(11.0, False) == {"over": "1"}  # at least that much


# -- hours

def test_who_is_in_which_group_is_known_after_a_restart(tmp_path: Path) -> None:
    def store() -> HubState:
        return HubState.open(tmp_path)

    name = f"u{random.randrange(10**6)}"
    state = store()
    state.store(QuotasStore).put_groups({name: ("ml", "ops"), "bob": ()})
    state.store(QuotasStore).put_groups({name: ("ops",)})
    state.close()
    reopened = store()
    assert reopened.store(QuotasStore).groups() == {name: frozenset(("ops",)), "bob": frozenset()}
    reopened.close()


def summed(state: HubState, fleet: Fleet, history: Any) -> tuple[QuotaService, QuotaQueries]:
    events = Dispatcher()
    active = active_of(state, events)
    deployer = QuotaDeployer(active, fleet, SimpleNamespace(epoch=1), (), lambda *_: True)  # type: ignore[arg-type]
    service = QuotaService(active, state.store(QuotasStore), fleet, history, 30.0, events)
    return service, QuotaQueries(service, deployer, state.store(QuotasStore), fleet, history)


def test_hours_of_a_while_ago_are_nobodys_hours_now(tmp_path: Path, fleet: Fleet) -> None:
    """History does not answer: whoever was over then is not known to be."""
    state, failure = HubState.open(tmp_path), "history does not answer"
    answers = [pd.DataFrame({"user": ["alice"], "gpu_s": [7_200.0]})]

    def held_hours(*_: object) -> pd.DataFrame:
        if not answers:
            raise OSError(failure)
        return answers.pop()

    state.store(QuotasStore).put(Quota("q", "*", gpu_hours=1.0), "ada", NOW)
    quotas, queries = summed(state, fleet, SimpleNamespace(held=held_hours))
    visible = VisibleFleetCache(fleet).of(EVERYTHING_SEEN)

    def hours() -> tuple[float, bool]:
        [own] = queries.of_owner("alice", visible)
        return own.used, own.is_whole

    assert hours() == (0.0, False)
    quotas.step(NOW, 0.0)
    assert hours() == (2.0, True)
    with pytest.raises(OSError, match=failure):
        quotas.step(NOW + HOURS_EVERY_S, 1_000.0)
    assert hours() == (0.0, False)
    quotas.step(NOW + HOURS_EVERY_S + 1, 1_001.0)
    assert hours() == (0.0, False)
    assert quotas.summed_at == NOW + HOURS_EVERY_S + 1, "what else there is, is looked at"
    state.close()


class CountedNodes(dict[str, Node]):
    """Nodes that count how often somebody looks at all of them."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def test_without_quotas_nobody_adds_up_what_is_held(tmp_path: Path, fleet: Fleet) -> None:
    """The sum took 4 % of a core on 10,000 GPUs, to say that nothing is limited."""
    state, nodes = HubState.open(tmp_path), CountedNodes(fleet.nodes)
    fleet.nodes = nodes
    quotas, _ = summed(state, fleet, SimpleNamespace(held=lambda *_: pd.DataFrame()))
    quotas.step(NOW, 1_000.0)
    looks_of_hours = nodes.looks
    quotas.step(NOW, 1_010.0)
    assert (quotas.balances, quotas.summed_at, nodes.looks) == ([], NOW, looks_of_hours)
    assert quotas.sum(NOW, QuotaIndex([Quota("q", "*", gpus=1)]), QuotaGpuHours(), None) == []
    assert nodes.looks == looks_of_hours + 1
    state.close()


GROUPS = {"alice": ("ml",), "bob": ("ml", "ops"), "carol": ()}


def tally(cells: list[UserGpuSeconds], *quotas: Quota, per: Per = "day",
          groups: Mapping[str, tuple[str, ...]] = GROUPS) -> QuotaGpuHours:
    return hours_of(QuotaIndex(quotas), per, cells, {
        node_id: (f"host-{node_id}", "lab") for node_id in ("n1", "n2")}, groups)


def test_hours_are_of_each_or_of_those_together() -> None:
    cells = [UserGpuSeconds("alice", None, None, 7_200.0),
             UserGpuSeconds("bob", None, None, 3_600.0),
             UserGpuSeconds(None, None, None, 3_600.0)]
    single = Quota("e", "*", gpu_hours=1.0)
    assert tally(cells, single).of == {("e", "alice"): 2.0, ("e", "bob"): 1.0}
    whole = Quota("w", "*", gpu_hours=1.0, count="together")
    own = Quota("a", "user:alice", gpu_hours=9.0, count="together")
    assert tally(cells, whole).of == {("w", "everyone together"): 4.0}
    assert tally(cells, whole, own).of == {("w", "everyone together"): 2.0, ("a", "alice"): 2.0}
    week = Quota("k", "*", gpu_hours=1.0, per="week", count="together")
    assert tally(cells, single, week).of == {("e", "alice"): 2.0, ("e", "bob"): 1.0}
    assert tally(cells, single, week, per="week").of == {("k", "everyone together"): 4.0}


def test_hours_of_a_whole_group_are_those_of_whoever_is_known_to_be_in_it() -> None:
    cells = [UserGpuSeconds("alice", None, None, 7_200.0),
             UserGpuSeconds("bob", None, None, 3_600.0),
             UserGpuSeconds("carol", None, None, 3_600.0)]
    group = Quota("g", "group:ml", gpu_hours=1.0, count="together")
    hours = tally(cells, group)
    assert (hours.of, hours.unsure) == ({("g", "the group ml together"): 3.0}, set())
    hours = tally([*cells, UserGpuSeconds("dora", None, None, 9.0)], group)
    assert (hours.of, hours.unsure) == ({("g", "the group ml together"): 3.0}, {"g"})
    holding = TaskHolding(Task("t", 1, 1, 1.0, "alice", None, groups=("ml",)), "n", "h", None,
                          (("G", 1.0),))
    [balance] = balances(QuotaIndex([group]), [holding], NOW, hours.of, (), hours.unsure)
    assert (balance.is_over, balance.is_whole) == (True, False)
    assert balance.sentence.startswith(
        "the group ml together used at least 3 GPU-hours in the last day on the whole fleet; "
        "g gives 1 GPU-hours per day")


def test_hours_of_a_gpu_and_of_a_node_are_taken_out_of_the_rest() -> None:
    cells = [UserGpuSeconds("alice", "n1", "G1", 3_600.0),
             UserGpuSeconds("alice", "n1", "G2", 7_200.0),
             UserGpuSeconds("alice", "n2", "G3", 10_800.0)]
    gpu = Quota("gpu", "*", "gpu:G1", gpu_hours=9.0)
    node = Quota("node", "*", "node:host-n1", gpu_hours=9.0)
    fleet = Quota("fleet", "*", gpu_hours=9.0)
    assert tally(cells, gpu, node, fleet).of == {
        ("gpu", "alice"): 1.0, ("node", "alice"): 2.0, ("fleet", "alice"): 3.0}
    assert tally(cells, fleet).of == {("fleet", "alice"): 6.0}
    assert grain(QuotaIndex([fleet]), "day") == ("user", "node")
    assert grain(QuotaIndex([fleet, node]), "day") == ("user", "node")
    assert grain(QuotaIndex([fleet, gpu]), "day") == ("user", "node", "gpu")
    assert grain(QuotaIndex([fleet, gpu]), "week") == ()
    holding = TaskHolding(Task("t", 1, 1, 1.0, "alice", None), "n1", "host-n1", None,
                          (("G1", 1.0), ("G2", 1.0)))
    [on_gpu, on_node] = balances(QuotaIndex([gpu, node]), [holding], NOW, {
        ("gpu", "alice"): 1.0, ("node", "alice"): 2.0}, ())
    assert (on_gpu.used, on_node.used) == (1.0, 2.0)  # a task on both counts for both


QUOTA_HOURS = st.builds(
    lambda at, subject, scope, count: Quota(f"q{at}", subject, scope, gpu_hours=1.0, count=count),
    st.integers(0, 99), st.sampled_from(("*", "user:alice", "group:ml")),
    st.sampled_from(("fleet", "node:host-n1", "gpu:G2")), st.sampled_from(("each", "together")))
CELLS = st.lists(st.builds(
    UserGpuSeconds, st.sampled_from(("alice", "bob", "carol", None)), st.sampled_from(("n1", "n2")),
    st.sampled_from(("G1", "G2", "G3")), st.integers(0, 9).map(lambda hours: hours * 3_600.0)))


@given(st.lists(QUOTA_HOURS, max_size=5, unique_by=lambda quota: quota.id), CELLS)
def test_no_hour_is_counted_twice(quotas: list[Quota], cells: list[UserGpuSeconds]) -> None:
    totals = tally(cells, *quotas).of
    for count in ("each", "together"):
        ids = {quota.id for quota in quotas if quota.count == count}
        about = [cell for cell in cells if count == "together" or cell.user is not None]
        total = sum(hours for (quota_id, _), hours in totals.items() if quota_id in ids)
        assert total <= sum(cell.gpu_s for cell in about) / 3_600
        if any(quota.subject == "*" and quota.scope == "fleet" and quota.id in ids
               for quota in quotas):
            assert total == sum(cell.gpu_s for cell in about) / 3_600  # nor left out


# -- what is wanted of the ladder

def balance(quota: Quota, amount: float = 3.0) -> QuotaBalance:
    offender = QuotaOffender("n1", "host-n1", "j", ("t",), "alice", 2, NOW)
    return QuotaBalance(quota, "gpus", "alice", amount, 1.0, True, 3, ("alice",),
                        (offender,) if amount > 1 else ())


def intents(usages: list[QuotaBalance], since: Mapping[OverKey, float], now: float,
            hold_s: float = 30.0, hold: str | None = None, keep: RequestedKeep | None = None,
            began_at: float = 0.0) -> list[ActionIntent]:
    quotas: Any = SimpleNamespace(
        balances=usages, over_since=since, hold_s=hold_s, summed_at=now, steady=lambda: now,
        active=SimpleNamespace(versions={"q": SimpleNamespace(generation=4)}))
    holds: Any = SimpleNamespace(on_node=lambda _: hold, keep_of=lambda *_: keep)
    return [*QuotaIntentSource(quotas, Fleet(1), holds, lambda: 0.0, began_at)()]


def test_only_who_is_over_for_long_enough_is_wanted_and_observing_wants_nothing() -> None:
    quota = Quota("q", "*", gpus=1, mode="act")
    since = over_since({}, [balance(quota)], NOW)
    assert intents([balance(quota)], since, NOW + 29) == []
    [intent] = intents([balance(quota)], since, NOW + 30, hold="on hold")
    assert (intent.cause, intent.task_ids, intent.holds) == ("quota q v4", ("t",), ("on hold",))
    assert [rung.do for rung in intent.rungs] == ["tell", "tell", "end"]
    since = over_since(since, [balance(quota, 1.0)], NOW + 31)  # within again: from the beginning
    since = over_since(since, [balance(quota)], NOW + 32)
    assert intents([balance(quota)], since, NOW + 61) == []
    warns, observes = Quota("q", "*", gpus=1, mode="warn"), Quota("q", "*", gpus=1)
    [intent] = intents([balance(warns)], since, NOW + 61, hold_s=0.0)
    assert {rung.do for rung in intent.rungs} == {"tell"}
    assert intents([balance(observes)], since, NOW + 61, hold_s=0.0) == []


def test_how_far_it_is_in_words() -> None:
    climb = ladder.begin("quota q v1", "n/j", Quota("q", "*", gpus=1).ladder, NOW)
    sight = ladder.LadderObservation("yes", 0.0, (), (), None, "")
    assert progress(climb, NOW).startswith("not notified yet")
    climb, step = ladder.look(climb, sight, NOW)
    assert step is not None
    climb = ladder.settle(climb, "done", "", NOW)
    climb, _ = ladder.look(climb, sight, NOW + 1)
    assert progress(climb, NOW + 1).startswith("notified once; 'tell' comes in 10 min")
