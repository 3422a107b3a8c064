"""Recordings of other programs, taken into history at their own times."""
