"""Checks of this node: what works, what does not, and what to do about it."""
