"""A rule run over stored history: which alerts there would have been, and whom it would have
hit."""
