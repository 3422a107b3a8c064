"""Foundations of the agent: locks of the data folder and of actions, worker threads."""
