"""Answers of history."""
