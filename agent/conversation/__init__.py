"""Conversation of one node with its hub: what it reports of itself, and who gets which message."""
