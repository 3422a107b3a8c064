"""Teams that the fair share goes by. Pure. The hub's table says who is in which, never a claim or a
node."""

from collections.abc import Callable, Collection, Iterable, Mapping

from gpudeck.pool.core.claims import Claim, Lease
from gpudeck.pool.core.fair_share import EndedUsage

from .node_words import told_groups
from .plan import PoolNode

TeamsOf = Callable[[Collection[str], Mapping[str, Collection[str]]], Mapping[str, str]]


def teams_now(nodes: Iterable[PoolNode], waiting: Iterable[Claim], leases: Iterable[Lease],
              past_usage: EndedUsage | None, teams_of: TeamsOf) -> Mapping[str, str]:
    """Return the teams of all who wait, hold or had something."""
    owners = {claim.owner for claim in waiting} | {lease.claim.owner for lease in leases}
    if past_usage is not None:
        owners.update(past_usage.owners)
    # Of whom no task was seen yet, or not since their groups changed.
    return teams_of(owners, told_groups(nodes))
