"""A whole mail server, aiosmtpd's, that speaks TLS and asks for a password."""

import asyncio
import ssl
import threading
from typing import Any, Literal

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from tests.fakes.certificates import Pair


class TlsMailSink:
    """`mails`: (to, text, whether it came over TLS). `logins`: (user, whether over TLS)."""

    def __init__(self, pair: Pair, tls: Literal["starttls", "tls"], user: str = "",
                 password: str = "") -> None:
        self.mails: list[tuple[list[str], str, bool]] = []
        self.logins: list[tuple[str, bool]] = []
        self.port = 0
        self._credentials = (user.encode(), password.encode())
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(pair.cert, pair.key)
        self._tls = tls
        self._sessions: list[Any] = []
        self._loop = asyncio.new_event_loop()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        is_secret = session.ssl is not None or self._tls == "tls"
        self.mails.append((envelope.rcpt_tos, envelope.content.decode(), is_secret))
        return "250 taken"

    def _login(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any
               ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login.decode(), session.ssl is not None or self._tls == "tls"))
        return AuthResult(success=(data.login, data.password) == self._credentials, handled=False)

    def _new_session(self) -> SMTP:
        self._sessions.append(self._server())
        session: SMTP = self._sessions[-1]
        return session

    def _server(self) -> SMTP:
        if self._tls == "starttls":
            return SMTP(self, tls_context=self._context, require_starttls=True,
                        authenticator=self._login, auth_required=bool(self._credentials[0]))
        # It does not know that it is behind TLS already.
        return SMTP(self, authenticator=self._login, auth_require_tls=False)

    def __enter__(self) -> "TlsMailSink":
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(5)
        return self

    def _run(self, started: threading.Event) -> None:
        context = self._context if self._tls == "tls" else None
        server = self._loop.run_until_complete(
            self._loop.create_server(self._new_session, "127.0.0.1", 0, ssl=context))
        self.port = server.sockets[0].getsockname()[1]
        self._loop.call_soon(started.set)
        self._loop.set_exception_handler(lambda *_: None)  # from clients that do not trust it
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._hang_up())
        self._loop.close()

    async def _hang_up(self) -> None:
        await asyncio.sleep(0.05)  # a connection of the last moment is there by then
        for session in self._sessions:
            for transport in (session.transport, session._original_transport):
                if transport is not None:
                    transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.02)  # a transport closes its socket at the next turn

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
