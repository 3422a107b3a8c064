"""`gpudeck run` whose agent goes away at each step before its command runs. A real run, and an
agent that answers as it is told to."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudeck.contract import pool_messages as messages
from gpudeck.contract.pool_messages import (
    SOCKET_ENV,
    AskClaim,
    Bind,
    Bound,
    ClaimRefused,
    ClaimWaits,
    FromPool,
    FromUser,
    GiveBack,
    Leased,
    LeasedGpu,
    LeaseEnded,
)
from tests.integration.pools import ROOT

ANSWER = "import os; print('began', flush=True); os._exit(7)"


def leased(claim: AskClaim) -> Leased:
    return Leased(claim.request_id, "n1", (LeasedGpu("GPU-0", "H100", 0),), 2e9, 1_000, None, 30.0)


class ScriptedAgent:
    def __init__(self, path: Path) -> None:
        self.received: list[FromUser] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(60)
        self._listener.bind(str(path))
        self._listener.listen(8)

    def serve(self, dies_at: type[FromUser] | None, before_it: int = 0) -> None:
        """Serve a connection until it ends or such a message has come. `before_it`: places in the
        queue that are told first."""
        sock, _ = self._listener.accept()
        sock.settimeout(60)
        with sock:
            while (request := messages.from_user(sock)) is not None:
                message, fds = request
                for fd in fds:
                    os.close(fd)
                self.received.append(message)
                if isinstance(message, AskClaim):
                    for place in range(before_it, 0, -1):
                        messages.send(sock, ClaimWaits(place, "busy"))
                if dies_at is not None and isinstance(message, dies_at):
                    return
                messages.send(sock, answer(message))

    def grant(self) -> socket.socket:
        """Grant and bind a lease; return the connection, which is open."""
        sock, _ = self._listener.accept()
        sock.settimeout(60)
        for _ in range(2):
            request = messages.from_user(sock)
            assert request is not None
            message, fds = request
            for fd in fds:
                os.close(fd)
            self.received.append(message)
            messages.send(sock, answer(message))
        return sock

    def bind_and_hang_up(self) -> None:
        self._listener.settimeout(0.5)
        sock, _ = self._listener.accept()
        with sock:
            request = messages.from_user(sock)
            assert request is not None
            message, fds = request
            for fd in fds:
                os.close(fd)
            self.received.append(message)
            messages.send(sock, answer(message))

    def restart_while(self, ends: Callable[[], None], binds: FromPool) -> FromUser | None:
        """Accept the run again, and let its command end before it is bound; return what the run
        says then."""
        sock, _ = self._listener.accept()
        sock.settimeout(60)
        with sock:
            request = messages.from_user(sock)
            assert request is not None
            message, fds = request
            assert isinstance(message, Bind)
            for fd in fds:
                os.close(fd)
            ends()
            messages.send(sock, binds)
            request = messages.from_user(sock)
            if request is None:
                return None
            with contextlib.suppress(messages.PoolSocketError):  # it may have hung up by then
                messages.send(sock, answer(request[0]))
            return request[0]

    def close(self) -> None:
        self._listener.close()


def answer(message: FromUser) -> FromPool:
    match message:
        case AskClaim():
            return leased(message)
        case Bind():
            return Bound()
    return LeaseEnded("given back")


@pytest.mark.parametrize(("dies_at", "places"), [(AskClaim, 0), (AskClaim, 2), (Bind, 0)])
def test_it_asks_for_the_same_again_and_the_command_runs_once(
        dies_at: type[FromUser], places: int, tmp_path: Path) -> None:
    agent = ScriptedAgent(tmp_path / "pool.sock")
    run = subprocess.Popen([sys.executable, "-m", "gpudeck.cli.main", "run", "--", sys.executable,
                            "-c", ANSWER], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                           env=os.environ | {SOCKET_ENV: str(tmp_path / "pool.sock")})
    try:
        agent.serve(dies_at, places)
        with contextlib.suppress(messages.PoolSocketError):
            agent.serve(None)
        assert run.communicate(timeout=60)[0] == "began\n"
        assert run.returncode == 7
    finally:
        run.kill()
        agent.close()
    first, *_, second = [message for message in agent.received if isinstance(message, AskClaim)]
    assert first.request_id == second.request_id
    assert isinstance(agent.received[-1], GiveBack)


@pytest.mark.parametrize("binds", [Bound(), ClaimRefused("the process of this lease has ended")])
@pytest.mark.parametrize("is_quick", [True, False])
def test_a_command_that_ends_while_its_run_finds_the_agent_again_is_given_back_with_its_status(
        binds: FromPool, is_quick: bool, tmp_path: Path) -> None:
    """Let the run or the agent be the first to see that."""
    agent = ScriptedAgent(tmp_path / "pool.sock")
    run = subprocess.Popen(
        [sys.executable, "-m", "gpudeck.cli.main", "run", "--", sys.executable, "-c",
         "import os, time; print(os.getpid(), flush=True); time.sleep(600)"],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {SOCKET_ENV: str(tmp_path / "pool.sock")})

    def ends() -> None:
        if is_quick:  # not seen by the run before it is answered
            run.send_signal(signal.SIGSTOP)
        os.kill(child, signal.SIGTERM)
        time.sleep(0.5)
        if is_quick:
            threading.Timer(0.2, run.send_signal, (signal.SIGCONT,)).start()

    try:
        with agent.grant():
            assert run.stdout is not None
            child = int(run.stdout.readline())
        [claim, _] = agent.received
        assert isinstance(claim, AskClaim)
        assert agent.restart_while(ends, binds) == GiveBack(
            claim.request_id, 128 + signal.SIGTERM)
        err = run.communicate(timeout=60)[1]
        assert run.returncode == 128 + signal.SIGTERM
        assert "the lease has ended" not in err
    finally:
        run.kill()
        agent.close()


def test_an_agent_that_hangs_up_at_once_is_not_asked_again_without_a_pause(tmp_path: Path) -> None:
    """Let the command have ended, and the agent be in the middle of something."""
    agent = ScriptedAgent(tmp_path / "pool.sock")
    run = subprocess.Popen(
        [sys.executable, "-m", "gpudeck.cli.main", "run", "--", "echo", "began"], cwd=ROOT,
        text=True, stdout=subprocess.PIPE,
        env=os.environ | {SOCKET_ENV: str(tmp_path / "pool.sock")})
    try:
        with agent.grant():
            assert run.stdout is not None
            assert run.stdout.readline() == "began\n"
        while run.poll() is None:
            with contextlib.suppress(messages.PoolSocketError, OSError, AssertionError):
                agent.bind_and_hang_up()
        assert run.returncode == 0
    finally:
        run.kill()
        run.communicate()
        agent.close()
    assert sum(isinstance(message, Bind) for message in agent.received) < 100
