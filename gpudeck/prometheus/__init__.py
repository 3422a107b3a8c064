"""Readings as Prometheus text."""
