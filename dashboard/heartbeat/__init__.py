"""The tick of one second, and whether the hub keeps up."""
