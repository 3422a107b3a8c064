"""Import of other programs' recordings into history, at their own times."""
