"""The hub: the live picture of a fleet, its history, and what acts on it."""
