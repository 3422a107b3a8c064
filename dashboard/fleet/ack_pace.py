"""Pace of acknowledgements: where agents are many, each has one every other second. Pure."""

from .agent_messages import AgentLinkState, Effects
from .effects import SendMessage

# Below this the hub has time for an Ack a second each. An Ack says that all before it is on disk,
# so that one stands for several; until it comes the agent keeps a Frame or two more.
PACED_FROM = 100  # connected agents
ACK_EVERY_S = 1.5  # and records are stored each second


class AckPacer:
    """Connections whose Ack waits, by how they are known."""

    def __init__(self) -> None:
        self._waiting: dict[str, AgentLinkState] = {}

    def stored(self, link: AgentLinkState, is_awaited: bool, agents: int, mono: float) -> Effects:
        """Acknowledge what is on disk now, or let it wait. `is_awaited`: the agent brings more only
        when it has the Ack, as of an outage."""
        if (agents >= PACED_FROM and not is_awaited
                and mono - link.acked_mono < ACK_EVERY_S):
            self._waiting[link.at] = link
            return []
        self._waiting.pop(link.at, None)
        return _ack(link, mono)

    def forget(self, at: str) -> None:
        self._waiting.pop(at, None)

    def tick(self, mono: float) -> Effects:
        """Send those that have waited long enough: the node may never report again."""
        due = [link for link in self._waiting.values() if mono - link.acked_mono >= ACK_EVERY_S]
        for link in due:
            del self._waiting[link.at]
        return [effect for link in due for effect in _ack(link, mono)]


def _ack(link: AgentLinkState, mono: float) -> Effects:
    if (ack := link.received.new_ack()) is None:
        return []
    link.acked_mono = mono
    return [SendMessage(link.at, ack)]
