"""Computations on numbers: time and data are arguments. Pure."""
