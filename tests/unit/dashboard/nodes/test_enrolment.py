"""Who may come in: one service over one file, no socket."""

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
from dashboard.errors import InvalidChangeError, NotFoundError
from dashboard.fleet.fleet import Fleet, GpuStatus
from dashboard.fleet.host_lists import host_names
from dashboard.fleet.members import NewEnrolment
from dashboard.nodes.enrolment import USED, EnrolmentService, KeyProofError
from dashboard.nodes.events import GroupChanged, NodeRevoked
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck.keys import EnrolmentToken, fingerprint, spaced
from gpudeck.wire import Call, Challenge, Hello, Refused
from tests.integration.hubs import Caller
from tests.unit.fleets import MONO, NOW, add_node

ADMIN = Actor("person", "alice", Role.ADMIN, Scope(("*",)))


class Door:
    """A hub's door, and callers who come to it."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.folder = folder
        self.key = HubKey(folder)
        self.state = HubState.open(folder)
        self.reopen()

    def reopen(self) -> None:
        """As after a restart of the hub."""
        events = Dispatcher()
        self.nodes = EnrolmentService(self.state.registry, self.key.fingerprint,
                                      AuditRecorder(self.state.audit, None, events), events)
        self.revoked: list[str] = []
        self.groups: dict[str, str] = {}
        events.listen(NodeRevoked, lambda event: self.revoked.append(event.node_id))
        events.listen(GroupChanged,
                      lambda event: self.groups.__setitem__(event.node_id, event.group))

    def token(self, **wanted: Any) -> EnrolmentToken:
        token, _ = self.nodes.create(ADMIN, NewEnrolment(**wanted))
        return token

    def challenge(self, caller: Caller) -> Challenge:
        return self.key.challenge(caller.call, "hub", 1)

    def knock(self, caller: Caller, token: EnrolmentToken | None = None,
              address: str = "10.0.0.7") -> str:
        """Why not; nothing: in."""
        challenge = self.challenge(caller)
        refused = self.nodes.admit(challenge, caller.hello(challenge, token), address)
        return "" if refused is None else refused.reason


@pytest.fixture(name="door")
def _door(tmp_path: Path) -> Iterator[Door]:
    door = Door(tmp_path)
    yield door
    door.state.close()


def test_a_token_lets_one_node_in_and_its_key_does_from_then_on(door: Door) -> None:
    node, other = Caller("n1"), Caller("n2")
    assert "token create agent" in door.knock(node)
    token = door.token(group="lab")
    assert door.knock(node, token) == ""
    assert door.knock(node) == ""
    assert door.knock(node, token) == ""  # the same line pasted again
    assert door.knock(other, token) == USED
    assert door.groups == {node.node_id: "lab"}
    door.reopen()
    assert door.knock(node) == ""
    assert "token create agent" in door.knock(other)


def test_a_token_of_another_hub_or_made_up(door: Door, tmp_path_factory: pytest.TempPathFactory
                                           ) -> None:
    elsewhere = Door(tmp_path_factory.mktemp("hub"))
    token = door.token()
    for wrong in (elsewhere.token(), EnrolmentToken.new(token.hub),
                  EnrolmentToken(token.id, secrets.token_bytes(32), token.hub)):
        assert "does not know the enrolment token" in door.knock(Caller("n1"), wrong)
    assert door.knock(Caller("n1"), token) == ""
    elsewhere.state.close()


def test_a_token_lasts_an_hour(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    token, now = door.token(), time.time()
    monkeypatch.setattr("dashboard.nodes.enrolment.time.time", lambda: now + 3_601)
    assert "has expired" in door.knock(Caller("n1"), token)
    assert door.nodes.members() == []


def test_a_token_for_one_host(door: Door) -> None:
    token = door.token(host="node-7")
    assert "'node-7'" in door.knock(Caller("n1"), token)
    assert door.knock(Caller("n7", host="node-7"), token) == ""


def test_a_withdrawn_token_opens_nothing(door: Door) -> None:
    token = door.token()
    door.nodes.withdraw(ADMIN, token.id)
    assert "does not know the enrolment token" in door.knock(Caller("n1"), token)
    used = door.token()
    door.knock(Caller("n1"), used)
    for gone in (token.id, used.id, "x"):
        with pytest.raises(NotFoundError):
            door.nodes.withdraw(ADMIN, gone)


def test_nothing_at_rest_opens_the_door(door: Door) -> None:
    """Whoever reads the hub's disk finds no token: only public halves."""
    token = door.token()
    door.knock(Caller("n1"), door.token())
    held = b"".join(path.read_bytes() for path in door.folder.glob("state.db*"))
    assert token.seed not in held
    assert token.text.split(".")[2].encode() not in held
    assert Caller("n1").key.public in held


def test_a_node_that_waits_is_let_in_by_an_admin(door: Door) -> None:
    node = Caller("n1")
    said = door.knock(node, door.token(approve=True))
    assert "approve" in said
    assert said.replace(" ", "").endswith(node.node_id)
    assert "approve" in door.knock(node)
    assert "approve" in door.knock(node, door.token())  # a second token changes nothing
    assert door.nodes.approve(ADMIN, node.node_id).decided_by == "alice"
    assert door.knock(node) == ""


def test_a_revoked_key_stays_out(door: Door) -> None:
    node = Caller("n1")
    door.knock(node, door.token())
    door.nodes.revoke(ADMIN, node.node_id)
    assert door.revoked == [node.node_id]
    assert "revoked" in door.knock(node)
    assert "revoked" in door.knock(node, door.token())
    door.reopen()
    assert "revoked" in door.knock(node)
    with pytest.raises(InvalidChangeError, match="revoked"):
        door.nodes.approve(ADMIN, node.node_id)


def lie(hello: Hello, **changes: Any) -> Hello:
    return msgspec.structs.replace(hello, **changes)


def test_what_is_signed_cannot_be_changed(door: Door) -> None:
    """One agent with its own good key claims to be another, or changes what it signed."""
    mallory, victim = Caller("mallory"), Caller("victim")
    for each in (mallory, victim):
        assert door.knock(each, door.token()) == ""
    challenge = door.challenge(mallory)
    good = mallory.hello(challenge)
    stolen = victim.hello(door.challenge(victim))  # recorded from another connection
    for hello in (
        lie(good, node_id=victim.node_id),
        lie(good, key=victim.key.public, node_id=victim.node_id),
        lie(good, host="another"), lie(good, boot_id="another"), lie(good, stream="another"),
        lie(good, signature=bytes(64)), stolen,
        lie(good, key=victim.key.public), lie(stolen, signature=good.signature),
    ):
        with pytest.raises(KeyProofError):
            door.nodes.admit(challenge, hello, "")
    assert door.nodes.admit(challenge, good, "") is None
    with pytest.raises(KeyProofError):  # a nonce is for one connection
        door.nodes.admit(door.challenge(mallory), good, "")


def test_a_token_cannot_be_carried_to_another_key(door: Door) -> None:
    """Who sits between and reads a Hello with a token gains nothing by it."""
    token, node, thief = door.token(), Caller("n1"), Caller("thief")
    challenge = door.challenge(node)
    seen = node.hello(challenge, token)
    thief.call = node.call
    carried = lie(thief.hello(challenge), enrolment=seen.enrolment)
    refused = door.nodes.admit(challenge, carried, "")
    assert isinstance(refused, Refused)
    assert "does not know the enrolment token" in refused.reason
    assert door.knock(node, token) == ""


def test_the_hub_signs_for_one_call(door: Door) -> None:
    caller = Caller("n1")
    replayed = door.challenge(caller)
    caller.call = Call(secrets.token_bytes(32))
    with pytest.raises(AssertionError):
        caller.hello(replayed)
    assert fingerprint(replayed.hub_key) == door.key.fingerprint


@pytest.mark.parametrize("wanted", [
    NewEnrolment(host=""), NewEnrolment(host=" n1"), NewEnrolment(host="n\n1"),
    NewEnrolment(host="x" * 129),
    NewEnrolment(group=""), NewEnrolment(group="*"), NewEnrolment(group="a b"),
    NewEnrolment(group="x" * 65)])
def test_names_that_are_none(door: Door, wanted: NewEnrolment) -> None:
    with pytest.raises(InvalidChangeError):
        door.nodes.create(ADMIN, wanted)
    assert door.nodes.enrolments(ADMIN) == []


@pytest.mark.parametrize("role", [Role.VIEWER, Role.USER, Role.OPERATOR])
def test_the_service_itself_asks_who_it_is(door: Door, role: Role) -> None:
    node = Caller("n1")
    door.knock(node, door.token())
    actor = Actor("person", "bob", role, Scope(("*",)))
    for attempt in (
        lambda: door.nodes.enrolments(actor), lambda: door.nodes.create(actor, NewEnrolment()),
        lambda: door.nodes.withdraw(actor, "x"), lambda: door.nodes.approve(actor, node.node_id),
        lambda: door.nodes.revoke(actor, node.node_id),
        lambda: door.nodes.approve_all(actor, [node.node_id]),
        lambda: door.nodes.put_in_group(actor, node.node_id, "lab"),
    ):
        with pytest.raises(policy.RefusedError):
            attempt()
    assert door.knock(node) == ""


def test_one_token_lets_in_as_many_as_it_says_and_no_more(door: Door) -> None:
    token = door.token(uses=3, lasts_s=7 * 86_400)
    nodes = [Caller(f"n{number}") for number in range(4)]
    assert [door.knock(node, token) for node in nodes] == ["", "", "", USED]
    door.reopen()
    assert [door.knock(node) for node in nodes[:3]] == [""] * 3, "by their own keys now"
    [shown] = door.nodes.enrolments(ADMIN)
    assert (shown.uses, shown.used, shown.used_by) == (3, 3, nodes[2].node_id)


def test_what_is_left_of_a_token_is_withdrawn(door: Door) -> None:
    token = door.token(uses=3)
    assert door.knock(Caller("n1"), token) == ""
    door.nodes.withdraw(ADMIN, token.id)
    assert "does not know the enrolment token" in door.knock(Caller("n2"), token)


def test_a_list_of_hosts_lets_in_these_and_as_many(door: Door) -> None:
    token = door.token(host="gpu[08-10],login1")
    assert "is for the host" in door.knock(Caller("n1", host="gpu8"), token)
    for host in ("gpu08", "gpu10", "login1", "gpu09"):
        assert door.knock(Caller(f"of {host}", host=host), token) == "", host
    assert door.knock(Caller("again", host="gpu08"), token) == USED


def test_a_token_for_a_network_lets_in_nobody_from_elsewhere(door: Door) -> None:
    token = door.token(networks="10.0.0.0/8,192.0.2.7", uses=2)
    assert "comes from 192.0.2.8" in door.knock(Caller("n1"), token, "192.0.2.8")
    assert "comes from " in door.knock(Caller("n1"), token, "")
    assert door.knock(Caller("n1"), token, "192.0.2.7") == ""
    assert door.knock(Caller("n2"), token, "10.200.0.1") == ""


@pytest.mark.parametrize(("wanted", "says"), [
    ({"networks": "10.0.0.1/8"}, "host bits"), ({"host": "gpu[1-"}, "not a list of hosts"),
    ({"host": "gpu[9-1]"}, "not a range"), ({"host": "gpu[1-99999]"}, "10,000 hosts at most"),
    ({"host": "gpu[1-999][1-999]"}, "10,000 hosts at most"), ({"host": " "}, "not a host name"),
    ({"host": "a\nb"}, "not a host name")])
def test_what_cannot_be_meant_is_refused(wanted: dict[str, str], says: str) -> None:
    assert says in (NewEnrolment(**wanted).flaw() or "")  # type: ignore[arg-type]


def test_lists_of_hosts_are_read_as_slurm_reads_them() -> None:
    assert host_names("gpu[01-03,7],login1") == ("gpu01", "gpu02", "gpu03", "gpu7", "login1")
    assert host_names("r[1-2]n[08-10]-x") == (
        "r1n08-x", "r1n09-x", "r1n10-x", "r2n08-x", "r2n09-x", "r2n10-x")
    assert host_names("a,a,b") == ("a", "b")


def test_a_list_approves_those_that_wait_and_no_other(door: Door) -> None:
    token = door.token(approve=True, uses=3)
    waits, revoked, other = Caller("n1"), Caller("n2"), Caller("n3")
    for node in (waits, revoked, other):
        door.knock(node, token)
    door.nodes.revoke(ADMIN, revoked.node_id)
    found = door.nodes.approve_all(ADMIN, [
        spaced(waits.node_id).upper(), revoked.node_id, other.node_id[:16], "x"])
    assert [each.outcome for each in found] == ["approved", "revoked", "unknown", "unknown"]
    members = [door.nodes.member(each.node_id) for each in (waits, revoked, other)]
    assert [each and each.access for each in members] == ["approved", "revoked", "waiting"]
    assert door.nodes.approve_all(ADMIN, [waits.node_id])[0].outcome == "already"


def test_who_was_revoked_before_a_restart_is_not_there_after_it(door: Door) -> None:
    gone, there = Caller("gone"), Caller("there")
    for caller in (gone, there):
        assert door.knock(caller, door.token(group="lab")) == ""
    door.nodes.revoke(ADMIN, gone.node_id)
    door.reopen()
    fleet = Fleet(1)
    for caller in (gone, there):  # its disk tells of both
        add_node(fleet, caller.node_id)
    door.nodes.apply_to(fleet, NOW)
    assert {node_id: node.is_dismissed for node_id, node in fleet.nodes.items()} == {
        gone.node_id: True, there.node_id: False}
    assert fleet.shown(MONO).tolist().count(GpuStatus.RETIRED) == 2
    assert {fleet.group_of(each.node_id) for each in (gone, there)} == {"lab"}
