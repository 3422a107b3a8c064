"""GPUs that another node reports: a machine that was installed again is another node."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .fleet import Fleet, Node


def successor_of(fleet: "Fleet", slot: int) -> "Node | None":
    """Return another of our nodes that reports the GPU of a slot, or did so last; None: none
    does."""
    return next((node for other in fleet.slots_of_uuid(fleet.uuids[slot])
                 if fleet.node_at[other] != fleet.node_at[slot] and not fleet.retired[other]
                 and not fleet.viewed[other]
                 and not ((node := fleet.node_of(other)).state == "silent"
                          and fleet.moved[other])), None)


def mark_moved(fleet: "Fleet", node: "Node") -> None:
    """Mark the GPUs of a silent node that another node reports: a machine that was installed again
    is another node, and its GPUs are counted once."""
    if node.listing is not None:
        fleet.moved[node.listing.slots] = [
            node.state == "silent" and successor_of(fleet, slot) is not None
            for slot in node.listing.order]
