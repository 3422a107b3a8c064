"""Ids of what nodes report. Pure. Each node chooses its own, so that of two nodes with the same one
the later goes by another at the hub, and neither can touch what is the other's."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class HubClaims(NamedTuple):
    """Ids of claims that were made at the hub: `of_node`: for that node alone; `offered`: to it."""

    all: Container[str]
    of_node: Container[str]
    offered: Container[str]


@dataclass(frozen=True, slots=True)
class NodeIds:
    """Ids of one node's claims and leases: the node's own to those at the hub."""

    claims: Mapping[str, str] = field(default_factory=dict)
    leases: Mapping[str, str] = field(default_factory=dict)

    def of(self, own: str) -> str:
        return self.leases.get(own) or self.claims.get(own, own)

    @property
    def own(self) -> dict[str, str]:
        """The node's own ids by those of the hub, where they differ."""
        return {hub_id: own for ids in (self.claims, self.leases)
                for own, hub_id in ids.items() if own != hub_id}

    def __iter__(self) -> Iterator[str]:
        yield from self.claims.values()
        yield from self.leases.values()


@dataclass(slots=True)
class ClaimIds:
    _holders: dict[str, set[str]] = field(default_factory=dict)  # nodes, by an id at the hub
    _of: dict[str, NodeIds] = field(default_factory=dict)  # by node

    def renew(self, node_id: str, claims: Iterable[str], leases: Iterable[str],
              at_hub: HubClaims) -> NodeIds:
        was = self._of.get(node_id, NodeIds())

        def hub_id_of(own: str, hub_ids: Container[str], *before: Mapping[str, str]) -> str:
            if own in hub_ids:
                return own
            for ids in before:
                if own in ids and (own not in at_hub.all or ids[own] != own):
                    return ids[own]
            is_free = own not in at_hub.all and self._holders.get(own, {node_id}) == {node_id}
            return own if is_free else f"{own}@{node_id}"

        # A lease whose work is suspended waits as a claim, and keeps its id.
        claim_ids = {own: hub_id_of(own, at_hub.of_node, was.claims, was.leases) for own in claims}
        lease_ids = {own: hub_id_of(own, at_hub.offered, was.leases, claim_ids, was.claims)
                     for own in leases}
        now = self._of[node_id] = NodeIds(claim_ids, lease_ids)
        for hub_id in now:
            self._holders.setdefault(hub_id, set()).add(node_id)
        self._release(node_id, was, {*now})
        return now

    def forget(self, node_id: str) -> None:
        self._release(node_id, self._of.pop(node_id, NodeIds()), ())

    def _release(self, node_id: str, was: Iterable[str], now: Collection[str]) -> None:
        for hub_id in was:
            if hub_id not in now and (holders := self._holders.get(hub_id)) is not None:
                holders.discard(node_id)
                if not holders:
                    del self._holders[hub_id]
