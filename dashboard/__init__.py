"""The hub: the live picture of a fleet, its history, and actions on it."""
