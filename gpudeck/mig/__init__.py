"""Layouts of MIG: what a board can be split into, wishes, and plans. Standard library alone."""
