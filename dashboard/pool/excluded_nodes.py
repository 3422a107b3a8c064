"""Nodes that are not asked to take a claim: nothing there holds the share of a GPU that it asks
for, which would be all of it, or counts the CPUs and the memory. Pure.

A node checks the claims of its own users itself, unless it leaves that to its hub.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gpudeck.contract.limits import LimitsNow
from gpudeck.pool.core.claims import Claim

if TYPE_CHECKING:
    from .plan import PoolNode

ROOT = "root"
HOSTS_MOST = 4
COUNTED_SINCE = "0.2"
NO_NODE: frozenset[str] = frozenset()


class ReportingNode(Protocol):
    @property
    def limits(self) -> LimitsNow | None: ...


@dataclass(frozen=True, slots=True)
class ExcludedNodes:
    """Nodes that are excluded from one claim. `uncounted`: nodes that do not say how much they have
    of what it asks for."""

    without_mps: frozenset[str] = NO_NODE
    uncounted: frozenset[str] = NO_NODE

    def __bool__(self) -> bool:
        return bool(self.without_mps or self.uncounted)

    @property
    def nodes(self) -> frozenset[str]:
        return self.without_mps | self.uncounted

    def words(self, claim: Claim, there: Iterable["PoolNode"]) -> str:
        """Describe them for the owner of the claim. `there`: nodes that it may go to."""
        there = list(there)
        parts = []
        if nodes := [node for node in there if node.id in self.without_mps]:
            parts.append(f"no MPS for {claim.owner} on {hosts_words(nodes)}, and without it a "
                         "share would be the whole GPU: start it there with gpudeck mps start")
        if nodes := [node for node in there if node.id in self.uncounted]:
            parts.append(f"{_uncounted_words(claim, nodes)} not counted on {hosts_words(nodes)}: "
                         f"the agent there is older than {COUNTED_SINCE}, or has just started")
        return "; ".join(parts)


NONE_EXCLUDED = ExcludedNodes()


def excluded_nodes(waiting: Iterable[Claim], nodes: Collection["PoolNode"],
                   reports: Mapping[str, ReportingNode]) -> dict[str, ExcludedNodes]:
    """Return the excluded nodes by claim, without claims that may go to every node. Thousands of
    claims as a rule."""
    without_mps, uncounted = _without_mps(waiting, nodes, reports), uncounting_nodes(waiting, nodes)
    return {claim_id: ExcludedNodes(without_mps.get(claim_id, NO_NODE),
                                    uncounted.get(claim_id, NO_NODE))
            for claim_id in without_mps.keys() | uncounted.keys()}


def uncounting_nodes(waiting: Iterable[Claim], nodes: Collection["PoolNode"]
                     ) -> dict[str, frozenset[str]]:
    asking = [claim for claim in waiting if claim.cpu_milli or claim.ram_bytes]
    if not asking:
        return {}
    cpus = frozenset(node.id for node in nodes if node.report.cpus is None)
    ram = frozenset(node.id for node in nodes if node.report.ram_bytes is None)
    either = cpus | ram
    return {claim.id: excluded for claim in asking if (excluded := either if (
        claim.cpu_milli and claim.ram_bytes) else cpus if claim.cpu_milli else ram)}


def _without_mps(waiting: Iterable[Claim], nodes: Collection["PoolNode"],
                 reports: Mapping[str, ReportingNode]) -> dict[str, frozenset[str]]:
    """Return, by claim, the nodes where no MPS that serves its owner was seen."""
    shares = [claim for claim in waiting if claim.is_share]
    if not shares:
        return {}
    by_themselves = {entry.claim.id for node in nodes for entry in node.report.claims
                     if entry.limits_itself is not False}
    users = {node.id: mps_users(reports.get(node.id)) for node in nodes}
    return {claim.id: excluded for claim in shares if claim.id not in by_themselves and (
        excluded := frozenset(node_id for node_id, serves in users.items()
                              if serves.isdisjoint((claim.owner, ROOT))))}


def mps_users(node: ReportingNode | None) -> frozenset[str]:
    """Return the users whose control daemons answer there; that of root serves everybody."""
    limits = None if node is None else node.limits
    return frozenset() if limits is None else frozenset(
        daemon.user for daemon in limits.daemons if daemon.is_alive and daemon.user is not None)


def _uncounted_words(claim: Claim, nodes: Collection["PoolNode"]) -> str:
    cpus = claim.cpu_milli and any(node.report.cpus is None for node in nodes)
    ram = claim.ram_bytes and any(node.report.ram_bytes is None for node in nodes)
    return "memory is" if not cpus else "CPUs and memory are" if ram else "CPUs are"


def hosts_words(nodes: Iterable["PoolNode"]) -> str:
    hosts = sorted(node.host for node in nodes)
    more = f" and {len(hosts) - HOSTS_MOST} more" if len(hosts) > HOSTS_MOST else ""
    return ", ".join(hosts[:HOSTS_MOST]) + more
