"""The contract, the metrics and the client that every gpudeck program shares."""

__version__ = "0.1.0.dev0"
