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
from dashboard.automation.intents import ActionIntent, RequestedKeep
from dashboard.automation.quota_source import QuotaIntentSource, progress
from dashboard.fleet.fleet import Fleet
from dashboard.fleet.visibility import EVERYTHING_SEEN, VisibleFleetCache
from dashboard.nodes.events import GroupChanged
from dashboard.quotas.active_quotas import ActiveQuotas
from dashboard.quotas.deployment import QuotaDeployer
from dashboard.quotas.evaluate import OverKey, deployments, for_node, over_since
from dashboard.quotas.gpu_hours import QuotaGpuHours, UserGpuSeconds, grain, hours_of
from dashboard.quotas.prometheus import quota_families
from dashboard.quotas.queries import QuotaQueries
from dashboard.quotas.service import HOURS_EVERY_S, QuotaService
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck import ladder
from gpudeck.desired_state import DesiredState, InForce, QuotaEnforcement
from gpudeck.quota import Per, Quota
from gpudeck.quota_usage import QuotaBalance, QuotaIndex, QuotaOffender, TaskHolding, balances
from gpudeck.wire import GpuFacts, Hello, Inventory, Task

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
    assert {each.node for each in deployments(quota, 1, fleet, {})} == nodes


def test_wanted_applied_and_in_force_are_three_things(fleet: Fleet) -> None:
    quota = Quota("q", "*", "node:n1", gpus=1)

    def seen(said: InForce | None) -> tuple[bool, bool, str]:
        [found] = deployments(quota, 7, fleet, {} if said is None else {"n1": said})
        return found.is_applied, found.is_in_force, found.proof

    assert seen(None)[:2] == (False, False)
    assert seen(InForce(6, NOW, NOW))[:2] == (False, False)
    assert "not signed" in seen(InForce(6, NOW, NOW, trouble="it is not signed"))[2]
    assert seen(InForce(7, NOW, NOW))[:2] == (True, False)
    forbidden = InForce(7, NOW, NOW, (QuotaEnforcement("q", False, "none", "rules may not act"),))
    assert seen(forbidden) == (True, False, "rules may not act")
    held = InForce(7, NOW, NOW, (QuotaEnforcement("q", True, "ladder", "3 tasks of it seen here"),))
    assert seen(held) == (True, True, "3 tasks of it seen here")
    fleet.nodes["n1"].disconnect()  # what it said before is not said of now
    assert seen(held)[:2] == (True, False)


def active_of(state: HubState, events: Dispatcher) -> ActiveQuotas:
    return ActiveQuotas(state.quotas, AuditRecorder(state.audit, None, events), events)


class Signer:
    epoch = 1

    def sign_desired(self, desired: DesiredState) -> DesiredState:
        return desired


def test_a_node_is_sent_what_it_lacks_and_again_until_it_has_it(tmp_path: Path, fleet: Fleet
                                                               ) -> None:
    state, events = HubState.open(tmp_path), Dispatcher()
    active, sent = active_of(state, events), list[tuple[str, int, int]]()
    deployer = QuotaDeployer(
        active, fleet, Signer(), ("n1", "n3"),  # type: ignore[arg-type]
        lambda node_id, desired: bool(sent.append(
            (node_id, desired.generation, len(desired.quotas)))))  # type: ignore[union-attr, func-returns-value]
    deployer.step(NOW, 0.0)
    assert sent == [], "there never was a quota"
    state.quotas.put(Quota("q", "*", "group:default", gpus=1), "ada", NOW)
    active.reload()
    for mono in (1.0, 2.0, 15.9):
        deployer.step(NOW, mono)
    assert sent == [("n1", 1, 1)]
    deployer.step(NOW, 16.0)
    assert sent[1:] == [("n1", 1, 1)], "it has not said that it has it"
    deployer.reported("n1", InForce(1, NOW, NOW))
    deployer.step(NOW, 40.0)
    fleet.set_group("n1", "lab")
    events.dispatch(GroupChanged("n1", "lab"))
    deployer.step(NOW, 41.0)
    assert sent[2:] == [("n1", 2, 0)], "of another group, and of another generation"
    deployer.joined("n1")
    deployer.step(NOW, 42.0)
    assert sent[3:] == [("n1", 2, 0)]
    state.close()


# -- for Prometheus

def test_of_what_is_not_known_whole_no_number_is_given() -> None:
    quota = Quota("q", "*", mem_bytes=10)

    def told(used: float, is_whole: bool) -> dict[str, str]:
        held = QuotaBalance(quota, "mem_bytes", "alice", used, 10.0, is_whole, 1, ("alice",))
        text = "".join(quota_families([(quota, [], [held])]))
        return {name: value for name, holder, value in re.findall(
            r'^gpudeck_quota_(\w+){[^\n]*holder="(\w+)"} (\S+)$', text, re.M)}

    assert told(4.0, True) == {"used": "4", "over": "0"}
    assert told(11.0, True) == {"used": "11", "over": "1"}
    assert told(4.0, False) == {}
    assert told(11.0, False) == {"over": "1"}  # at least that much


# -- hours

def test_who_is_in_which_group_is_known_after_a_restart(tmp_path: Path) -> None:
    def store() -> HubState:
        return HubState.open(tmp_path)

    name = f"u{random.randrange(10**6)}"
    state = store()
    state.quotas.put_groups({name: ("ml", "ops"), "bob": ()})
    state.quotas.put_groups({name: ("ops",)})
    state.close()
    again = store()
    assert again.quotas.groups() == {name: frozenset(("ops",)), "bob": frozenset()}
    again.close()


def summed(state: HubState, fleet: Fleet, history: Any) -> tuple[QuotaService, QuotaQueries]:
    events = Dispatcher()
    active = active_of(state, events)
    deployer = QuotaDeployer(active, fleet, SimpleNamespace(epoch=1), (), lambda *_: True)  # type: ignore[arg-type]
    service = QuotaService(active, state.quotas, fleet, history, 30.0, events)
    return service, QuotaQueries(service, deployer, state.quotas, fleet, history)


def test_hours_of_a_while_ago_are_nobodys_hours_now(tmp_path: Path, fleet: Fleet) -> None:
    """History does not answer: whoever was over then is not known to be."""
    state, gone = HubState.open(tmp_path), "history does not answer"
    told = [pd.DataFrame({"user": ["alice"], "gpu_s": [7_200.0]})]

    def held(*_: object) -> pd.DataFrame:
        if not told:
            raise OSError(gone)
        return told.pop()

    state.quotas.put(Quota("q", "*", gpu_hours=1.0), "ada", NOW)
    quotas, queries = summed(state, fleet, SimpleNamespace(held=held))
    visible = VisibleFleetCache(fleet).of(EVERYTHING_SEEN)

    def hours() -> tuple[float, bool]:
        [found] = queries.of_owner("alice", visible)
        return found.used, found.is_whole

    assert hours() == (0.0, False)
    quotas.step(NOW, 0.0)
    assert hours() == (2.0, True)
    with pytest.raises(OSError, match=gone):
        quotas.step(NOW + HOURS_EVERY_S, 1_000.0)
    assert hours() == (0.0, False)
    quotas.step(NOW + HOURS_EVERY_S + 1, 1_001.0)
    assert hours() == (0.0, False)
    assert quotas.summed_at == NOW + HOURS_EVERY_S + 1, "what else there is, is looked at"
    state.close()


GROUPS = {"alice": ("ml",), "bob": ("ml", "ops"), "carol": ()}


def counted(cells: list[UserGpuSeconds], *wanted: Quota, per: Per = "day",
            groups: Mapping[str, tuple[str, ...]] = GROUPS) -> QuotaGpuHours:
    return hours_of(QuotaIndex(wanted), per, cells, {
        node_id: (f"host-{node_id}", "lab") for node_id in ("n1", "n2")}, groups)


def test_hours_are_of_each_or_of_those_together() -> None:
    used = [UserGpuSeconds("alice", None, None, 7_200.0),
            UserGpuSeconds("bob", None, None, 3_600.0),
            UserGpuSeconds(None, None, None, 3_600.0)]
    each = Quota("e", "*", gpu_hours=1.0)
    assert counted(used, each).of == {("e", "alice"): 2.0, ("e", "bob"): 1.0}
    whole = Quota("w", "*", gpu_hours=1.0, count="together")
    own = Quota("a", "user:alice", gpu_hours=9.0, count="together")
    assert counted(used, whole).of == {("w", "everyone together"): 4.0}
    assert counted(used, whole, own).of == {("w", "everyone together"): 2.0, ("a", "alice"): 2.0}
    week = Quota("k", "*", gpu_hours=1.0, per="week", count="together")
    assert counted(used, each, week).of == {("e", "alice"): 2.0, ("e", "bob"): 1.0}
    assert counted(used, each, week, per="week").of == {("k", "everyone together"): 4.0}


def test_hours_of_a_whole_group_are_those_of_whoever_is_known_to_be_in_it() -> None:
    used = [UserGpuSeconds("alice", None, None, 7_200.0),
            UserGpuSeconds("bob", None, None, 3_600.0),
            UserGpuSeconds("carol", None, None, 3_600.0)]
    group = Quota("g", "group:ml", gpu_hours=1.0, count="together")
    found = counted(used, group)
    assert (found.of, found.unsure) == ({("g", "the group ml together"): 3.0}, set())
    found = counted([*used, UserGpuSeconds("dora", None, None, 9.0)], group)
    assert (found.of, found.unsure) == ({("g", "the group ml together"): 3.0}, {"g"})
    held = TaskHolding(Task("t", 1, 1, 1.0, "alice", None, groups=("ml",)), "n", "h", None,
                       (("G", 1.0),))
    [told] = balances(QuotaIndex([group]), [held], NOW, found.of, (), found.unsure)
    assert (told.is_over, told.is_whole) == (True, False)
    assert told.sentence.startswith(
        "the group ml together used at least 3 GPU-hours in the last day on the whole fleet; "
        "g gives 1 GPU-hours per day")


def test_hours_of_a_gpu_and_of_a_node_are_taken_out_of_the_rest() -> None:
    used = [UserGpuSeconds("alice", "n1", "G1", 3_600.0),
            UserGpuSeconds("alice", "n1", "G2", 7_200.0),
            UserGpuSeconds("alice", "n2", "G3", 10_800.0)]
    gpu = Quota("gpu", "*", "gpu:G1", gpu_hours=9.0)
    node = Quota("node", "*", "node:host-n1", gpu_hours=9.0)
    fleet = Quota("fleet", "*", gpu_hours=9.0)
    assert counted(used, gpu, node, fleet).of == {
        ("gpu", "alice"): 1.0, ("node", "alice"): 2.0, ("fleet", "alice"): 3.0}
    assert counted(used, fleet).of == {("fleet", "alice"): 6.0}
    assert grain(QuotaIndex([fleet]), "day") == ("user", "node")
    assert grain(QuotaIndex([fleet, node]), "day") == ("user", "node")
    assert grain(QuotaIndex([fleet, gpu]), "day") == ("user", "node", "gpu")
    assert grain(QuotaIndex([fleet, gpu]), "week") == ()
    held = TaskHolding(Task("t", 1, 1, 1.0, "alice", None), "n1", "host-n1", None,
                       (("G1", 1.0), ("G2", 1.0)))
    [on_gpu, on_node] = balances(QuotaIndex([gpu, node]), [held], NOW, {
        ("gpu", "alice"): 1.0, ("node", "alice"): 2.0}, ())
    assert (on_gpu.used, on_node.used) == (1.0, 2.0)  # a task on both counts for both


QUOTA_HOURS = st.builds(
    lambda at, subject, scope, count: Quota(f"q{at}", subject, scope, gpu_hours=1.0, count=count),
    st.integers(0, 99), st.sampled_from(("*", "user:alice", "group:ml")),
    st.sampled_from(("fleet", "node:host-n1", "gpu:G2")), st.sampled_from(("each", "together")))
CELLS = st.lists(st.builds(
    UserGpuSeconds, st.sampled_from(("alice", "bob", "carol", None)), st.sampled_from(("n1", "n2")),
    st.sampled_from(("G1", "G2", "G3")), st.integers(0, 9).map(lambda hours: hours * 3_600.0)))


@given(st.lists(QUOTA_HOURS, max_size=5, unique_by=lambda each: each.id), CELLS)
def test_no_hour_is_counted_twice(wanted: list[Quota], cells: list[UserGpuSeconds]) -> None:
    found = counted(cells, *wanted).of
    for count in ("each", "together"):
        ids = {quota.id for quota in wanted if quota.count == count}
        about = [cell for cell in cells if count == "together" or cell.user is not None]
        total = sum(hours for (quota_id, _), hours in found.items() if quota_id in ids)
        assert total <= sum(cell.gpu_s for cell in about) / 3_600
        if any(quota.subject == "*" and quota.scope == "fleet" and quota.id in ids
               for quota in wanted):
            assert total == sum(cell.gpu_s for cell in about) / 3_600  # nor left out


# -- what is wanted of the ladder

def balance(quota: Quota, used: float = 3.0) -> QuotaBalance:
    offender = QuotaOffender("n1", "host-n1", "j", ("t",), "alice", 2, NOW)
    return QuotaBalance(quota, "gpus", "alice", used, 1.0, True, 3, ("alice",),
                        (offender,) if used > 1 else ())


def wanted(found: list[QuotaBalance], since: Mapping[OverKey, float], now: float,
           hold_s: float = 30.0, held: str | None = None, keep: RequestedKeep | None = None,
           began_at: float = 0.0) -> list[ActionIntent]:
    quotas: Any = SimpleNamespace(
        balances=found, over_since=since, hold_s=hold_s, summed_at=now, steady=lambda: now,
        active=SimpleNamespace(versions={"q": SimpleNamespace(generation=4)}))
    holds: Any = SimpleNamespace(on_node=lambda _: held, keep_of=lambda *_: keep)
    return [*QuotaIntentSource(quotas, Fleet(1), holds, lambda: 0.0, began_at)()]


def test_only_who_is_over_for_long_enough_is_wanted_and_observing_wants_nothing() -> None:
    quota = Quota("q", "*", gpus=1, mode="act")
    since = over_since({}, [balance(quota)], NOW)
    assert wanted([balance(quota)], since, NOW + 29) == []
    [found] = wanted([balance(quota)], since, NOW + 30, held="on hold")
    assert (found.cause, found.task_ids, found.holds) == ("quota q v4", ("t",), ("on hold",))
    assert [rung.do for rung in found.rungs] == ["tell", "tell", "end"]
    since = over_since(since, [balance(quota, 1.0)], NOW + 31)  # within again: from the beginning
    since = over_since(since, [balance(quota)], NOW + 32)
    assert wanted([balance(quota)], since, NOW + 61) == []
    warns, observes = Quota("q", "*", gpus=1, mode="warn"), Quota("q", "*", gpus=1)
    [found] = wanted([balance(warns)], since, NOW + 61, hold_s=0.0)
    assert {rung.do for rung in found.rungs} == {"tell"}
    assert wanted([balance(observes)], since, NOW + 61, hold_s=0.0) == []


def test_how_far_it_is_in_words() -> None:
    climb = ladder.begin("quota q v1", "n/j", Quota("q", "*", gpus=1).ladder, NOW)
    sight = ladder.LadderObservation("yes", 0.0, (), (), None, "")
    assert progress(climb, NOW).startswith("not notified yet")
    climb, step = ladder.look(climb, sight, NOW)
    assert step is not None
    climb = ladder.settle(climb, "done", "", NOW)
    climb, _ = ladder.look(climb, sight, NOW + 1)
    assert progress(climb, NOW + 1).startswith("notified once; 'tell' comes in 10 min")
