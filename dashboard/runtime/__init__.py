"""Foundations of the hub: state on disk, dispatcher of events, runner of loops."""
