"""Made-up past of a demo: the part that is there at once."""

import os
from types import SimpleNamespace
from typing import Any

import gevent
import msgspec

from dashboard.demo.history_maker import LENGTH, DemoHistoryMaker


def test_since_when_a_gpu_idles_waits_for_nothing_else() -> None:
    """The answer waited for the 399 messages after it: on a busy machine for minutes, in which
    the demo said that nothing is wasted."""
    received: list[dict[str, float]] = []
    history: Any = SimpleNamespace(told=lambda since, now, mono: received.append(since))
    core: Any = SimpleNamespace(get=lambda _: history)
    nothing: Any = None
    source, sink = os.pipe()
    since = {"GPU-1": 5.0}
    body = msgspec.msgpack.encode(("", [msgspec.msgpack.encode(since)]))
    os.write(sink, LENGTH.pack(len(body)) + body)
    with os.fdopen(source, "rb") as messages:
        taking = gevent.spawn(DemoHistoryMaker(core, nothing, nothing)._store_history, messages)
        with gevent.Timeout(20):
            while not received:
                gevent.sleep(0.005)
        assert not taking.ready()  # more may come
        os.close(sink)
        taking.join(20)
    assert received == [since]
