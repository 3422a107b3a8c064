"""Access of a site's code to the hub: through the API as a program would, as the person who views
the page, in threads outside the hub's loop, so that it delays nobody else."""

import io
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any
from urllib.parse import unquote, urlsplit

import gevent
from flask import request
from gevent.lock import BoundedSemaphore
from gevent.threadpool import ThreadPool

from gpudeck.client.frames import HubFrames
from gpudeck.client.hub import Client, HubConnection, refused
from gpudeck.errors import CommandError, ExitCode

AT_ONCE = 4
WAIT_S = 10.0
ANSWERS_WITHIN_S = 30.0
COPIED = ("HTTP_HOST", "HTTP_COOKIE", "REMOTE_ADDR", "HTTP_X_FORWARDED_FOR", "SERVER_NAME",
          "SERVER_PORT", "SERVER_PROTOCOL", "wsgi.url_scheme", "gpudeck.connection",
          "HTTP_X_CSRFTOKEN", "HTTP_ORIGIN", "HTTP_SEC_FETCH_SITE")
# Queries too long for an address. They change nothing; the gate demands their CSRF token, which is
# that of the page's own request.
LONG_QUERIES = frozenset(("POST", path) for path in (
    "estimates", "pool/simulations", "rule-checks", "quota-checks"))

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class SiteThreads:
    """A few separate threads: a page that never returns occupies one of these."""

    def __init__(self) -> None:
        self._pool = ThreadPool(AT_ONCE)
        self._turns = BoundedSemaphore(AT_ONCE)

    def run(self, answer: Callable[..., Any] | None, *arguments: Any) -> Any:
        assert answer is not None
        if not self._turns.acquire(timeout=WAIT_S):
            raise CommandError("too many pages are being read at this moment; try again",
                               ExitCode.FAILED)
        try:
            future: Future[Any] = self._pool.apply(
                _run_to_future, (copy_context().run, answer, *arguments))
        finally:
            self._turns.release()
        return future.result()


def _run_to_future(run: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    """Run in a future: gevent would write an exception that leaves a thread to stderr."""
    future: Future[Any] = Future()
    try:
        future.set_result(run(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future


class ViewersHub:
    """The hub for the person who views a page. `hub` returns the whole application with its gate,
    which exists only after all pages."""

    def __init__(self, hub: Callable[[], Wsgi]) -> None:
        self._hub = hub

    def frames(self) -> HubFrames:
        """Return a client that acts as the current request's person; each query passes the gate."""
        identity = {name: request.environ[name] for name in COPIED if name in request.environ}
        return HubFrames(Client.over(_OwnConnection(self._hub(), identity, gevent.get_hub().loop)))


class _OwnConnection(HubConnection):
    """A read-only connection: actions go through the browser, with a preview, a reason and a CSRF
    token."""

    def __init__(self, hub: Wsgi, identity: dict[str, Any], loop: Any) -> None:
        self._url = f"{identity['wsgi.url_scheme']}://{identity['HTTP_HOST']}"
        self._hub = hub
        self._identity = identity
        self._loop = loop

    @contextmanager
    def opened(self, method: str, path: str, body: Any = None, timeout_s: float | None = None,
               accept: str = "application/json", key: str | None = None) -> Iterator[Any]:
        if method != "GET" and (method, path) not in LONG_QUERIES:
            raise CommandError("pages of the site are read-only", ExitCode.DENIED)
        content = b"" if body is None else json.dumps(body).encode()
        target = urlsplit(f"/api/v1/{path}")
        environ = self._identity | {
            "REQUEST_METHOD": method, "SCRIPT_NAME": "",
            "PATH_INFO": unquote(target.path, "latin-1"),  # as servers of WSGI write it
            "QUERY_STRING": target.query, "HTTP_ACCEPT": accept,
            "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(content)),
            "wsgi.input": io.BytesIO(content),
            "wsgi.errors": io.StringIO(), "wsgi.version": (1, 0), "wsgi.multithread": False,
            "wsgi.multiprocess": False, "wsgi.run_once": False}
        future: Future[tuple[int, bytes]] = Future()
        self._loop.run_callback_threadsafe(gevent.spawn, _serve, self._hub, environ, future)
        try:
            status, answer = future.result(timeout_s or ANSWERS_WITHIN_S)
        except TimeoutError:
            raise CommandError("the hub took too long to answer", ExitCode.FAILED) from None
        if status >= 400:
            raise refused(None, status, answer)
        yield io.BytesIO(answer)


def _serve(hub: Wsgi, environ: dict[str, Any], future: "Future[tuple[int, bytes]]") -> None:
    statuses: list[str] = []
    try:
        parts = hub(environ, lambda status, headers, *_: statuses.append(status))
        answer = b"".join(parts)
        getattr(parts, "close", lambda: None)()
        future.set_result((int(statuses[-1].partition(" ")[0]), answer))
    except Exception as error:
        future.set_exception(error)
