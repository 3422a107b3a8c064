"""Kubernetes, by its API server: pods that hold GPUs, nodes, and what its credential may ask."""
