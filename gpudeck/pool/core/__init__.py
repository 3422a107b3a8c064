"""Decisions that hub and agent share. Pure, standard library alone."""
