"""What actions tell the rest of the hub."""

from dataclasses import dataclass

from .lifecycle import CommandRecord


@dataclass(frozen=True, slots=True)
class CommandChanged:
    """A new or changed command, once it is on the disk."""

    record: CommandRecord


@dataclass(frozen=True, slots=True)
class HoldChanged:
    """A hold was ordered or released, or a node says something new of its own."""
