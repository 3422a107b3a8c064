"""A mail server that accepts and stores every mail, over a real socket."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing, suppress


class MailSink:
    """`refuses`: the number of mails that it refuses before it accepts one."""

    def __init__(self, refuses: int = 0) -> None:
        self.mails: list[tuple[str, str, str]] = []  # from, to, data
        self.refusals = 0
        self._refuses = refuses
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self.port = 0

    def __enter__(self) -> "MailSink":
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started.set,), daemon=True)
        self._thread.start()
        assert started.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self, tell: Callable[[], None]) -> None:
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self._loop.call_soon(tell)
        self._loop.run_forever()
        self._server.close()
        self._loop.run_until_complete(self._hang_up())
        self._loop.close()

    async def _hang_up(self) -> None:
        await asyncio.sleep(0.02)  # a connection of the last moment is there by then
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.02)  # a transport closes its socket at the next turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError):
            await self._talk(reader, writer)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(line: str) -> None:
            writer.write(line.encode() + b"\r\n")

        say("220 sink")
        sender = to = ""
        while line := (await reader.readline()).decode().strip():
            verb = line.upper()
            if verb.startswith("MAIL"):
                sender = line
                say("250 yes")
            elif verb.startswith("RCPT") and self.refusals < self._refuses:
                self.refusals += 1
                say("451 come again later")
            elif verb.startswith("RCPT"):
                to = line
                say("250 yes")
            elif verb == "DATA":
                say("354 go on")
                data = b""
                while not data.endswith(b"\r\n.\r\n"):
                    data += await reader.readline()
                self.mails.append((sender, to, data[:-5].decode()))
                say("250 taken")
            elif verb == "QUIT":
                say("221 bye")
                break
            else:
                say("250 sink")
