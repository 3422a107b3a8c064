"""Checks of the hub by `gpudeck doctor`: reachable from here, the right one, and in step with this
clock."""

import os
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPException
from pathlib import Path

from gpudeck.client.hub import Client, tls_context
from gpudeck.contract.wire import Call, Challenge, Refused, encode
from gpudeck.errors import CommandError
from gpudeck.network.keys import spaced
from gpudeck.network.trouble import proxy_words, unreached_words
from gpudeck.pool.connection import PoolConnection
from gpudeck.words.archive import archive_words

from ..backends.check import DoctorCheck, Verdict
from ..link.identity import (
    KEY_FILE,
    belongs_to_a_hub,
    check_hub,
    new_call,
    node_key,
    pinned_hub,
)
from ..link.protocol import HubIdentityError
from ..link.socket import ConnectionClosed, ConnectionOpened, HubLink, MessageReceived
from .node import CLOSED, is_closed

WITHIN_S = 10.0
# Commands expire by the hub's clock; HTTP gives it to the second.
SKEW_WARNING_S = 3.0
SKEW_PROBLEM_S = 30.0


def hub_checks(hub: str, ca_file: Path | None, data: Path, env: Mapping[str, str]
               ) -> Iterator[DoctorCheck]:
    check = partial(DoctorCheck, "hub", "Hub")
    try:
        tls = tls_context(hub, ca_file)
        skew_s = _ask_time(hub, tls)
    except CommandError as error:
        yield check("problem", str(error), "mend --ca-file")
        return
    except (urllib.error.URLError, OSError, HTTPException, ValueError) as error:
        # If no hub was ever configured, a missing default hub is not an error.
        verdict: Verdict = "problem" if belongs_to_a_hub(data) else "warning"
        if verdict == "warning" and _has_pool(env):
            yield check("not checked", "the agent of this machine leases its GPUs without one")
            return
        words, _, cure = _hub_trouble(error).partition("; ")
        yield check(verdict, f"no hub answers at {hub}: {words}",
                    f"{cure or 'look at the hub, and at --hub'}; the agent buffers its readings "
                    "and retries")
        return
    safe = "with TLS" if tls is not None else "without TLS, on this machine"
    yield check("ok", f"{hub} answers, {safe}")
    yield clock_check(skew_s)
    yield _pinned(hub, tls, data)
    yield from archive_checks(hub, tls, env, time.time())


def _hub_trouble(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return proxy_words(error.code, error.headers.get("Server", ""))
    reason = getattr(error, "reason", error)
    return unreached_words(reason) if isinstance(reason, Exception) else str(reason)


def _has_pool(env: Mapping[str, str]) -> bool:
    try:
        PoolConnection(env).close()
    except CommandError:
        return False
    return True


def _ask_time(hub: str, tls: ssl.SSLContext | None) -> float | None:
    """Return how far this clock is ahead of the hub's, in seconds; None: the hub does not say. A
    proxy in between may answer with its own time."""
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=tls))
    before = time.time()
    with opener.open(f"{hub}/healthz", timeout=WITHIN_S) as answer:
        date, after = answer.headers["Date"], time.time()
    if date is None:
        return None
    # The header has whole seconds: that one began half a second ago on average.
    return (before + after) / 2 - parsedate_to_datetime(date).timestamp() - 0.5


def clock_check(skew_s: float | None) -> DoctorCheck:
    check = partial(DoctorCheck, "clock", "Clock")
    if skew_s is None:
        return check("not checked", "the hub did not report its time")
    message = f"within {SKEW_WARNING_S:.0f} s of the hub's"
    if abs(skew_s) < SKEW_WARNING_S:
        return check("ok", message)
    side = "ahead of" if skew_s > 0 else "behind"
    return check("problem" if abs(skew_s) >= SKEW_PROBLEM_S else "warning",
        f"{abs(skew_s):.0f} s {side} the hub's",
        "run a time service on both (chrony, systemd-timesyncd): history uses this clock, and "
        "a hub refuses samples from the future")


def archive_checks(hub: str, tls: ssl.SSLContext | None, env: Mapping[str, str], now: float
                   ) -> Iterator[DoctorCheck]:
    """Yield what the hub knows of the archive of its history, for who has a token."""
    token = env.get("GPUDECK_TOKEN", "").strip()
    if not token:
        return
    check = partial(DoctorCheck, "archive", "Archive")
    try:
        archive = Client(hub, token, WITHIN_S, tls).hub.get("archive")
    except CommandError as error:
        yield check("not checked", str(error))
        return
    for word in archive_words(archive, now):
        yield check(word.verdict, word.says, word.remedy)


def _pinned(hub: str, tls: ssl.SSLContext | None, data: Path) -> DoctorCheck:
    check = partial(DoctorCheck, "hub_key", "Hub's key")
    if is_closed(data):
        return check("not checked", CLOSED)
    try:
        if not belongs_to_a_hub(data):
            return check("warning", "this node is not enrolled with a hub yet",
                         "run `gpudeck token create agent` where the hub is, and start the agent "
                         "once with that token")
        pinned = pinned_hub(data, None)
        key = data / KEY_FILE
        if key.exists() and key.stat().st_uid == os.geteuid():  # else root looks at a service's
            node_key(data)
    except CommandError as error:
        return check("problem", str(error), "see docs/enrolment.md")
    call, answer = new_call(), None
    try:
        answer = _challenge(hub, tls, call)
        if isinstance(answer, Challenge):
            check_hub(pinned, call, answer)
            return check("ok", f"verified: {spaced(pinned)}; its epoch is {answer.epoch}")
    except HubIdentityError as stranger:
        return check("problem", str(stranger), "ask the hub's administrator")
    return check("problem", f"the hub does not show its key: {answer}",
                 "see the hub's log; does a proxy in between block websockets?")


def _challenge(hub: str, tls: ssl.SSLContext | None, call: Call) -> Challenge | str:
    """Return what the hub shows to any caller: its challenge, or why there is none. Sends nothing
    about this node and replaces no connection."""
    news = threading.Event()
    link = HubLink((hub,), lambda _: tls, news.set)
    link.dial()
    deadline = time.monotonic() + WITHIN_S
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            news.wait(left_s)
            news.clear()
            for event in link.events():
                match event:
                    case ConnectionOpened():
                        link.say(encode(call))
                    case MessageReceived(Challenge() as challenge):
                        return challenge
                    case MessageReceived(Refused(reason=reason)):
                        return reason
                    case ConnectionClosed(why, _):
                        return why
        return f"no answer within {WITHIN_S:.0f} s"
    finally:
        closing = link.hang_up()
        if closing is not None:
            closing.join(timeout=2.0)
