"""Simulated fleet: many nodes in one process, the real processes of their jobs, and their past."""
