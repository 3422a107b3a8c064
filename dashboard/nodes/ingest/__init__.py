"""Separate process that serves the sockets of authenticated agents."""
