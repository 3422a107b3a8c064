"""Claims are placed, shown, withdrawn and given back over what the asker sees, within what their
role may ask for, and over nothing else."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask

from dashboard.access.policy import Actor, Role, Scope
from dashboard.errors import InvalidChangeError, NotFoundError
from dashboard.pool.api import LeaseExtension, NewClaim, PoolApi
from dashboard.pool.plan import PoolNode
from dashboard.pool.policy import NewLimits, NewPolicy, PoolPolicyApi, SimulationRequest
from dashboard.pool.queries import PoolQueries
from dashboard.pool.service import PoolService
from dashboard.web.answers import ApiError
from gpudeck.contract.pool_link import OfferedGpu, PoolReport
from gpudeck.contract.pool_messages import AskClaim, ClaimRefused, Extend, Leased
from gpudeck.pool.core.claims import LIST_MOST, Claim
from gpudeck.pool.core.schedule import PoolPolicy
from tests.unit.dashboard.pool.interleavings import Run, World
from tests.unit.dashboard.pool.test_node_word import OWNER, turn

DAY_S = 86_400.0
GROUPS = {"n0": "prod", "n1": "lab"}


class Sight:
    def __init__(self, actor: Actor) -> None:
        self._scope = actor.scope

    @property
    def is_whole(self) -> bool:
        return "*" in self._scope.groups

    def sees_node(self, node_id: str) -> bool:
        return self._scope.sees(GROUPS[node_id])

    @classmethod
    def seen_by(cls, actor: Actor) -> "Sight":
        return cls(actor)


class Records(list[dict[str, Any]]):
    def note(self, kind: str, body: dict[str, Any]) -> None:
        self.append(body)

    record_refusal = note


class Questions:
    def ask(self, question: Callable[[], Any]) -> Any:
        return question()


class Asker:
    def __init__(self, service: PoolService) -> None:
        self.records = Records()
        self._app = Flask(__name__)
        self.api = PoolApi(service, PoolQueries(service), Sight,  # type: ignore[arg-type]
                           self.records)  # type: ignore[arg-type]
        self.policy = PoolPolicyApi(service, Sight, self.records,  # type: ignore[arg-type]
                                    Questions())  # type: ignore[arg-type]

    def __call__(self, role: str, group: str, act: Callable[..., Any], *args: Any,
                 name: str = OWNER) -> Any:
        actor = Actor("program", role, Role(role), Scope((group,), (name,)))
        with self._app.test_request_context(environ_base={"gpudeck.actor": actor}):
            return act(*args)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, random.Random(1))
    world.hub.service.set_policy(PoolPolicy(), world.machine.now)
    for node in world.nodes.values():
        world.link(node)
    settle(world)
    yield world
    for node in world.nodes.values():
        node.journal.close()
    world.hub.store.close()


@pytest.fixture
def asks(world: World) -> Asker:
    return Asker(world.hub.service)


def settle(world: World, turns: int = 3) -> None:
    for _ in range(turns):
        turn(world)
        node = world.nodes["n1"]
        node.service.step()
        world.report(node)
        while node.from_hub:
            node.service.receive(node.from_hub.popleft())


@pytest.mark.parametrize("role", ["user", "operator", "admin"])
def test_nothing_is_placed_out_of_sight(world: World, asks: Asker, role: str) -> None:
    api = asks.api
    whys = []
    for host in ("n0", "nope"):
        with pytest.raises(InvalidChangeError) as why:
            asks(role, "lab", api.claim, NewClaim(hosts=(host,)))
        whys.append(str(why.value).replace(host, "X"))
    assert whys[0] == whys[1], "nothing tells a hidden node from one that is not there"
    with pytest.raises(InvalidChangeError, match="the largest has 3"):
        asks(role, "lab", api.claim, NewClaim(gpus=4))
    with pytest.raises(InvalidChangeError, match="no node leases GPUs now"):
        asks(role, "elsewhere", api.claim, NewClaim())
    for _ in range(3):
        asks(role, "lab", api.claim, NewClaim(gpus=2))
    settle(world, 5)
    assert not world.nodes["n0"].service.leases.all
    assert len(world.nodes["n1"].service.leases.all) == 1


def test_nothing_is_placed_on_a_node_that_joins_out_of_sight(tmp_path: Path) -> None:
    """A user sees all nodes that there are, and not one that joins later."""
    world = World(tmp_path, random.Random(1))
    world.hub.service.set_policy(PoolPolicy(), world.machine.now)
    asks = Asker(world.hub.service)
    hidden, visible = world.nodes.values()
    world.link(visible)
    settle(world)
    for _ in range(2):
        asks("user", "lab", asks.api.claim, NewClaim(gpus=3))
    settle(world)
    assert len(visible.service.leases.all) == 1
    world.link(hidden)
    settle(world, 5)
    assert not hidden.service.leases.all
    for node in world.nodes.values():
        node.journal.close()
    world.hub.store.close()


def test_of_many_nodes_those_are_taken_that_could_meet_the_claim(
        monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [(OfferedGpu(f"G{at}", "H100" if at >= 70 else "T4", 0),) for at in range(80)]
    nodes = [PoolNode(f"n{at}", f"n{at}", PoolReport(gpus[at], (), ())) for at in range(80)]
    service = SimpleNamespace(nodes=nodes, policy=PoolPolicy(), pending={}, claims=[],
                              waiting=lambda nodes: [])
    service.claim = service.claims.append
    asks = Asker(service)  # type: ignore[arg-type]
    for node in nodes:
        monkeypatch.setitem(GROUPS, node.id, "lab")
    asks("user", "lab", asks.api.claim, NewClaim(models=("h100",)))
    [claim] = service.claims
    assert len(claim.hosts) == LIST_MOST
    assert set(claim.hosts) >= {f"n{at}" for at in range(70, 80)}


def test_nothing_is_withdrawn_or_given_back_out_of_sight(world: World, asks: Asker) -> None:
    api, service = asks.api, world.hub.service
    service.claim(Claim(id="held", owner=OWNER, gpus=3, submitted_at=0.0, hosts=("n0",)))
    settle(world)
    service.claim(Claim(id="c-waits", owner=OWNER, gpus=3, submitted_at=0.0, hosts=("n0",)))
    service.claim(Claim(id="c-any", owner="bob", gpus=3, nodes=2, submitted_at=0.0))
    for act, args in ((api.withdraw, ("c-waits",)), (api.withdraw, ("c-any",)),
                      (api.give_back, ("held",)),
                      (api.extend, (LeaseExtension(3_600.0), "held"))):
        given_none = (*args[:-1], "c-none")
        with pytest.raises(NotFoundError) as hidden:
            asks("operator", "lab", act, *args, name="eve")
        with pytest.raises(NotFoundError) as none:
            asks("operator", "lab", act, *given_none, name="eve")
        assert str(hidden.value).replace(args[-1], "c-none") == str(none.value)
    settle(world)
    assert {"c-waits", "c-any"} <= service.claims.keys()
    assert "held" in world.nodes["n0"].service.leases.all
    asks("operator", "prod", api.withdraw, "c-waits", name="eve")
    asks("operator", "prod", api.give_back, "held", name="eve")
    settle(world)
    assert "c-waits" not in service.claims
    assert "held" not in world.nodes["n0"].service.leases.all
    assert [record["action"] for record in asks.records] == ["withdraw_claim", "give_back_lease"]


@pytest.mark.parametrize(("role", "highest"), [("user", 2), ("operator", 3), ("admin", 4)])
def test_priority_goes_by_role(asks: Asker, role: str, highest: int) -> None:
    for priority in range(5):
        if priority <= highest:
            asks(role, "*", asks.api.claim, NewClaim(priority=priority))
            continue
        with pytest.raises(InvalidChangeError, match=f"{highest} at most"):
            asks(role, "*", asks.api.claim, NewClaim(priority=priority))


@pytest.mark.parametrize("is_preemptible", [False, True])
def test_a_claim_is_suspendable_only_if_it_is_preemptible(
        world: World, asks: Asker, is_preemptible: bool) -> None:
    """Regression: nothing would have suspended it, and its owner was not warned."""
    body = NewClaim(is_preemptible=is_preemptible, is_suspendable=True)
    node, service = world.nodes["n0"], world.hub.service
    run = Run(node, AskClaim("r", is_run=True, gpus=1, is_preemptible=is_preemptible,
                             is_suspendable=True), 7, "ann")
    node.requests.handle(run, run.claim, None)  # type: ignore[arg-type]
    settle(world)
    if is_preemptible:
        view = asks("user", "*", asks.api.claim, body)
        assert service.claims[view.id].is_suspendable
        assert isinstance(run.replies[-1], Leased)
        return
    with pytest.raises(ApiError, match="send is_preemptible, too"):
        asks("user", "*", asks.api.claim, body)
    assert not service.claims
    [refusal] = run.replies
    assert isinstance(refusal, ClaimRefused)
    assert "ask for both" in refusal.why


def test_so_do_claims_that_wait_hours_that_are_reserved_and_terms(world: World, asks: Asker
                                                                  ) -> None:
    api, tomorrow = asks.api, time.time() + DAY_S
    with pytest.raises(InvalidChangeError, match="30 days at most"):
        asks("user", "*", api.claim, NewClaim(term_s="31d"))
    asks("user", "*", api.claim, NewClaim(gpus=3, starts_at=tomorrow, term_s="14d"))
    with pytest.raises(InvalidChangeError, match="1,344 at most"):
        asks("user", "*", api.claim, NewClaim(gpus=2, starts_at=tomorrow, term_s="8d"))
    asks("operator", "*", api.claim, NewClaim(gpus=2, starts_at=tomorrow, term_s="8d"))
    while len(world.hub.service.claims) < 32:
        asks("user", "*", api.claim, NewClaim(gpus=3, nodes=2))
    with pytest.raises(InvalidChangeError, match="wait already"):
        asks("user", "*", api.claim, NewClaim(gpus=3, nodes=2))
    asks("admin", "*", asks.policy.set_policy, NewPolicy(limits={
        "user": NewLimits(waiting=33, priority=4)}))
    asks("user", "*", api.claim, NewClaim(gpus=3, nodes=2, priority=4))
    assert world.hub.service.policy.limits["user"].term_s == 30 * DAY_S
    assert world.hub.service.store.policy().limits["user"].waiting == 33


def test_a_user_extends_no_lease_that_others_wait_for(world: World, asks: Asker) -> None:
    service = world.hub.service
    service.claim(Claim(id="held", owner=OWNER, gpus=3, submitted_at=0.0, hosts=("n0",)))
    settle(world)
    asks("user", "*", asks.api.extend, LeaseExtension("1h"), "held")
    settle(world)
    service.claim(Claim(id="b", owner="bob", gpus=1, submitted_at=0.0, hosts=("n0",)))
    settle(world)
    with pytest.raises(InvalidChangeError, match="others wait"):
        asks("user", "*", asks.api.extend, LeaseExtension("1h"), "held")
    asks("operator", "*", asks.api.extend, LeaseExtension("1h"), "held")


def test_extensions_that_its_node_has_not_heard_of_count_for_the_longest_term(
        world: World, asks: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.pool.api.time", SimpleNamespace(
        time=world.hub.service.utc))
    world.hub.service.claim(Claim(id="held", owner=OWNER, gpus=3, submitted_at=0.0, hosts=("n0",)))
    settle(world)
    for _ in range(4):
        asks("user", "*", asks.api.extend, LeaseExtension("7d"), "held")
    with pytest.raises(InvalidChangeError, match="30 days at most"):
        asks("user", "*", asks.api.extend, LeaseExtension("7d"), "held")


def test_at_the_socket_everybody_is_a_user_and_root_an_admin(world: World) -> None:
    node = world.nodes["n0"]
    for uid, owner, priority, term_s, is_refused in (
            (7, "ann", 2, 8 * DAY_S, False), (7, "ann", 3, None, True),
            (7, "ann", 2, 31 * DAY_S, True), (0, "root", 4, 300 * DAY_S, False)):
        for is_planned in (True, False):
            node.service.is_planned, node.service.is_local = is_planned, True
            run = Run(node, AskClaim(f"r{priority}{term_s}{is_planned}", is_run=True, gpus=1,
                                     priority=priority, term_s=term_s), uid, owner)
            node.requests.handle(run, run.claim, None)  # type: ignore[arg-type]
            settle(world)
            assert isinstance(run.replies[-1], ClaimRefused) is is_refused, (priority, is_planned)
            assert isinstance(run.replies[-1], Leased) is not is_refused
            run.leaves()
            settle(world)


def test_at_the_socket_none_extends_what_others_there_wait_for(world: World) -> None:
    node = world.nodes["n0"]
    run = Run(node, AskClaim("held", is_run=True, gpus=3, term_s=60.0), 7, "ann")
    node.requests.handle(run, run.claim, None)  # type: ignore[arg-type]
    settle(world)
    run.bind()
    ask = Extend("held", DAY_S)
    node.requests.handle(run, ask, None)  # type: ignore[arg-type]
    assert isinstance(run.replies[-1], Leased)
    for _ in range(40):
        node.requests.handle(run, ask, None)  # type: ignore[arg-type]
    assert isinstance(run.replies[-1], ClaimRefused)
    assert "30 days at most" in run.replies[-1].why
    until = node.service.leases.all["held"].until
    other = Run(node, AskClaim("b", is_run=True, gpus=1), 8, "bob")
    node.requests.handle(other, other.claim, None)  # type: ignore[arg-type]
    node.requests.handle(run, Extend("held", 60.0), None)  # type: ignore[arg-type]
    assert "others wait" in run.replies[-1].why
    assert node.service.leases.all["held"].until == until


def test_what_has_run_out_of_sight_is_not_simulated(
        world: World, asks: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.pool.policy.time", SimpleNamespace(
        time=lambda: world.machine.now))
    service = world.hub.service
    for number, host in enumerate(("n0", "n0", "n1")):
        lease_id = f"l{number}"
        service.claim(Claim(id=lease_id, owner=OWNER, gpus=1, submitted_at=0.0,
                            hosts=(host,)))
        settle(world)
        service.give_back(host, lease_id, "a test")
        settle(world)
    request = SimulationRequest(("pack",))
    counts = {group: asks("operator", group, asks.policy.simulate, request).claims
              for group in ("*", "prod", "lab", "elsewhere")}
    assert counts == {"*": 3, "prod": 2, "lab": 1, "elsewhere": 0}


def test_of_the_queue_out_of_sight_not_even_the_length_is_told(world: World, asks: Asker) -> None:
    service = world.hub.service
    for host, name, count in (("n0", "held", 1), ("n1", "other", 1), ("n0", "a", 5),
                              ("n1", "b", 2)):
        for number in range(count):
            service.claim(Claim(id=f"{name}{number}", owner=OWNER, gpus=3, submitted_at=0.0,
                                hosts=(host,)))
        settle(world)
    places = {group: [(view.id, view.place) for view in asks(
        "user", group, asks.api.claims, name="eve").items] for group in ("*", "lab")}
    assert [place for _, place in places["*"]] == [1, 2, 3, 4, 5, 6, 7]
    assert places["lab"] == [("b0", 1), ("b1", 2)]
