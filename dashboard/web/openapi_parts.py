"""What descriptions of the REST interface are made of."""

from dataclasses import dataclass
from typing import Any

from .moments import RFC_3339, SECONDS

MAX_WORD = 1_024
TIME: dict[str, Any] = {"type": "string", "pattern": f"^({SECONDS}|{RFC_3339})$"}


@dataclass(frozen=True, slots=True)
class Operation:
    """What neither lists the fleet nor shows a part of it."""

    method: str
    path: str
    name: str
    text: str
    answer: type | None = None
    body: type | None = None
    status: int = 200
    errors: tuple[int, ...] = ()
    query: tuple[tuple[str, dict[str, Any]], ...] = ()
    is_file: bool = False  # CSV and Parquet as well
    version: str = ""  # the field by which a change says what it is a change of
