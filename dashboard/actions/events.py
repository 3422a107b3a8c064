"""Events about actions for the rest of the hub."""

from dataclasses import dataclass

from .lifecycle import CommandRecord


@dataclass(frozen=True, slots=True)
class CommandChanged:
    """A new or changed command, once it is on disk."""

    record: CommandRecord


@dataclass(frozen=True, slots=True)
class HoldChanged:
    """A hold was ordered or released, or the holds that a node reports have changed."""
