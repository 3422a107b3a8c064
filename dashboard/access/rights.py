"""The second question: the gate has asked already, and a service asks again before it changes
anything."""

import time

from .policy import Actor, RefusedError, may


def require(actor: Actor, verb: str) -> None:
    """Raises RefusedError."""
    refusal = may(actor, verb, None, time.time())
    if refusal is not None:
        raise RefusedError(refusal)
