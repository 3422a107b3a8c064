"""Browsers' socket: one packed frame per topic, encoded once for all who see the same."""
