"""Notifications to systemd, as its socket gets them."""

import os
import random
import socket
from pathlib import Path

import pytest

from gpudeck.service.notify import ServiceNotifier


@pytest.fixture(name="systemd")
def _systemd(tmp_path: Path) -> socket.socket:
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    systemd.bind(str(tmp_path / "notify"))
    return systemd


def messages(systemd: socket.socket) -> list[str]:
    came = []
    while True:
        try:
            came.append(systemd.recv(2**20).decode())
        except BlockingIOError:
            return came


def test_it_reports_its_start_its_state_and_that_it_lives(systemd: socket.socket) -> None:
    watchdog_s, now = random.randrange(8, 100), random.uniform(0.0, 1e6)
    env = {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": str(watchdog_s * 10**6),
           "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    service = ServiceNotifier(env)
    assert env == {"HOME": "/"}, "children must not speak for the service"
    service.beat(now, "connecting to https://h:1")
    assert messages(systemd) == ["STATUS=connecting to https://h:1", "READY=1"]
    service.beat(now + watchdog_s / 8, "connecting to https://h:1")
    assert messages(systemd) == []
    service.beat(now + watchdog_s / 7, "no connection to https://h:1: \nWATCHDOG=trigger")
    assert messages(systemd) == ["STATUS=no connection to https://h:1: WATCHDOG=trigger"], (
        "one line, whatever a hub says")
    service.beat(now + watchdog_s / 4, "no connection to https://h:1: \nWATCHDOG=trigger")
    assert messages(systemd) == ["WATCHDOG=1"]
    systemd.close()


def test_a_hub_with_many_words_hides_nothing(systemd: socket.socket) -> None:
    """systemd ignores a message of more than 4096 bytes, and would still show the one before."""
    service = ServiceNotifier({"NOTIFY_SOCKET": systemd.getsockname()})
    service.beat(1.0, "connected to https://h:1")
    messages(systemd)
    service.beat(2.0, f"no connection to https://h:1: the hub refuses: {'🔥' * 1_024}")
    [status] = messages(systemd)
    assert status.startswith("STATUS=no connection to https://h:1: the hub refuses: 🔥")
    assert len(status.encode()) < 4_096
    systemd.close()


def test_where_systemd_did_not_start_it_nothing_is_sent(systemd: socket.socket) -> None:
    service = ServiceNotifier({})
    service.beat(1.0, "connected")
    assert messages(systemd) == []
    systemd.close()
