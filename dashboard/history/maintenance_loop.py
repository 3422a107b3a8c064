"""Loop that maintains history in a native thread, beside the event loop."""

import gevent

from ..runtime.runner import Loop
from .protocol import History

MAINTAIN_EVERY_S = 5.0


def maintenance_of(history: History) -> Loop:
    def maintain(now: float, mono: float) -> None:
        gevent.get_hub().threadpool.apply(history.maintain, (now, mono))

    return Loop("history", maintain, MAINTAIN_EVERY_S)
