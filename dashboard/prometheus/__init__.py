"""`/metrics` in the dcgm-exporter dialect."""
