"""Connections between programs, and the keys of their ends."""
