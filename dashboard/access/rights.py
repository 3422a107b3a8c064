"""Second check of a permission: a service checks what the gate has checked already, before it
changes anything."""

import time

from .policy import Actor, RefusedError, may


def require(actor: Actor, verb: str) -> None:
    """Raise RefusedError if the actor may not do this."""
    refusal = may(actor, verb, None, time.time())
    if refusal is not None:
        raise RefusedError(refusal)
