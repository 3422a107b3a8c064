"""The way of automatic acts to the nodes: the same as that of people's, from the preview on."""

from dataclasses import dataclass
from typing import Any

from gpudeck.acts import Condition, Params, Preview, Recall, Refusal, TaskAction

from .commander import Commander, Wire
from .core.commands import CommandRecord
from .looks import Looker
from .room import Room


@dataclass(frozen=True, slots=True)
class HubHands:
    room: Room
    looker: Looker
    commander: Commander
    wire: Wire

    def look(self, node_id: str, task_id: str, action: TaskAction, params: Params
             ) -> Preview | Refusal:
        refusal = self.room.fence.refusal(node_id, len(self.room.link_of))
        return refusal or self.looker.look(node_id, task_id, action, params, "rule")

    def order(self, record: CommandRecord, preview: Preview, condition: Condition | None,
              **fields: Any) -> CommandRecord:
        return self.commander.order(record, preview, None, condition, **fields)

    def recall(self, node_id: str, command_id: str, why: str) -> None:
        if not self.commander.withdraw(command_id, why):
            self.wire.tell(node_id, Recall(command_id, why[:1_024]))

    def find(self, command_id: str) -> CommandRecord | None:
        return self.commander.find(command_id)

    def acting(self) -> set[str]:
        return {record.node_id for record in self.commander.in_flight()
                if record.asker.kind == "rule" and record.action != "notify"}

    def sampled_mono(self, node_id: str) -> float | None:
        fleet, node = self.room.fleet, self.room.fleet.nodes.get(node_id)
        slots = [] if node is None or node.listing is None else node.listing.order
        return max((float(fleet.sampled_mono[slot]) for slot in slots), default=None)

    def nodes(self) -> int:
        """That are here: of a fleet that is half gone less is done."""
        return len(self.room.link_of)
