"""Servers that only receive what agents send, to be measured beside the hub: a Flask-SocketIO
handler as measurements found it cheapest, and picows as the floor.

`python -m tests.receivers flask|picows PORT FILE`; on SIGUSR1 it writes to FILE when each message
of each node arrived.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpudeck.contract.wire import EVENT, NAMESPACE
from tests.integration.hubs import wait_for
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
Arrivals = dict[str, list[float]]


def flask(port: int, arrivals: Arrivals) -> None:
    """Serve with no thread per event, MessagePack, and the handler on the library's own server."""
    from flask import Flask
    from flask_socketio import SocketIO

    app = Flask("receiver")
    io = SocketIO(app, async_mode="gevent", async_handlers=False, serializer="msgpack")
    lists: Arrivals = {}

    def connected(sid: str, environ: dict[str, Any]) -> None:
        lists[sid] = arrivals.setdefault(parse_qs(environ["QUERY_STRING"])["n"][0], [])

    io.server.on("connect", connected, namespace=NAMESPACE)
    io.server.on(EVENT, lambda sid, data: lists[sid].append(time.time()), namespace=NAMESPACE)
    io.run(app, "127.0.0.1", port)


def picows(port: int, arrivals: Arrivals) -> None:
    import asyncio

    import picows

    class Receiver(picows.WSListener):
        """Engine.io's greeting, and then nothing but the frames themselves."""

        def __init__(self, number: str) -> None:
            self._times: list[float] | None = None
            self._number = number

        def on_ws_connected(self, transport: Any) -> None:
            transport.send(picows.WSMsgType.TEXT, b"0{}")

        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            if frame.msg_type != picows.WSMsgType.BINARY:
                return
            if self._times is None:  # the namespace's CONNECT
                self._times = arrivals.setdefault(self._number, [])
                return
            frame.get_payload_as_bytes()
            self._times.append(time.time())

    def listener(request: Any) -> Receiver:
        return Receiver(parse_qs(urlsplit(request.path.decode()).query)["n"][0])

    async def serve() -> None:
        server = await picows.ws_create_server(listener, "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def receiver(kind: str, file: Path) -> Iterator[tuple[int, int]]:
    """Start a receiver and yield its pid and port."""
    port = free_port()
    server = subprocess.Popen([sys.executable, "-m", "tests.receivers", kind, str(port), str(file)],
                              cwd=ROOT)
    try:
        wait_for(lambda: _listens(port), why=f"the {kind} receiver")
        yield server.pid, port
    finally:
        server.terminate()
        server.wait(10)


def _listens(port: int) -> bool:
    line = f":{port:04X} 00000000:0000 0A"
    return line in Path("/proc/net/tcp").read_text()


def main(argv: list[str]) -> int:
    arrivals: Arrivals = {}

    def write(*_: object) -> None:
        beside = Path(argv[2] + ".new")
        beside.write_text(json.dumps(arrivals))
        beside.rename(argv[2])

    signal.signal(signal.SIGUSR1, write)
    {"flask": flask, "picows": picows}[argv[0]](int(argv[1]), arrivals)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
