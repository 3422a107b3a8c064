"""Readings to frames and events, Prometheus text, the agent's own cost."""
