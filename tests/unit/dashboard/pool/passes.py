"""Scheduling pass over what nodes have said, all at once."""

from typing import Any

from dashboard.pool.plan import scheduling
from gpudeck.pool.core.schedule import Pass, finish


def scheduled(*args: Any) -> Pass:
    return finish(scheduling(*args))
