"""Actions: check, preview, execute, verify. The node decides last, on its own fresh reading."""
