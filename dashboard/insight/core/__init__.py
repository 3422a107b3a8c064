"""Numbers in, numbers out: time and data are arguments. Pure."""
