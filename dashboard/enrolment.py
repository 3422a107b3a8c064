"""Which nodes belong here: how they come in, wait, are let in, and are turned out.

A node is its key. A token gives it a place, once; from then on its key alone speaks for it. Until
a node is approved, and from the moment it is revoked, nothing it says reaches the fleet.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpudeck.keys import Key, Token, fingerprint, is_signed, spaced
from gpudeck.wire import Challenge, Hello, Refused, enrolment_statement, node_statement

from .registry import Enrolment, Member, Registry

LASTS_S = 3_600.0
DEFAULT_GROUP = "default"
MAX_MEMBERS = 10_000
MAX_NAME = 128
# When a node that is turned away comes again: soon, while somebody is about to let it in.
WAITING_RETRY_S = 5.0
UNKNOWN_RETRY_S = 60.0
REVOKED_RETRY_S = 600.0


class CannotChange(Exception):
    """A condition does not hold; the sentence says which."""


class NoSuch(CannotChange):
    """There is none of that name."""


class Impostor(Exception):
    """Not the holder of the key that was shown."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A place for a node, before it has a number."""

    host: str | None = None
    approve: bool = False
    group: str = DEFAULT_GROUP


class Nodes:
    """Members are held in memory: a node that comes back costs no look at the disk."""

    def __init__(self, registry: Registry, hub_fingerprint: str) -> None:
        self._registry = registry
        self._hub = hub_fingerprint
        self._members = {member.node_id: member for member in registry.members()}
        self.on_revoke: list[Callable[[str], None]] = []

    def member(self, node_id: str) -> Member | None:
        return self._members.get(node_id)

    def members(self) -> list[Member]:
        return list(self._members.values())

    def group_of(self, node_id: str) -> str:
        member = self._members.get(node_id)
        return DEFAULT_GROUP if member is None else member.group

    # -- by people and programs

    def create(self, wanted: Wanted, by: str) -> tuple[Token, Enrolment]:
        [made] = create(self._registry, self._hub, [wanted], by)
        return made

    def enrolments(self) -> list[Enrolment]:
        return self._registry.enrolments()

    def withdraw(self, enrolment_id: str) -> None:
        if not self._registry.withdraw(enrolment_id):
            raise NoSuch(f"there is no unused enrolment {enrolment_id[:64]!r}")

    def approve(self, node_id: str, by: str) -> Member:
        member = self._known(node_id)
        if member.access == "revoked":
            raise CannotChange("this key was revoked and stays so; delete agent.key on the node "
                               "and enrol it again")
        return self._put(replace(member, access="approved", decided_by=by))

    def revoke(self, node_id: str, by: str) -> Member:
        member = self._put(replace(self._known(node_id), access="revoked", decided_by=by))
        for tell in self.on_revoke:
            tell(node_id)
        return member

    def put_in_group(self, node_id: str, group: str) -> Member:
        return self._put(replace(self._known(node_id), group=checked_name("group", group)))

    def _known(self, node_id: str) -> Member:
        member = self._members.get(node_id)
        if member is None:
            raise NoSuch(f"there is no node {node_id[:64]!r} here")
        return member

    def _put(self, member: Member) -> Member:
        self._registry.put(member)
        self._members[member.node_id] = member
        return member

    # -- by nodes

    def admit(self, challenge: Challenge, hello: Hello) -> Refused | None:
        """None: it is who it says and may speak. Raises Impostor."""
        prove(challenge, hello)
        member = self._members.get(hello.node_id)
        if member is None:
            try:
                member = self._enrol(challenge, hello)
            except CannotChange as why:
                return Refused(str(why), UNKNOWN_RETRY_S)
        if member.access == "revoked":
            return Refused("this node's key was revoked; to bring the node back, delete agent.key "
                           "in its data folder and enrol it again", REVOKED_RETRY_S)
        if member.access == "waiting":
            return Refused("an admin must approve this node; compare its fingerprint, "
                           f"{spaced(hello.node_id)}", WAITING_RETRY_S)
        return None

    def _enrol(self, challenge: Challenge, hello: Hello) -> Member:
        place = self._place(challenge, hello)
        member = Member(hello.node_id, hello.key, hello.host, place.group,
                        "waiting" if place.approve else "approved", time.time(), place.id)
        if not self._registry.use(place.id, member):
            raise CannotChange(USED)
        self._members[member.node_id] = member
        return member

    def _place(self, challenge: Challenge, hello: Hello) -> Enrolment:
        given = hello.enrolment
        if given is None:
            raise CannotChange("this hub does not know this node; run `gpudeck token create "
                               "agent` where the hub is, and start the agent once with that token")
        place = self._registry.enrolment(given.token_id)
        if place is None or not is_signed(place.key, enrolment_statement(challenge, hello),
                                          given.signature):
            raise CannotChange("this hub does not know the enrolment token; make a new one")
        if place.used_by is not None:
            raise CannotChange(USED)
        if time.time() >= place.expires_at:
            raise CannotChange("the enrolment token is older than an hour; make a new one")
        if place.host is not None and place.host != hello.host:
            raise CannotChange(f"the enrolment token is for the host {place.host!r}, and this one "
                               f"is called {hello.host!r}; make one for it, or use --host")
        if len(self._members) >= MAX_MEMBERS:
            raise CannotChange(f"this hub knows {MAX_MEMBERS} nodes and takes no more")
        return place


USED = "the enrolment token has been used already, and is good for one node; make a new one"


def prove(challenge: Challenge, hello: Hello) -> None:
    if hello.node_id != fingerprint(hello.key):
        raise Impostor("the node's id is not the fingerprint of its key")
    if not is_signed(hello.key, node_statement(challenge, hello), hello.signature):
        raise Impostor("the signature is not that of the node's key")


def create(registry: Registry, hub_fingerprint: str, wanted: list[Wanted], by: str
           ) -> list[tuple[Token, Enrolment]]:
    """Whoever can write the hub's folder may do this without a hub; see `gpudeck token`."""
    now = time.time()
    made = []
    for each in wanted:
        token = Token.new(hub_fingerprint)
        host = None if each.host is None else checked_name("host", each.host)
        made.append((token, Enrolment(
            token.id, Key(token.seed).public, host, each.approve,
            checked_name("group", each.group), now, by, now + LASTS_S)))
    if not registry.add((enrolment for _, enrolment in made), now):
        raise CannotChange("there are too many enrolments; withdraw some, or wait until they end")
    return made


def checked_name(what: str, name: str) -> str:
    if not name or len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
        raise CannotChange(f"a {what} is a name of 1 to {MAX_NAME} printable characters")
    return name


def command(url: str, token: Token) -> str:
    """The one line to paste on the node. In the environment, because arguments are public."""
    return f"GPUDECK_TOKEN={token.text} gpudeck agent --hub {url}"
