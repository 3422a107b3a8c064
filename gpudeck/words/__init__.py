"""Sentences about actions and commands."""
