"""Two hubs with one key: at most one of them gives orders. Pure.

Each start of a hub is an epoch. Nodes keep the highest that they were welcomed in, refuse commands
of a lower one, and say it in Hello. A hub restored from a backup learns by that how far behind it
is and goes ahead; a superseded one learns it too, and stops.

A node may lie. One alone cannot stop this hub's orders to the others: of a fleet, more than half of
those that are connected must have seen a higher epoch.
"""

from dataclasses import dataclass, field

from gpudeck.contract.actions import Refusal

SETTLING_S = 60.0


@dataclass(slots=True)
class EpochFence:
    epoch: int
    started_mono: float = 0.0
    has_issued: bool = False  # a command, in this run
    met_nodes: set[str] = field(default_factory=set)  # nodes that have greeted us in this run
    claims: dict[str, int] = field(default_factory=dict)  # node -> an epoch above ours it has seen

    def hello(self, node_id: str, node_epoch: int, mono: float) -> int | None:
        """Return the epoch to go to before this node is welcomed, or None to stay."""
        self.claims.pop(node_id, None)
        # Our epoch began with this run. A node that was not here yet has it from somebody else, who
        # started as often: a copy of our data folder.
        least_foreign = self.epoch + (node_id in self.met_nodes)
        is_higher = least_foreign <= node_epoch <= self.epoch + MAX_EPOCH_JUMP
        is_settling = not self.met_nodes or mono < self.started_mono + SETTLING_S
        self.met_nodes.add(node_id)
        if not is_higher:
            return None
        if self.has_issued or not is_settling:
            self.claims[node_id] = node_epoch
            return None
        self.epoch = node_epoch + 1
        self.claims = {node: claim for node, claim in self.claims.items() if claim > self.epoch}
        return self.epoch

    @property
    def seen(self) -> int:
        """Epoch from which the next start has to count."""
        return max(self.claims.values(), default=self.epoch)

    def is_superseded(self, connected: int) -> bool:
        return bool(self.claims) and 2 * len(self.claims) > connected

    def refusal(self, node_id: str, connected: int) -> Refusal | None:
        if self.is_superseded(connected):
            return Refusal("fence", "another hub with this key has taken over, so this one sends "
                           "no commands; restart this one to take over again")
        if node_id in self.claims:
            return Refusal("fence", "this node has since accepted commands from another hub with "
                           "this key; restart this hub to take over again")
        return None


# A hub that was restored from a backup may be behind by as many starts; more than this is no
# backup but a lie, and would use up what epochs there are.
MAX_EPOCH_JUMP = 1_000_000
