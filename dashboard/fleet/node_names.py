"""Node names in requests: a node goes by its id, or by its host name where no other has it."""

from dataclasses import dataclass
from typing import Protocol

from ..access.policy import Actor
from ..errors import InvalidChangeError
from .fleet import Fleet
from .members import EnrolledNode
from .visibility import VisibleFleetCache


class Membership(Protocol):
    def member(self, node_id: str) -> EnrolledNode | None: ...

    def members(self) -> list[EnrolledNode]: ...


@dataclass(frozen=True, slots=True)
class NodeNames:
    """Resolves host names among the enrolled nodes that the asker sees. A revoked node has given up
    its name."""

    fleet: Fleet
    visible_fleets: VisibleFleetCache
    membership: Membership

    def ids_named(self, actor: Actor, name: str) -> frozenset[str]:
        """Return the ids of the nodes of that id or host name. An id always means its own node."""
        visible = self.visible_fleets.seen_by(actor)
        if visible.sees_node(name):
            return frozenset((name,))
        matches = [node for node in visible.nodes(self.fleet)
                   if node.hello.host == name and self._is_enrolled(node.hello.node_id)]
        # A machine and its imported past, or another site's, may bear one name: ours is meant.
        machines = [node for node in matches if not node.is_imported and node.site is None]
        return frozenset(node.hello.node_id for node in machines or matches)

    def id_of(self, actor: Actor, name: str) -> str:
        """Return the id of a name; an unknown one as it is: the route that looks it up answers."""
        ids = sorted(self.ids_named(actor, name))
        if len(ids) > 1:
            raise InvalidChangeError(f"{len(ids)} nodes are called {name[:128]!r}; name one by "
                                     f"its id: {', '.join(ids)[:400]}")
        return ids[0] if ids else name

    def _is_enrolled(self, node_id: str) -> bool:
        member = self.membership.member(node_id)
        return member is None or member.access != "revoked"
