"""What the routes of history need of the live picture, cut to what the asker may see."""

from typing import Protocol

from .protocol import Nodes


class VisibleInventory(Protocol):
    @property
    def nodes(self) -> Nodes: ...

    def has(self, gpu: str) -> bool: ...

    def place(self, gpu: str) -> tuple[str | None, str | None]:
        """Host, and place on it."""

    def gpus(self) -> list[tuple[str, str]]:
        """UUID and node of each GPU that is not retired."""

    def gpus_of(self, node_id: str) -> list[str] | None:
        """None: there is no such node."""

    def hosts(self) -> dict[str, str]:
        """By node id."""

    def gpu_names(self) -> dict[str, str]:
        """`host:place` by UUID."""

    def line(self, user: str | None, command: str | None) -> str | None:
        """What may be read of an owner's command line."""

    def models(self) -> dict[str, str]:
        """By UUID."""

    def backfilling(self) -> int:
        """How many nodes have still to send what they measured while the hub was away."""
