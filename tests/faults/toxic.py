"""A TCP proxy with toxics: tears what passes into small pieces, delays it, and cuts connections."""

import asyncio
import contextlib
import random
import threading
from dataclasses import dataclass


@dataclass
class Toxics:
    most_bytes: int = 65_536  # in one piece
    most_delay_s: float = 0.0  # of one piece
    cut_after_s: tuple[float, float] | None = None  # a random time within, for each connection
    most_cuts: int | None = None  # a peer that is cut off repeatedly comes back after a minute


class ToxicProxy:
    def __init__(self, port: int, toxics: Toxics) -> None:
        self.toxics = toxics
        self._open: set[asyncio.StreamWriter] = set()
        self.cuts = self.connections = 0
        self._to = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accept, "127.0.0.1", 0), self._loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
            head = await reader.readuntil(b"\r\n\r\n")
            # The hub answers under its own name only.
            back.write(head.replace(b":%d" % self.port, b":%d" % self._to))
            self._open |= {writer, back}
            passing = asyncio.gather(self._pass(reader, back), self._pass(there, writer))
            most = self.toxics.most_cuts
            within = None if most is not None and self.cuts >= most else self.toxics.cut_after_s
            try:
                await asyncio.wait_for(passing, None if within is None else random.uniform(*within))
            except TimeoutError:
                self.cuts += 1
            self._open -= {writer, back}
            for end in (writer, back):
                end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(random.randint(1, self.toxics.most_bytes)):
                if self.toxics.most_delay_s:
                    await asyncio.sleep(random.uniform(0, self.toxics.most_delay_s))
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    def change(self, toxics: Toxics) -> None:
        """Change the toxics; peers that are connected have to connect again."""
        self.toxics = toxics
        self._loop.call_soon_threadsafe(self._cut_all)

    def _cut_all(self) -> None:
        for end in self._open:
            end.transport.abort()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        self._cut_all()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
