"""What works on this node, what does not, and what to do about it."""
