"""Commands of a node: agent, status, pause, end, hold, mps and the like."""
