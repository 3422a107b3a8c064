"""Journal of what was ordered, begun and done on this node, on disk before it counts."""
