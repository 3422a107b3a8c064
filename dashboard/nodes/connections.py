"""Connections to the nodes, for all that send them something."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from gpudeck.contract.wire import Call, Challenge, FromHub

from ..fleet.state_machine import FleetStateMachine
from .socket import AgentEndpoint


class HubIdentity(Protocol):
    """The key by which nodes know this hub."""

    @property
    def fingerprint(self) -> str: ...

    def challenge(self, call: Call, hub_id: str) -> Challenge:
        """Prove the hub to a node; raise SignerUnavailableError."""


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """`confirm`: called before anything is sent; ends the process if that is forbidden."""

    machine: FleetStateMachine
    agents: AgentEndpoint
    confirm: Callable[[], None]

    def connected(self) -> Collection[str]:
        return self.machine.link_of

    def send(self, node_id: str, message: FromHub) -> bool:
        """Send to a node; return whether it is connected."""
        self.confirm()
        link = self.machine.link_of.get(node_id)
        if link is not None:
            self.agents.send(link, message)
        return link is not None

    def send_to_all(self, message: FromHub) -> None:
        self.confirm()
        for link in self.machine.link_of.values():
            self.agents.send(link, message)
