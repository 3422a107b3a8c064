"""The REST interface and its description."""
