"""One cause, one notification: real hubs, real agents, simulated nodes, and what befalls them.

`python -m tests.faults.matrix` brings all faults about, once, in half an hour, and writes what was
measured to docs/fault_matrix.json, of which `make docs` draws the table of docs/rules.md. With
`--quick`: those that are told within a minute and a half, and nothing is written; with words: those
with them in their name, and the other rows stay.
"""
