"""Fault matrix: one cause, one notification, with real hubs, real agents and simulated nodes.

`python -m tests.faults.matrix` causes all faults, once, in half an hour, and writes the measured
rows to docs/fault_matrix.json, of which `make docs` draws the table of docs/rules.md. With
`--quick`: those that are notified within a minute and a half, and nothing is written; with words:
those with them in their name, and the other rows stay.
"""
