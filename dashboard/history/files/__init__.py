"""Files of history: how they are written, merged and read."""
