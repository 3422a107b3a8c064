"""Storage of history's files: which there are, and where."""
