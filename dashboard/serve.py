"""Runs one hub in this process until it is told to stop. Dash is imported late: a wrong flag need
not wait for it."""

import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from gevent.ssl import SSLContext

from gpudeck.errors import CommandError, ExitCode

from .actions.signer_client import SignerClient
from .actions.signing_policy import SigningBudget
from .runtime.data_folder import lock_folder, open_folder, write_private
from .runtime.sqlite_state import explained
from .settings import HubSettings
from .state import HubState
from .web.http_server import HttpServer
from .web.tls_policy import check_bind, server_context, takes

if TYPE_CHECKING:
    from .app import Hub

    Beside = Callable[[Hub, Path], "list[gevent.Greenlet[..., Any]]"]

log = logging.getLogger("gpudeck.cli")

STOP_WITHIN_S = 2.5
BACKLOG = 1_024


def serve(settings: HubSettings, beside: "Beside | None" = None) -> int:
    """`beside`: what else runs in this process, as the demo's."""
    if os.environ.get("FLASK_DEBUG", "0").lower() not in ("", "0", "false", "no"):
        raise CommandError("FLASK_DEBUG is set, and a hub never runs with a debugger; unset it",
                           ExitCode.USAGE)
    _set_up_log()
    check_bind(settings)
    tls = server_context(settings)
    open_folder(settings.data)
    lock = lock_folder(settings.data)
    try:
        listener = listen(settings.bind)
        state = HubState.open(settings.data)
        _raise_file_limit()
        with explained(settings.data / "state.db"):
            return _serve(settings, state, listener, tls, beside)
    finally:
        lock.close()


def way_in(url: str, state: HubState) -> tuple[str, str]:
    """The link to show at the start, and what it is."""
    if state.accounts.users():
        return f"{url}/sign-in", "Sign in"
    code = state.accounts.add_code(None, time.time())
    return f"{url}/sign-in?code={code}", "Become the first admin, within ten minutes"


def listen(bind: tuple[str, int]) -> Any:
    host, port = bind
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = gevent.socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        sentence = (f"cannot listen on {host}:{port}: {error.strerror}; choose another with --bind "
                    "(port 0 picks a free one)")
        raise CommandError(sentence, ExitCode.CANNOT_START) from error
    return listener


def _serve(settings: HubSettings, state: HubState, listener: Any, tls: SSLContext | None,
           beside: "Beside | None") -> int:
    # While Dash takes its half a second, for which a wrong flag need not wait.
    signer = SignerClient(settings.data, SigningBudget(settings.signer_ends_per_hour,
                                                       settings.signer_ends_per_node_hour))
    from .app import Hub

    port: int = listener.getsockname()[1]
    running = Hub(settings, state, port, signer)
    server = HttpServer(listener, running.wsgi, running.tally, tls, takes(settings))
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, stopping.set)
    greenlets = running.start()
    for greenlet in greenlets:
        # None of them ends by itself: a hub without its clock or its disk must not look alive.
        greenlet.link_exception(lambda _: stopping.set())
    extra = [] if beside is None else beside(running, settings.data)
    server.start()
    _announce(settings, state, running.site.url)
    stopping.wait()
    log.info("stopping")
    failed = any(greenlet.exception for greenlet in greenlets)
    gevent.killall(extra, block=False)
    stop(running, server, greenlets)
    (settings.data / "hub.json").unlink(missing_ok=True)
    state.close()
    return ExitCode.FAILED if failed else ExitCode.OK


def _announce(settings: HubSettings, state: HubState, url: str) -> None:
    state.put("url", url)
    opens, say = way_in(url, state)
    write_private(settings.data / "hub.json", json.dumps(
        {"url": url, "sign_in_url": opens, "pid": os.getpid()}) + "\n")
    print(f"gpudeck hub on {url}\n{say}: {opens}", flush=True)
    log.info("ready url=%s epoch=%s pid=%d", url, state.get("epoch"), os.getpid())


def stop(running: "Hub", server: HttpServer, greenlets: "list[gevent.Greenlet[..., Any]]") -> None:
    """New ones are turned away, viewers are told, what came is on disk; within three seconds."""
    server.stop_accepting()
    running.live.viewers.end_all("the hub is shutting down")
    running.recorder.stop()
    recorder, *others = greenlets
    gevent.killall(others, block=False)
    gevent.sleep(0.1)
    recorder.join(timeout=STOP_WITHIN_S)
    for peer in list(running.socketio.engine.sockets.values()):
        peer.abort()
    server.stop(timeout=0.2)
    running.recorder.close()
    running.history.close()
    running.signer.close()
    running.access.sign_ins.write_rest()
    running.audit.close()


def _raise_file_limit() -> None:
    """One descriptor per agent and viewer: the usual 1,024 is too few for a fleet."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _set_up_log() -> None:
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("at=%(asctime)s.%(msecs)03dZ level=%(levelname)s part=%(name)s "
                                  "said=%(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("gpudeck").setLevel(logging.INFO)
