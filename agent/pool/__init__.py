"""Leases on this node: the lock on its GPUs, and the socket that `gpudeck run` speaks to."""
