"""Way of agents' messages from the head log into memory."""
