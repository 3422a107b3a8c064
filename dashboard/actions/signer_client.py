"""The hub's end of the signer: starts it, sends it requests, restarts it."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TypeVar

import gevent
import msgspec
from gevent import socket as gsocket
from gevent.lock import RLock

from gpudeck.contract.actions import Command, Refusal
from gpudeck.contract.desired_state import DesiredState, SignedDesired
from gpudeck.contract.wire import Call, Challenge, SignedCommand
from gpudeck.errors import CommandError, ExitCode
from gpudeck.network.keys import fingerprint
from gpudeck.system.child_processes import importable

from ..errors import SignerUnavailableError
from ..settings import HubSettings
from .signer_process import (
    Answer,
    NonceRequest,
    ProveHubRequest,
    RaiseEpochRequest,
    Request,
    SignCommandRequest,
    SignDesiredRequest,
    SignerNonce,
    SignerReady,
    SignerRefusal,
    frame,
    read_answer,
)
from .signing_policy import SigningBudget

log = logging.getLogger("gpudeck.actions")

START_WITHIN_S = 30.0
ANSWER_WITHIN_S = 2.0
WAIT_FOR_IT_S = 4.0  # for a node that calls in the meantime; it would not wait longer
CHECK_EVERY_S = 0.1
AGAIN_AFTER_S, AGAIN_MOST_S = 0.2, 10.0
STEADY_S = 20.0
Signed = TypeVar("Signed", SignedCommand, SignedDesired)
MODULE = f"{__package__}.signer_process"

GONE = Refusal("signer", "the hub's signer is not running; it is being restarted; try again in "
               "a few seconds (if this persists, see the hub's log)")


class SignerClient:
    """Client of the signer's process, which starts with it, so that it is ready when needed."""

    def __init__(self, folder: Path, budget: SigningBudget) -> None:
        self._folder = folder
        self._budget = budget
        self._lock = RLock()
        self._link: gsocket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._public: bytes | None = None
        self._started_mono = self._start_mono = -1e9
        self._wait_s = AGAIN_AFTER_S
        self._is_ready = False
        self.epoch = 0
        self._spawn()

    def _spawn(self) -> None:
        own_end, other_end = gsocket.socketpair()
        with other_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(other_end.fileno()), str(self._folder),
                 str(self._budget.fleet), str(self._budget.node)],
                pass_fds=[other_end.fileno()], env=_environment(), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL)
        self._link = own_end
        self._is_ready = False
        self._started_mono = time.monotonic()

    def wait(self) -> None:
        """Wait until the signer is ready for the first time."""
        with self._lock:
            if self._is_ready:
                return
            try:
                self._handshake()
            except SignerUnavailableError as error:
                raise CommandError("the signer does not start; the lines above say why",
                                   ExitCode.CANNOT_START) from error

    def _handshake(self) -> None:
        ready = self._receive(SignerReady, START_WITHIN_S)
        if self._public not in (None, ready.public):
            log.error("signer_key_changed; hub.key was replaced while the hub runs: restart it")
            self._stop()
            raise SignerUnavailableError
        self._public = ready.public
        self.epoch = max(self.epoch, ready.epoch)
        self._is_ready = True

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_ready(self) -> bool:
        return self._is_ready

    @property
    def fingerprint(self) -> str:
        assert self._public is not None, "wait() comes first"
        return fingerprint(self._public)

    # -- requests

    def challenge(self, call: Call, hub_id: str) -> Challenge:
        """Return a challenge for a node; while there is no signer, wait for the next one."""
        deadline = time.monotonic() + WAIT_FOR_IT_S
        while True:
            try:
                challenge_: Challenge = self._ask(ProveHubRequest(call, hub_id), Challenge)
                return challenge_
            except SignerUnavailableError:
                if time.monotonic() > deadline:
                    raise
                gevent.sleep(CHECK_EVERY_S)

    def nonce(self) -> bytes:
        reply: SignerNonce = self._ask(NonceRequest(), SignerNonce)
        return reply.nonce

    def raise_epoch(self, epoch: int) -> int:
        """Raise the epoch, and return the signer's one from now on. The hub's own may have been
        higher, which is no reason to go back."""
        self.epoch = self._ask(RaiseEpochRequest(epoch), SignerReady).epoch
        return self.epoch

    def sign(self, command: Command) -> SignedCommand | Refusal:
        return self._sign(SignCommandRequest(command), SignedCommand)

    def sign_desired(self, desired: DesiredState) -> SignedDesired | Refusal:
        return self._sign(SignDesiredRequest(desired), SignedDesired)

    def _sign(self, request: Request, kind: type[Signed]) -> Signed | Refusal:
        try:
            answer: Signed | SignerRefusal = self._ask(request, (kind, SignerRefusal))
        except SignerUnavailableError:
            return GONE
        return answer.refusal if isinstance(answer, SignerRefusal) else answer

    def _ask(self, request: Request, kind: Any) -> Any:
        with self._lock:
            if self._link is None or not self._is_ready:
                raise SignerUnavailableError
            try:
                with gevent.Timeout(ANSWER_WITHIN_S, TimeoutError()):
                    self._link.sendall(frame(request))
            except OSError as error:
                self._stop()
                raise SignerUnavailableError from error
            return self._receive(kind, ANSWER_WITHIN_S)

    def _receive(self, kind: Any, within_s: float) -> Any:
        answer: Answer | None = None
        try:
            assert self._link is not None
            with gevent.Timeout(within_s, TimeoutError()):
                answer = read_answer(self._link)
        except (OSError, ValueError, msgspec.MsgspecError):
            pass
        if not isinstance(answer, kind):
            self._stop()
            raise SignerUnavailableError
        return answer

    # -- the process

    def step(self, _now: float, mono: float) -> None:
        with self._lock:
            self._restart_if_ended(mono)

    def _restart_if_ended(self, mono: float) -> None:
        if self._process is not None and self._process.poll() is not None:
            log.warning("signer_ended status=%s", self._process.returncode)
            self._stop()
        if self._process is None and mono >= self._start_mono:
            self._spawn()
            try:
                self._handshake()
            except SignerUnavailableError:
                return
            log.info("signer_started pid=%s", self.pid)

    def _stop(self) -> None:
        self._is_ready = False
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        mono = time.monotonic()
        is_steady = mono - self._started_mono > STEADY_S
        self._wait_s = AGAIN_AFTER_S if is_steady else min(self._wait_s * 2, AGAIN_MOST_S)
        self._start_mono = mono + self._wait_s

    def close(self) -> None:
        with self._lock:
            self._stop()


def start_signer(settings: HubSettings) -> SignerClient:
    return SignerClient(settings.data, SigningBudget(settings.signer_ends_per_hour,
                                                     settings.signer_ends_per_node_hour))


def _environment() -> dict[str, str]:
    """Return only the variables that it needs to find its own code."""
    variables = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG")
                 if name in os.environ}
    return importable(__package__, variables)
