"""MPS, power caps, clock locks and compute modes: apply, read back, reconcile, undo."""
