"""`gpudeck run` whose agent goes away at each step before its command runs. A real run, and an
agent that answers as it is told to."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpudeck.contract import pool_messages as messages
from gpudeck.contract.pool_messages import (
    SOCKET_ENV,
    AskClaim,
    Bind,
    Bound,
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
