"""Runs that need no terminal: started, listed, followed and cancelled by their owner."""
