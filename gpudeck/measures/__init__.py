"""Measures of a GPU: metrics, events, and what a number means."""
