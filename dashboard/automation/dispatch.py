"""The way of automatic acts to the nodes: the same as that of people's, from the preview on."""

from dataclasses import dataclass
from typing import Any

from gpudeck.action_table import ShownAction
from gpudeck.actions import ActionParams, Preview, Recall, Refusal, RuleCondition
from gpudeck.rungs import no_such

from ..actions.commander import Commander, NodeConnections
from ..actions.lifecycle import CommandRecord
from ..actions.preview_requests import PreviewRequester
from ..fleet.state_machine import FleetStateMachine


@dataclass(frozen=True, slots=True)
class ActionDispatcher:
    machine: FleetStateMachine
    looker: PreviewRequester
    commander: Commander
    wire: NodeConnections

    def look(self, node_id: str, task_id: str, action: ShownAction, params: ActionParams
             ) -> Preview | Refusal:
        return (self.fenced(node_id) or self._unknown(node_id, action)
                or self.looker.look(node_id, task_id, action, params, "rule"))

    def _unknown(self, node_id: str, action: ShownAction) -> Refusal | None:
        """An agent of before this action could not even read the question."""
        node = self.machine.fleet.nodes.get(node_id)
        permitted = () if node is None else node.hello.actions
        return None if not permitted or action in permitted else no_such(action)

    def order(self, record: CommandRecord, preview: Preview, condition: RuleCondition | None,
              **fields: Any) -> CommandRecord:
        return self.commander.order(record, preview, None, condition, **fields)

    def recall(self, node_id: str, command_id: str, why: str) -> None:
        """What has not happened yet is not to happen."""
        if not self.commander.withdraw(command_id, why):
            self.wire.tell(node_id, Recall(command_id, why[:1_024]))

    def fenced(self, node_id: str) -> Refusal | None:
        """Another hub with this key has taken over: this one gives no orders, and says nothing."""
        return self.machine.fence.refusal(node_id, len(self.machine.link_of))

    def find(self, command_id: str) -> CommandRecord | None:
        return self.commander.find(command_id)

    def acting(self) -> set[str]:
        """Nodes with an action of a rule or quota in progress, also one from before a restart."""
        return {record.node_id for record in self.commander.in_flight()
                if record.asker.kind == "rule" and record.action != "notify"}

    def sampled_mono(self, node_id: str) -> float | None:
        """Of the newest sample of this node."""
        fleet, node = self.machine.fleet, self.machine.fleet.nodes.get(node_id)
        slots = [] if node is None or node.listing is None else node.listing.order
        return max((float(fleet.sampled_mono[slot]) for slot in slots), default=None)

    def nodes(self) -> int:
        """That are here: of a fleet that is half gone less is done."""
        return len(self.machine.link_of)
