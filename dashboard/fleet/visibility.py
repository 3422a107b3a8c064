"""What one scope may see of a fleet: its nodes, its GPUs (renumbered) and whose commands.

Everything that is shown goes through a Lens, and nothing outside of it is named, counted or found.
"""

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..access.policy import Actor, Role, Scope
from .fleet import Fleet, Node

Slots = npt.NDArray[np.intp]
PROGRAM = re.compile(r"[\w.+-]{1,64}")


@dataclass(frozen=True, slots=True)
class CommandLineVisibility:
    """Whose command lines are read whole; of everyone else's, the program's name is all."""

    everyones: bool
    own: frozenset[str] = frozenset()

    def of_user(self, user: str | None) -> bool:
        return self.everyones or (user is not None and user in self.own)

    def line(self, user: str | None, command: str | None) -> str | None:
        return command if command is None or self.of_user(user) else program_of(command)


ALL_READ = CommandLineVisibility(True)


def program_of(command: str) -> str | None:
    """`/usr/bin/python train.py --key=…` is `python`. A title that a task gave itself may hold
    anything without a space, so what cannot be in a plain name ends it."""
    first = command.split(maxsplit=1)[:1]
    found = PROGRAM.match(first[0].rpartition("/")[2]) if first else None
    return None if found is None else found[0]


@dataclass(frozen=True, slots=True)
class VisibilityScope:
    """As much of an Actor as decides what they see: those with the same share every answer."""

    groups: tuple[str, ...]
    reads: CommandLineVisibility

    @classmethod
    def of(cls, actor: Actor) -> "VisibilityScope":
        sees_all = actor.role is not None and actor.role.covers(Role.OPERATOR)
        groups = ("*",) if "*" in actor.scope.groups else tuple(sorted(set(actor.scope.groups)))
        own = frozenset() if sees_all else frozenset(actor.scope.unix_names)
        return cls(groups, CommandLineVisibility(sees_all, own))


EVERYTHING_SEEN = VisibilityScope(("*",), ALL_READ)


@dataclass(slots=True)
class VisibleFleet:
    """A Sight on the fleet as it is now. `slots` are in ascending order, and new ones only come at
    the end while the epoch is the same."""

    sight: VisibilityScope
    epoch: int
    node_ids: list[str]
    slots: Slots
    is_whole: bool
    place_of: dict[str, int] = field(init=False)  # node id -> its number among those seen

    def __post_init__(self) -> None:
        self.place_of = {node_id: place for place, node_id in enumerate(self.node_ids)}

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def reads(self) -> CommandLineVisibility:
        return self.sight.reads

    @property
    def only(self) -> frozenset[str] | None:
        """Its nodes, as history is asked for them; None: all."""
        return None if self.is_whole else frozenset(self.place_of)

    def sees_node(self, node_id: str) -> bool:
        return node_id in self.place_of

    def ours(self, fleet: Fleet) -> "VisibleFleet":
        """Without what is of other sites."""
        if not fleet.sites:
            return self
        return VisibleFleet(
            self.sight, self.epoch, [each for each in self.node_ids if each in fleet.nodes],
            self.slots[~fleet.viewed[self.slots]], self.is_whole)

    def nodes(self, fleet: Fleet) -> list[Node]:
        return [fleet.known[node_id] for node_id in self.node_ids]


def focus(fleet: Fleet, sight: VisibilityScope) -> VisibleFleet:
    """Node groups may change, and slots then leave the middle; and a slot may become another GPU's.
    From there on it is another epoch, and the numbers of those of a part are unlike those of the
    whole fleet, so that they tell nothing of it."""
    if "*" in sight.groups:
        epoch = (fleet.epoch << 21) + 2 * fleet.hands
        return VisibleFleet(sight, epoch, list(fleet.node_ids), np.arange(len(fleet)), True)
    scope = Scope(sight.groups)
    seen = [scope.sees(fleet.group_of(node_id)) for node_id in fleet.node_ids]
    node_ids = [node_id for node_id, is_seen in zip(fleet.node_ids, seen, strict=True) if is_seen]
    at = fleet.node_at[: len(fleet)]
    slots = np.flatnonzero(np.array(seen, bool)[at]) if len(at) else np.arange(0)
    epoch = (fleet.epoch << 21) + 2 * (fleet.groups_version + fleet.hands) + 1
    return VisibleFleet(sight, epoch, node_ids, slots, False)


class VisibleFleetCache:
    """The one in force per Sight, rebuilt when the fleet or its groups have changed."""

    MOST = 256

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._made: dict[VisibilityScope, VisibleFleet] = {}
        self._made_of: tuple[int, int, int, int] = (-1, -1, -1, -1)

    def seen_by(self, actor: Actor) -> VisibleFleet:
        return self.of(VisibilityScope.of(actor))

    def of(self, sight: VisibilityScope) -> VisibleFleet:
        fleet = self._fleet
        now = (len(fleet), len(fleet.node_ids), fleet.groups_version, fleet.hands)
        if now != self._made_of or len(self._made) >= self.MOST:
            self._made, self._made_of = {}, now
        found = self._made.get(sight)
        if found is None:
            found = self._made[sight] = focus(self._fleet, sight)
        return found
