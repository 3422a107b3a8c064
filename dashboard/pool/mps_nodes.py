"""Nodes where nothing holds the share of a GPU that a claim asks for: it would be all of it. Pure.

A node checks the claims of its own users itself, unless it leaves that to its hub.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from gpudeck.limits import LimitsNow
from gpudeck.pool.core.claims import Claim

from .plan import PoolNode

ROOT = "root"
HOSTS_MOST = 4


class ToldNode(Protocol):
    @property
    def limits(self) -> LimitsNow | None: ...


def without_mps(waiting: Iterable[Claim], nodes: Collection[PoolNode],
                told: Mapping[str, ToldNode]) -> dict[str, frozenset[str]]:
    """Claim to the nodes where no MPS that serves its owner was seen."""
    shares = [each for each in waiting if each.is_share]
    if not shares:  # thousands of claims as a rule, and none of these
        return {}
    by_themselves = {each.claim.id for node in nodes for each in node.report.claims
                     if each.limits_itself is not False}
    users = {node.id: mps_users(told.get(node.id)) for node in nodes}
    return {claim.id: frozenset(node_id for node_id, serves in users.items()
                                if serves.isdisjoint((claim.owner, ROOT)))
            for claim in shares if claim.id not in by_themselves}


def mps_users(node: ToldNode | None) -> frozenset[str]:
    """Whose control daemons answer there; that of root serves everybody."""
    limits = None if node is None else node.limits
    return frozenset() if limits is None else frozenset(
        each.user for each in limits.daemons if each.is_alive and each.user is not None)


def notes(waiting: Iterable[Claim], nodes: Collection[PoolNode],
          closed: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Of claims that have no node left, for their owners."""
    found = {}
    for claim in waiting:
        there = [node for node in nodes if not claim.hosts
                 or not {node.id, node.host}.isdisjoint(claim.hosts)]
        if there and claim.id in closed and all(node.id in closed[claim.id] for node in there):
            hosts = sorted(node.host for node in there)
            more = f" and {len(hosts) - HOSTS_MOST} more" if len(hosts) > HOSTS_MOST else ""
            found[claim.id] = (
                f"no MPS for {claim.owner} on {', '.join(hosts[:HOSTS_MOST])}{more}, and without "
                "it a share would be the whole GPU: start it there with gpudeck mps start")
    return found
