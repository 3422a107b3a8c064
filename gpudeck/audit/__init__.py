"""Audit log: its chain of hashes, its files, its sentences."""
