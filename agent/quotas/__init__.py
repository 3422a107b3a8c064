"""Quotas as this node holds them, also while the hub is away."""
