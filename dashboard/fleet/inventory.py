"""Nodes and GPUs that one scope may see, for the routes of history."""

from dataclasses import dataclass

from ..history.reads.protocol import Nodes
from .fleet import Fleet
from .visibility import VisibleFleet

BEHIND = 60  # messages that wait at a node: more than a minute of them


@dataclass(frozen=True, slots=True)
class FleetInventory:
    fleet: Fleet
    visible: VisibleFleet

    @property
    def nodes(self) -> Nodes:
        return self.visible.only

    def has(self, gpu: str) -> bool:
        return self.fleet.find(gpu, self.visible.place_of) is not None

    def place(self, gpu: str) -> tuple[str | None, str | None]:
        slot = self.fleet.find(gpu, self.visible.place_of)
        if slot is None:
            return None, None
        return self.fleet.node_of(slot).hello.host, self.fleet.facts[slot].place

    def gpus(self) -> list[tuple[str, str]]:
        fleet = self.fleet
        return [(fleet.uuids[slot], fleet.node_ids[fleet.node_at[slot]])
                for slot in self.visible.slots.tolist() if not fleet.retired[slot]]

    def gpus_of(self, node_id: str) -> list[str] | None:
        node = self.fleet.nodes.get(node_id)
        if node is None or not self.visible.sees_node(node_id):
            return None
        return sorted(self.fleet.uuids[slot] for slot in self.visible.slots.tolist()
                      if self.fleet.node_of(slot) is node)

    def hosts(self) -> dict[str, str]:
        return {node.hello.node_id: node.hello.host for node in self.visible.nodes(self.fleet)}

    def gpu_names(self) -> dict[str, str]:
        fleet = self.fleet
        return {fleet.uuids[slot]:
                f"{fleet.node_of(slot).hello.host}:{fleet.facts[slot].place}"
                for slot in self.visible.slots.tolist()}

    def line(self, user: str | None, command: str | None) -> str | None:
        return self.visible.reads.line(user, command)

    def models(self) -> dict[str, str]:
        fleet = self.fleet
        return {fleet.uuids[slot]: fleet.facts[slot].name for slot in self.visible.slots.tolist()}

    def backfilling(self) -> int:
        return sum(node.connected and node.beat is not None and node.beat.pending > BEHIND
                   for node in self.visible.nodes(self.fleet))
