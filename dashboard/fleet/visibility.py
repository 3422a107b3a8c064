"""Visibility of a fleet in one scope: its nodes, its GPUs (renumbered) and whose commands.

Everything shown goes through a VisibleFleet; nothing outside of it is named, counted or found.
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
    """Owners whose command lines are read whole; of everyone else's, only the program's name."""

    everyones: bool
    own: frozenset[str] = frozenset()

    def of_user(self, user: str | None) -> bool:
        return self.everyones or (user is not None and user in self.own)

    def line(self, user: str | None, command: str | None) -> str | None:
        return command if command is None or self.of_user(user) else program_of(command)


ALL_READ = CommandLineVisibility(True)


def program_of(command: str) -> str | None:
    """Return `python` for `/usr/bin/python train.py --key=…`. A title that a task gave itself may
    hold anything without a space, so what cannot be in a plain name ends it."""
    first = command.split(maxsplit=1)[:1]
    match = PROGRAM.match(first[0].rpartition("/")[2]) if first else None
    return None if match is None else match[0]


@dataclass(frozen=True, slots=True)
class VisibilityScope:
    """The part of an Actor that decides what they see: equal ones share every answer."""

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
    """A VisibilityScope applied to the fleet as it is now. `slots` are in ascending order, and new
    ones only come at the end while the epoch is the same."""

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
        """Ids of its nodes, as queries of history take them; None: all."""
        return None if self.is_whole else frozenset(self.place_of)

    def sees_node(self, node_id: str) -> bool:
        return node_id in self.place_of

    def ours(self, fleet: Fleet) -> "VisibleFleet":
        """Return it without what is of other sites."""
        if not fleet.sites:
            return self
        return VisibleFleet(
            self.sight, self.epoch, [name for name in self.node_ids if name in fleet.nodes],
            self.slots[~fleet.viewed[self.slots]], self.is_whole)

    def nodes(self, fleet: Fleet, only: str | None = None) -> list[Node]:
        """Return its nodes, or the one with this id, if it is visible."""
        if only is not None:
            return [fleet.all_nodes[only]] if only in self.place_of else []
        return [fleet.all_nodes[node_id] for node_id in self.node_ids]


def focus(fleet: Fleet, sight: VisibilityScope) -> VisibleFleet:
    """Apply a scope. Node groups may change, and slots then leave the middle; and a slot may become
    another GPU's. From there on it is another epoch. Epochs of a part of the fleet are numbered
    unlike those of the whole, so that they tell nothing of it."""
    if "*" in sight.groups:
        epoch = (fleet.epoch << 21) + 2 * fleet.hands
        return VisibleFleet(sight, epoch, list(fleet.node_ids), np.arange(len(fleet)), True)
    scope = Scope(sight.groups)
    in_scope = [scope.sees(fleet.group_of(node_id)) for node_id in fleet.node_ids]
    node_ids = [node_id for node_id, is_in in zip(fleet.node_ids, in_scope, strict=True) if is_in]
    at = fleet.node_at[: len(fleet)]
    slots = np.flatnonzero(np.array(in_scope, bool)[at]) if len(at) else np.arange(0)
    epoch = (fleet.epoch << 21) + 2 * (fleet.groups_version + fleet.hands) + 1
    return VisibleFleet(sight, epoch, node_ids, slots, False)


class VisibleFleetCache:
    """The VisibleFleet of each scope, rebuilt when the fleet or its groups have changed."""

    MOST = 256

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._cache: dict[VisibilityScope, VisibleFleet] = {}
        self._cached_for: tuple[int, int, int, int] = (-1, -1, -1, -1)

    def seen_by(self, actor: Actor) -> VisibleFleet:
        return self.of(VisibilityScope.of(actor))

    def of(self, sight: VisibilityScope) -> VisibleFleet:
        fleet = self._fleet
        now = (len(fleet), len(fleet.node_ids), fleet.groups_version, fleet.hands)
        if now != self._cached_for or len(self._cache) >= self.MOST:
            self._cache, self._cached_for = {}, now
        visible = self._cache.get(sight)
        if visible is None:
            visible = self._cache[sight] = focus(self._fleet, sight)
        return visible
