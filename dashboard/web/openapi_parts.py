"""Parts that descriptions of the REST interface are made of."""

from typing import Any

from gpudeck.measures.metrics import COLUMNS, SLOW

from .answers import MAX_REPEATED
from .moments import RFC_3339, SECONDS

MAX_WORD = 1_024
TIME: dict[str, Any] = {"type": "string", "pattern": f"^({SECONDS}|{RFC_3339})$"}
NODE_QUERY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("node", {"type": "string", "minLength": 1}),)
_KEY = "|".join(metric.key for metric in (*COLUMNS, *SLOW))
METRIC_LIST = f"^({_KEY})(,({_KEY}))*$"
METRIC: dict[str, Any] = {"enum": [metric.key for metric in (*COLUMNS, *SLOW)]}
FORMAT: tuple[str, dict[str, Any]] = ("format", {
    "enum": ["json", "csv", "parquet"], "description": "Without it, `Accept` decides."})
PRICE_SCHEMA: dict[str, Any] = {"type": "string", "pattern": "^[0-9]{1,9}([.][0-9]{1,9})?$"}


def needed(name: str, schema: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a required parameter."""
    return name, schema | {"required": True}


def repeated(name: str) -> tuple[str, dict[str, Any]]:
    return name, {"type": "array", "items": {"type": "string"}, "maxItems": MAX_REPEATED}
