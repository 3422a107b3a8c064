"""Browsers' socket: a packed frame per topic, encoded once for all who see the same."""
