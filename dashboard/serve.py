"""Running of one hub in this process until it is stopped. Dash is imported late, so that the
message about a wrong flag does not wait for it."""

import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from gevent.ssl import SSLContext

from gpudeck.errors import CommandError, ExitCode
from gpudeck.service.notify import ServiceNotifier, is_journal

from .access.store import AccountsStore
from .actions.signer_client import SignerClient, start_signer
from .composition import Core, HubGreenlets
from .runtime.data_folder import lock_folder, open_folder, write_private
from .runtime.heap import TRIM_EVERY_S, return_free_memory
from .runtime.runner import Loop, Runner
from .runtime.state_location import StateLocation, errors_explained, keep_location
from .settings import HubSettings
from .state import HubState
from .web.bounded_socket import BoundedSocketIO
from .web.http_server import HttpServer, ServerCounters
from .web.tls_policy import CertificateReloader, check_bind, server_context, takes

if TYPE_CHECKING:
    from .app import Hub

    ExtraGreenlets = Callable[[Hub, Path], "list[gevent.Greenlet[..., Any]]"]

log = logging.getLogger("gpudeck.hub")

STOP_WITHIN_S = 2.5
BACKLOG = 1_024
CERTIFICATE_EVERY_S = 10.0
ALIVE_EVERY_S = 5.0
JOURNALED = 1  # file descriptor of stdout


def serve(settings: HubSettings, start_extra: "ExtraGreenlets | None" = None) -> int:
    """Run the hub until it is stopped. `start_extra` starts what else runs in this process,
    for example the demo's history maker."""
    if os.environ.get("FLASK_DEBUG", "0").lower() not in ("", "0", "false", "no"):
        raise CommandError("FLASK_DEBUG is set, and a hub never runs with a debugger; unset it",
                           ExitCode.USAGE)
    _set_up_log()
    service = ServiceNotifier()  # before there are children, which must not notify in its place
    check_bind(settings)
    tls = server_context(settings)
    open_folder(settings.data)
    lock = lock_folder(settings.data)
    try:
        if settings.state is not None:
            keep_location(settings.data, StateLocation(settings.state, settings.state_password))
        listener = listen(settings.bind)
        try:
            state_and_signer = _open_state(settings, listener, tls, service)
        except BaseException:
            listener.close()
            raise
        if state_and_signer is None:
            return ExitCode.OK
        state, signer = state_and_signer
        _raise_file_limit()
        with errors_explained(settings.data):
            return _serve(settings, state, listener, tls, start_extra, signer, service)
    finally:
        lock.close()


def _open_state(settings: HubSettings, listener: Any, tls: SSLContext | None,
                service: ServiceNotifier) -> tuple[HubState, SignerClient] | None:
    """Return state and signer; None: a standby was told to stop before it became active."""
    if not settings.standby:
        # The signer starts while Dash is imported, which takes half a second.
        return HubState.open(settings.data, is_hub=True), start_signer(settings)
    from .standby import Standby  # imports the whole hub, so that it can start at once later

    standby = Standby(settings, listener, tls, service)
    state = standby.wait()
    return None if state is None else (state, standby.signer or start_signer(settings))


def _watch_certificate(reloader: CertificateReloader) -> None:
    while True:
        gevent.sleep(CERTIFICATE_EVERY_S)
        warning = reloader.look()
        if warning is not None:
            log.warning("%s", warning)


def sign_in_link(url: str, state: HubState, data: Path, is_public: bool) -> tuple[str, str]:
    """Return the link to show at the start, and a sentence with it. `is_public`: others can read
    the output, so it must not have a link that makes an admin."""
    link = f"{url}/sign-in"
    if state.store(AccountsStore).users():
        return link, f"Sign in: {link}"
    if is_public:
        return link, f"There is no admin yet. As {getuser()}, run: gpudeck link --data {data}"
    link += f"?code={state.store(AccountsStore).add_code(None, time.time())}"
    return link, f"Become the first admin, within ten minutes: {link}"


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
           start_extra: "ExtraGreenlets | None", signer: SignerClient, service: ServiceNotifier
           ) -> int:
    from .app import Hub

    port: int = listener.getsockname()[1]
    hub = Hub(settings, state, port, signer)
    server = HttpServer(listener, hub.wsgi, hub.core.get(ServerCounters), tls, takes(settings))
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, stopping.set)
    running = hub.start()
    greenlets = [*running.writers, *running.others]
    for greenlet in greenlets:
        # None of them ends normally: a hub without its clock or its disk must not look alive.
        greenlet.link_exception(lambda _: stopping.set())
    extra = Runner([Loop("heap", return_free_memory, TRIM_EVERY_S)], state.confirm).start()
    extra += [] if start_extra is None else start_extra(hub, settings.data)
    if tls is not None:
        extra.append(gevent.spawn(_watch_certificate, CertificateReloader(settings, tls)))
    server.start()
    _announce(settings, state, hub.core.site.url, signer.fingerprint)
    service.beat(time.monotonic())
    extra += Runner([Loop("systemd", lambda _, mono: service.beat(mono), ALIVE_EVERY_S)],
                    state.confirm).start()
    stopping.wait()
    log.info("stopping")
    failed = any(greenlet.exception for greenlet in greenlets)
    gevent.killall(extra, block=False)
    stop(hub.core, server, running)
    (settings.data / "hub.json").unlink(missing_ok=True)
    state.close()
    return ExitCode.FAILED if failed else ExitCode.OK


def _announce(settings: HubSettings, state: HubState, url: str, hub_key: str) -> None:
    for name, value in (("url", url), ("hub_key", hub_key), ("cluster", settings.cluster)):
        state.put(name, value)
    link, sentence = sign_in_link(url, state, settings.data, is_journal(JOURNALED, os.environ))
    write_private(settings.data / "hub.json", json.dumps(
        {"url": url, "sign_in_url": link, "pid": os.getpid()}) + "\n")
    print(f"gpudeck hub on {url}\n{sentence}", flush=True)
    log.info("ready url=%s epoch=%s pid=%d", url, state.get("epoch"), os.getpid())


def stop(core: Core, server: HttpServer, running: HubGreenlets) -> None:
    """Stop within three seconds: refuse new connections, notify viewers, write what has arrived to
    disk."""
    server.stop_accepting()
    core.stop()
    gevent.killall(running.others, block=False)
    gevent.sleep(0.1)
    gevent.joinall(running.writers, timeout=STOP_WITHIN_S)
    for peer in list(core.get(BoundedSocketIO).engine.sockets.values()):
        peer.abort()
    server.stop(timeout=0.2)
    core.close()


def _raise_file_limit() -> None:
    """Raise the limit of file descriptors to its maximum: agents and viewers need one each, and the
    usual 1,024 are too few for a fleet."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


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
