"""Mirroring of every second of history to a Prometheus-compatible or OpenTelemetry receiver."""
