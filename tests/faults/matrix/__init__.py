"""One cause, one notification: real hubs, real agents, simulated nodes, and what befalls them.

`python -m tests.faults.matrix` brings all faults about, once, in half an hour, and prints what was
measured. With `--quick`: those that are told within a minute and a half; with words: those with
them in their name.
"""
