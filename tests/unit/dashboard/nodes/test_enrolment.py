"""Admission of nodes: one service over one file, no socket."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dashboard.access import policy
from dashboard.access.policy import Actor, Role, Scope
from dashboard.actions.hub_key import HubKey
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditStore
from dashboard.errors import InvalidChangeError, NotFoundError
from dashboard.fleet.fleet import Fleet, GpuStatus
from dashboard.fleet.host_lists import host_names
from dashboard.fleet.members import NewEnrolment
from dashboard.nodes.enrolment import USED, EnrolmentService, KeyProofError
from dashboard.nodes.events import GroupChanged, NodeRevoked
from dashboard.nodes.store import NodeStore
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck.contract.wire import Call, Challenge, Hello, Refused
from gpudeck.network.keys import EnrolmentToken, fingerprint, spaced
from tests.integration.hubs import Caller
from tests.unit.fleets import MONO, NOW, add_node

ADMIN = Actor("person", "alice", Role.ADMIN, Scope(("*",)))


class AdmittingHub:
    """Hub that admits nodes, without a socket."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.folder = folder
        self.key = HubKey(folder)
        self.state = HubState.open(folder)
        self.reopen()

    def reopen(self) -> None:
        """Build the service again, as a restart of the hub does."""
        events = Dispatcher()
        audit = AuditRecorder(self.state.store(AuditStore), None, events)
        self.nodes = EnrolmentService(self.state.store(NodeStore), self.key.fingerprint, audit,
                                      events)
        self.revoked: list[str] = []
        self.groups: dict[str, str] = {}
        events.listen(NodeRevoked, lambda event: self.revoked.append(event.node_id))
        events.listen(GroupChanged,
                      lambda event: self.groups.__setitem__(event.node_id, event.group))

    def token(self, **fields: Any) -> EnrolmentToken:
        token, _ = self.nodes.create(ADMIN, NewEnrolment(**fields))
        return token

    def challenge(self, caller: Caller) -> Challenge:
        return self.key.challenge(caller.call, "hub", 1)

    def connect(self, caller: Caller, token: EnrolmentToken | None = None,
                address: str = "10.0.0.7") -> str:
        """Let a caller connect; return why it is refused, or an empty text."""
        challenge = self.challenge(caller)
        refusal = self.nodes.admit(challenge, caller.hello(challenge, token), address)
        return "" if refusal is None else refusal.reason


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[AdmittingHub]:
    hub = AdmittingHub(tmp_path)
    yield hub
    hub.state.close()


def test_a_token_lets_one_node_in_and_its_key_does_from_then_on(hub: AdmittingHub) -> None:
    node, other = Caller("n1"), Caller("n2")
    assert "token create agent" in hub.connect(node)
    token = hub.token(group="lab")
    assert hub.connect(node, token) == ""
    assert hub.connect(node) == ""
    assert hub.connect(node, token) == ""  # the same line pasted again
    assert hub.connect(other, token) == USED
    assert hub.groups == {node.node_id: "lab"}
    hub.reopen()
    assert hub.connect(node) == ""
    assert "token create agent" in hub.connect(other)


def test_a_token_of_another_hub_or_made_up(
        hub: AdmittingHub, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = AdmittingHub(tmp_path_factory.mktemp("hub"))
    token = hub.token()
    for wrong in (elsewhere.token(), EnrolmentToken.new(token.hub),
                  EnrolmentToken(token.id, secrets.token_bytes(32), token.hub)):
        assert "does not know the enrolment token" in hub.connect(Caller("n1"), wrong)
    assert hub.connect(Caller("n1"), token) == ""
    elsewhere.state.close()


def test_a_token_lasts_an_hour(hub: AdmittingHub, monkeypatch: pytest.MonkeyPatch) -> None:
    token, now = hub.token(), time.time()
    monkeypatch.setattr("dashboard.nodes.enrolment.time.time", lambda: now + 3_601)
    assert "has expired" in hub.connect(Caller("n1"), token)
    assert hub.nodes.members() == []


def test_a_token_for_one_host(hub: AdmittingHub) -> None:
    token = hub.token(host="node-7")
    assert "'node-7'" in hub.connect(Caller("n1"), token)
    assert hub.connect(Caller("n7", host="node-7"), token) == ""


def test_a_withdrawn_token_opens_nothing(hub: AdmittingHub) -> None:
    token = hub.token()
    hub.nodes.withdraw(ADMIN, token.id)
    assert "does not know the enrolment token" in hub.connect(Caller("n1"), token)
    used_token = hub.token()
    hub.connect(Caller("n1"), used_token)
    for token_id in (token.id, used_token.id, "x"):
        with pytest.raises(NotFoundError):
            hub.nodes.withdraw(ADMIN, token_id)


def test_nothing_at_rest_opens_the_door(hub: AdmittingHub) -> None:
    """A reader of the hub's disk finds no token: only public halves."""
    token = hub.token()
    hub.connect(Caller("n1"), hub.token())
    on_disk = b"".join(path.read_bytes() for path in hub.folder.glob("state.db*"))
    assert token.seed not in on_disk
    assert token.text.split(".")[2].encode() not in on_disk
    assert Caller("n1").key.public in on_disk


def test_a_node_that_waits_is_let_in_by_an_admin(hub: AdmittingHub) -> None:
    node = Caller("n1")
    message = hub.connect(node, hub.token(approve=True))
    assert "approve" in message
    assert message.replace(" ", "").endswith(node.node_id)
    assert "approve" in hub.connect(node)
    assert "approve" in hub.connect(node, hub.token())  # a second token changes nothing
    assert hub.nodes.approve(ADMIN, node.node_id).decided_by == "alice"
    assert hub.connect(node) == ""


def test_a_revoked_key_stays_out(hub: AdmittingHub) -> None:
    node = Caller("n1")
    hub.connect(node, hub.token())
    hub.nodes.revoke(ADMIN, node.node_id)
    assert hub.revoked == [node.node_id]
    assert "revoked" in hub.connect(node)
    assert "revoked" in hub.connect(node, hub.token())
    hub.reopen()
    assert "revoked" in hub.connect(node)
    with pytest.raises(InvalidChangeError, match="revoked"):
        hub.nodes.approve(ADMIN, node.node_id)


def lie(hello: Hello, **changes: Any) -> Hello:
    return msgspec.structs.replace(hello, **changes)


def test_what_is_signed_cannot_be_changed(hub: AdmittingHub) -> None:
    """An agent with its own good key claims to be another, or changes what it signed."""
    mallory, victim = Caller("mallory"), Caller("victim")
    for caller in (mallory, victim):
        assert hub.connect(caller, hub.token()) == ""
    challenge = hub.challenge(mallory)
    good = mallory.hello(challenge)
    stolen = victim.hello(hub.challenge(victim))  # recorded from another connection
    for hello in (
        lie(good, node_id=victim.node_id),
        lie(good, key=victim.key.public, node_id=victim.node_id),
        lie(good, host="another"), lie(good, boot_id="another"), lie(good, stream="another"),
        lie(good, signature=bytes(64)), stolen,
        lie(good, key=victim.key.public), lie(stolen, signature=good.signature),
    ):
        with pytest.raises(KeyProofError):
            hub.nodes.admit(challenge, hello, "")
    assert hub.nodes.admit(challenge, good, "") is None
    with pytest.raises(KeyProofError):  # a nonce is for one connection
        hub.nodes.admit(hub.challenge(mallory), good, "")


def test_a_token_cannot_be_carried_to_another_key(hub: AdmittingHub) -> None:
    """A reader in between who sees a Hello with a token gains nothing by it."""
    token, node, thief = hub.token(), Caller("n1"), Caller("thief")
    challenge = hub.challenge(node)
    hello = node.hello(challenge, token)
    thief.call = node.call
    carried = lie(thief.hello(challenge), enrolment=hello.enrolment)
    refusal = hub.nodes.admit(challenge, carried, "")
    assert isinstance(refusal, Refused)
    assert "does not know the enrolment token" in refusal.reason
    assert hub.connect(node, token) == ""


def test_the_hub_signs_for_one_call(hub: AdmittingHub) -> None:
    caller = Caller("n1")
    replayed = hub.challenge(caller)
    caller.call = Call(secrets.token_bytes(32))
    with pytest.raises(AssertionError):
        caller.hello(replayed)
    assert fingerprint(replayed.hub_key) == hub.key.fingerprint


@pytest.mark.parametrize("enrolment", [
    NewEnrolment(host=""), NewEnrolment(host=" n1"), NewEnrolment(host="n\n1"),
    NewEnrolment(host="x" * 129),
    NewEnrolment(group=""), NewEnrolment(group="*"), NewEnrolment(group="a b"),
    NewEnrolment(group="x" * 65)])
def test_names_that_are_none(hub: AdmittingHub, enrolment: NewEnrolment) -> None:
    with pytest.raises(InvalidChangeError):
        hub.nodes.create(ADMIN, enrolment)
    assert hub.nodes.enrolments(ADMIN) == []


@pytest.mark.parametrize("role", [Role.VIEWER, Role.USER, Role.OPERATOR])
def test_the_service_itself_asks_who_it_is(hub: AdmittingHub, role: Role) -> None:
    node = Caller("n1")
    hub.connect(node, hub.token())
    actor = Actor("person", "bob", role, Scope(("*",)))
    for attempt in (
        lambda: hub.nodes.enrolments(actor), lambda: hub.nodes.enrolment(actor, "x"),
        lambda: hub.nodes.create(actor, NewEnrolment()), lambda: hub.nodes.withdraw(actor, "x"),
        lambda: hub.nodes.approve(actor, node.node_id),
        lambda: hub.nodes.revoke(actor, node.node_id),
        lambda: hub.nodes.approve_all(actor, [node.node_id]),
        lambda: hub.nodes.put_in_group(actor, node.node_id, "lab"),
    ):
        with pytest.raises(policy.RefusedError):
            attempt()
    assert hub.connect(node) == ""


def test_one_token_lets_in_as_many_as_it_says_and_no_more(hub: AdmittingHub) -> None:
    token = hub.token(uses=3, lasts_s=7 * 86_400)
    nodes = [Caller(f"n{number}") for number in range(4)]
    assert [hub.connect(node, token) for node in nodes] == ["", "", "", USED]
    hub.reopen()
    assert [hub.connect(node) for node in nodes[:3]] == [""] * 3, "by their own keys now"
    [enrolment] = hub.nodes.enrolments(ADMIN)
    assert (enrolment.uses, enrolment.used, enrolment.used_by) == (3, 3, nodes[2].node_id)


def test_what_is_left_of_a_token_is_withdrawn(hub: AdmittingHub) -> None:
    token = hub.token(uses=3)
    assert hub.connect(Caller("n1"), token) == ""
    hub.nodes.withdraw(ADMIN, token.id)
    assert "does not know the enrolment token" in hub.connect(Caller("n2"), token)


def test_a_list_of_hosts_lets_in_these_and_as_many(hub: AdmittingHub) -> None:
    token = hub.token(host="gpu[08-10],login1")
    assert "is for the host" in hub.connect(Caller("n1", host="gpu8"), token)
    for host in ("gpu08", "gpu10", "login1", "gpu09"):
        assert hub.connect(Caller(f"of {host}", host=host), token) == "", host
    assert hub.connect(Caller("again", host="gpu08"), token) == USED


def test_a_token_for_a_network_lets_in_nobody_from_elsewhere(hub: AdmittingHub) -> None:
    token = hub.token(networks="10.0.0.0/8,192.0.2.7", uses=2)
    assert "comes from 192.0.2.8" in hub.connect(Caller("n1"), token, "192.0.2.8")
    assert "comes from " in hub.connect(Caller("n1"), token, "")
    assert hub.connect(Caller("n1"), token, "192.0.2.7") == ""
    assert hub.connect(Caller("n2"), token, "10.200.0.1") == ""


@pytest.mark.parametrize(("fields", "says"), [
    ({"networks": "10.0.0.1/8"}, "host bits"), ({"host": "gpu[1-"}, "not a list of hosts"),
    ({"host": "gpu[9-1]"}, "not a range"), ({"host": "gpu[1-99999]"}, "10,000 hosts at most"),
    ({"host": "gpu[1-999][1-999]"}, "10,000 hosts at most"), ({"host": " "}, "not a host name"),
    ({"host": "a\nb"}, "not a host name")])
def test_what_cannot_be_meant_is_refused(fields: dict[str, str], says: str) -> None:
    assert says in (NewEnrolment(**fields).flaw() or "")  # type: ignore[arg-type]


def test_lists_of_hosts_are_read_as_slurm_reads_them() -> None:
    assert host_names("gpu[01-03,7],login1") == ("gpu01", "gpu02", "gpu03", "gpu7", "login1")
    assert host_names("r[1-2]n[08-10]-x") == (
        "r1n08-x", "r1n09-x", "r1n10-x", "r2n08-x", "r2n09-x", "r2n10-x")
    assert host_names("a,a,b") == ("a", "b")


def test_a_list_approves_those_that_wait_and_no_other(hub: AdmittingHub) -> None:
    token = hub.token(approve=True, uses=3)
    waits, revoked, other = Caller("n1"), Caller("n2"), Caller("n3")
    for node in (waits, revoked, other):
        hub.connect(node, token)
    hub.nodes.revoke(ADMIN, revoked.node_id)
    answers = hub.nodes.approve_all(ADMIN, [
        spaced(waits.node_id).upper(), revoked.node_id, other.node_id[:16], "x"])
    assert [answer.outcome for answer in answers] == ["approved", "revoked", "unknown", "unknown"]
    members = [hub.nodes.member(caller.node_id) for caller in (waits, revoked, other)]
    assert [member and member.access for member in members] == ["approved", "revoked", "waiting"]
    assert hub.nodes.approve_all(ADMIN, [waits.node_id])[0].outcome == "already"


def test_who_was_revoked_before_a_restart_is_not_there_after_it(hub: AdmittingHub) -> None:
    revoked, there = Caller("gone"), Caller("there")
    for caller in (revoked, there):
        assert hub.connect(caller, hub.token(group="lab")) == ""
    hub.nodes.revoke(ADMIN, revoked.node_id)
    hub.reopen()
    fleet = Fleet(1)
    for caller in (revoked, there):  # its disk tells of both
        add_node(fleet, caller.node_id)
    hub.nodes.apply_to(fleet, NOW)
    assert {node_id: node.is_dismissed for node_id, node in fleet.nodes.items()} == {
        revoked.node_id: True, there.node_id: False}
    assert fleet.statuses(MONO).tolist().count(GpuStatus.RETIRED) == 2
    assert {fleet.group_of(caller.node_id) for caller in (revoked, there)} == {"lab"}
