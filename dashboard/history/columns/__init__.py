"""Seconds, minutes and hours as arrays."""
