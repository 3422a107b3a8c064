"""A hub that waits until the active hub of the database is gone, and then takes its place.

Until then it answers /healthz and /readyz and shows one page. It reads no state except the active
hub's entry about itself, and accepts no agents, sign-ins or actions.
"""

import logging
import signal
import time
from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

import gevent
import msgspec
from gevent.event import Event
from gevent.ssl import SSLContext

from gpudeck.errors import CommandError, ExitCode
from gpudeck.rate import RateLimiter
from gpudeck.service.notify import ServiceNotifier

from .actions.hub_key import KEY_FILE
from .actions.signer_client import start_signer
from .app import Hub  # noqa: F401  so that it is loaded when it is needed
from .runtime.state_location import location, waiting_hold
from .runtime.state_store import ActiveHub, StateUnavailableError
from .settings import HubSettings
from .state import HubState
from .web.answers import ProblemDetails
from .web.http_server import HttpServer, ServerCounters
from .web.tls_policy import takes

if TYPE_CHECKING:
    from .runtime.postgres_hold import HubHold  # the driver comes with an extra

log = logging.getLogger("gpudeck.standby")

POLL_S = 0.5
STOP_WITHIN_S = 0.2
# The Server header shows an agent, or a person behind a proxy, that a standby answers.
SERVER = "gpudeck-standby"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Standby · gpudeck</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light"><meta http-equiv="refresh" content="5">
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 34rem; margin: 18vh auto 0;
padding: 0 1.5rem }} h1 {{ font-size: 1.4rem; font-weight: 600 }}</style>
</head><body><main><h1>This hub is a standby</h1>
<p>The active hub {where}.</p>
<p>This one takes its place within seconds if it stops. Nothing can be seen or changed here until
then; this page reloads by itself.</p></main></body></html>
"""
CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


class StandbyPage:
    """WSGI application that answers while the hub is a standby."""

    def __init__(self) -> None:
        self.active = ActiveHub()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        status, kind, body = self._answer(path)
        start(status, [("Content-Type", kind), ("Content-Length", str(len(body))),
                       ("Cache-Control", "no-store"), ("Retry-After", "2"), ("Server", SERVER),
                       ("X-Content-Type-Options", "nosniff"),
                       ("Content-Security-Policy", CONTENT_POLICY)])
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]

    def _answer(self, path: str) -> tuple[str, str, bytes]:
        away, words = "503 Service Unavailable", f"standby of {self.active.named}"
        if path == "/healthz":
            return "200 OK", "text/plain; charset=utf-8", b"ok\n"
        if path == "/readyz" or path.startswith("/socket.io"):
            return away, "text/plain; charset=utf-8", f"{words}\n".encode()
        if path.startswith("/api/"):
            problem = ProblemDetails("urn:gpudeck:problem:standby", "This hub is a standby", 503,
                                     f"This hub is a {words}; ask the active hub.")
            return away, "application/problem+json", msgspec.json.encode(problem)
        return away, "text/html; charset=utf-8", PAGE.format(where=self._where()).encode()

    def _where(self) -> str:
        host, url = escape(self.active.named), self.active.url
        is_link = url is not None and url.startswith(("http://", "https://"))
        return (f'is on {host}: <a href="{escape(url or "")}">{escape(url or "")}</a>' if is_link
                else f"is on {host}")


class Standby:
    def __init__(self, settings: HubSettings, listener: Any, tls: SSLContext | None,
                 service: ServiceNotifier) -> None:
        state_location = location(settings.data)
        if state_location is None:
            raise CommandError("a standby needs its state in a database that both hubs use: "
                               "--state postgresql://USER@HOST/DATABASE", ExitCode.USAGE)
        self._settings, self._service = settings, service
        self._hold: HubHold = waiting_hold(state_location)
        self._page = StandbyPage()
        # A copy of the socket: connections that come while the hub starts wait in its backlog.
        self._server = HttpServer(listener.dup(), self._page, ServerCounters(), tls,
                                  takes(settings))
        self._pacer = RateLimiter()
        # Without a key file the signer would create a key.
        self.signer = start_signer(settings) if (settings.data / KEY_FILE).exists() else None

    def wait(self) -> HubState | None:
        """Wait until there is no active hub and return the state; None: it was told to stop."""
        stopping = Event()
        handlers = [gevent.signal_handler(number, stopping.set)
                    for number in (signal.SIGTERM, signal.SIGINT)]
        try:
            if self._takes(stopping):
                log.info("hold_taken term=%d", self._hold.term)
                return HubState.open(self._settings.data, is_hub=True, hold=self._hold)
            self._end()
            return None
        except BaseException:
            self._end()
            raise
        finally:
            self._server.stop(timeout=STOP_WITHIN_S)
            for handler in handlers:
                handler.cancel()

    def _end(self) -> None:
        self._hold.close()
        if self.signer is not None:
            self.signer.close()

    def _takes(self, stopping: Event) -> bool:
        """Wait for the hold and take it; False: it was told to stop."""
        if self.signer is not None:
            self.signer.wait()
        try:
            if self._try_take():
                return True
        except StateUnavailableError as error:
            raise CommandError(f"cannot use the state: {error}", ExitCode.CANNOT_START) from error
        (self._settings.data / "hub.json").unlink(missing_ok=True)  # left by an earlier run
        self._server.start()
        print(f"gpudeck hub on {':'.join(map(str, self._server.address[:2]))} is a standby of "
              f"{self._page.active.named}", flush=True)
        while not stopping.wait(POLL_S):
            self._service.beat(time.monotonic())
            try:
                if self._try_take():
                    return True
            except StateUnavailableError as error:
                if self._pacer.due("away", time.monotonic()) is not None:
                    log.warning("state_away why=%r", str(error))
            if self.signer is not None:
                self.signer.step(time.time(), time.monotonic())
        return False

    def _try_take(self) -> bool:
        """Try to take the hold. The key is checked before, and again once nobody can change it."""
        self._check_key()
        is_taken = _in_thread(self._hold.try_take)
        if is_taken:
            self._check_key()
        else:
            self._check_cluster(self._page.active)
        return is_taken

    def _check_cluster(self, active: ActiveHub) -> None:
        if active.cluster not in (None, self._settings.cluster):
            raise CommandError(
                f"this hub's cluster is {self._settings.cluster}, that of the hub on "
                f"{active.named} is {active.cluster}; give both the same --cluster",
                ExitCode.USAGE)

    def _check_key(self) -> None:
        self._page.active = active = _in_thread(self._hold.active)
        key_file = self._settings.data / KEY_FILE
        if active.hub_key is None:  # no hub has run on this database yet
            return
        if self.signer is None:
            raise CommandError(
                f"{key_file} is missing: nodes would refuse this hub; copy it from the data folder "
                f"of the hub on {active.named}", ExitCode.CANNOT_START)
        if self.signer.fingerprint != active.hub_key:
            raise CommandError(
                f"{key_file} is another key than that of the hub on {active.named} "
                f"({self.signer.fingerprint}, {active.hub_key} there): nodes would refuse this "
                "hub; copy the file from there", ExitCode.CANNOT_START)


T = TypeVar("T")


def _in_thread(work: Callable[[], T]) -> T:
    """Call a function in a native thread, while the loop serves the page. gevent would write an
    exception that leaves a thread to stderr, so it comes back as a value."""
    def attempt() -> T | StateUnavailableError:
        try:
            return work()
        except StateUnavailableError as error:
            return error

    outcome = gevent.get_hub().threadpool.apply(attempt)
    if isinstance(outcome, StateUnavailableError):
        raise outcome
    return outcome
