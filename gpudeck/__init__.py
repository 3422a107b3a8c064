"""The contract, the metrics and the client that every gpudeck program shares."""

__version__ = "0.2.0.dev0"
