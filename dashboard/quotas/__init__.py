"""Quotas: usage against them, deployment to nodes, history."""
