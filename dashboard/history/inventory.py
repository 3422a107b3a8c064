"""The part of the live picture that history's routes need, cut to what the caller may see."""

from typing import Protocol

from .reads.protocol import Nodes


class VisibleInventory(Protocol):
    @property
    def nodes(self) -> Nodes: ...

    def has(self, gpu: str) -> bool: ...

    def place(self, gpu: str) -> tuple[str | None, str | None]:
        """Return the GPU's host, and its place on it."""

    def gpus(self) -> list[tuple[str, str]]:
        """Return UUID and node of each GPU that is not retired."""

    def gpus_of(self, node_id: str) -> list[str] | None:
        """Return the GPUs of a node; None: there is no such node."""

    def hosts(self) -> dict[str, str]:
        """Return host names by node id."""

    def gpu_names(self) -> dict[str, str]:
        """Return `host:place` by UUID."""

    def line(self, user: str | None, command: str | None) -> str | None:
        """Return what may be read of an owner's command line."""

    def models(self) -> dict[str, str]:
        """Return model names by UUID."""

    def backfilling(self) -> int:
        """Count the nodes that have still to send what they measured while the hub was away."""
