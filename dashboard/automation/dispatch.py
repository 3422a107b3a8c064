"""The path of automatic actions to the nodes: the same as that of people's, from the preview on."""

from dataclasses import dataclass
from typing import Any

from gpudeck.contract.action_table import ShownAction
from gpudeck.contract.actions import ActionParams, Preview, Recall, Refusal, RuleCondition
from gpudeck.contract.rungs import no_such

from ..actions.commander import Commander, NodeConnections
from ..actions.lifecycle import CommandRecord
from ..actions.preview_requests import PreviewRequester
from ..fleet.state_machine import FleetStateMachine


@dataclass(frozen=True, slots=True)
class ActionDispatcher:
    machine: FleetStateMachine
    previewer: PreviewRequester
    commander: Commander
    wire: NodeConnections

    def preview(self, node_id: str, task_id: str, action: ShownAction, params: ActionParams
                ) -> Preview | Refusal:
        return (self.fence_refusal(node_id) or self._unsupported(node_id, action)
                or self.previewer.request(node_id, task_id, action, params, "rule"))

    def _unsupported(self, node_id: str, action: ShownAction) -> Refusal | None:
        """Refuse for an agent older than this action, which could not even read the request."""
        node = self.machine.fleet.nodes.get(node_id)
        permitted = () if node is None else node.permits
        return None if not permitted or action in permitted else no_such(action)

    def order(self, record: CommandRecord, preview: Preview, condition: RuleCondition | None,
              **fields: Any) -> CommandRecord:
        return self.commander.order(record, preview, None, condition, **fields)

    def recall(self, node_id: str, command_id: str, why: str) -> None:
        """Cancel a command that has not been carried out yet."""
        if not self.commander.withdraw(command_id, why):
            self.wire.send(node_id, Recall(command_id, why[:1_024]))

    def fence_refusal(self, node_id: str) -> Refusal | None:
        """Return a refusal if another hub with this key has taken over: this one orders nothing
        then, and notifies nobody."""
        return self.machine.fence.refusal(node_id, len(self.machine.link_of))

    def find(self, command_id: str) -> CommandRecord | None:
        return self.commander.find(command_id)

    def busy_nodes(self) -> set[str]:
        """Return nodes with an action of a rule or quota in progress, including those from before a
        restart."""
        return {record.node_id for record in self.commander.in_flight()
                if record.asker.kind == "rule" and record.action != "notify"}

    def sampled_mono(self, node_id: str) -> float | None:
        """Return the time of the newest sample of this node."""
        fleet, node = self.machine.fleet, self.machine.fleet.nodes.get(node_id)
        slots = [] if node is None or node.listing is None else node.listing.order
        return max((float(fleet.sampled_mono[slot]) for slot in slots), default=None)

    def node_count(self) -> int:
        """Return the number of connected nodes: in a fleet that is half gone, less is done."""
        return len(self.machine.link_of)
