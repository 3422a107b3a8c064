"""The agent: one per node. Reads its GPUs, tells the hub, and does what it is ordered to."""
