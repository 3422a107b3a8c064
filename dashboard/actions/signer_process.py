"""The signer: the only process that holds the hub's key.

It speaks on the one socket that it inherited, to the hub that started it, and has no other. It ends
when that socket closes. signing_policy.py decides what it signs.
"""

import ctypes
import json
import os
import resource
import secrets
import signal
import socket
import sys
import time
from collections import deque
from pathlib import Path

import msgspec

from gpudeck.contract.actions import Command, Preview, Refusal
from gpudeck.contract.desired_state import (
    DesiredState,
    SignedDesired,
    desired_statement,
    encode_desired,
)
from gpudeck.contract.wire import (
    MAX_MESSAGE_BYTES,
    Call,
    Challenge,
    SignedCommand,
    command_statement,
    encode_command,
    preview_statement,
)
from gpudeck.errors import CommandError
from gpudeck.network.keys import fingerprint, is_signed

from ..runtime.data_folder import SIGNING_FILE, signing_log
from .hub_key import HubKey
from .signing_policy import RecentSignings, SigningBudget, SigningPolicy

PR_SET_DUMPABLE = 4
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
MOST_BYTES = 2 * MAX_MESSAGE_BYTES


class ProveHubRequest(msgspec.Struct, frozen=True, tag="prove"):
    """Asks to prove to a node that calls who this hub is."""

    call: Call
    hub_id: str


class NonceRequest(msgspec.Struct, frozen=True, tag="give_nonce"):
    pass


class RaiseEpochRequest(msgspec.Struct, frozen=True, tag="rise"):
    epoch: int


class SignCommandRequest(msgspec.Struct, frozen=True, tag="sign"):
    command: Command


class SignDesiredRequest(msgspec.Struct, frozen=True, tag="sign_desired"):
    desired: DesiredState


class SignerReady(msgspec.Struct, frozen=True, tag="ready"):
    public: bytes
    epoch: int


class SignerNonce(msgspec.Struct, frozen=True, tag="nonce"):
    nonce: bytes


class SignerRefusal(msgspec.Struct, frozen=True, tag="declined"):
    refusal: Refusal


Request = (ProveHubRequest | NonceRequest | RaiseEpochRequest | SignCommandRequest
           | SignDesiredRequest)
Answer = SignerReady | SignerNonce | SignerRefusal | SignedCommand | SignedDesired | Challenge

_encode = msgspec.msgpack.Encoder().encode
_request: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answer: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def frame(message: Request | Answer) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(4, "big") + body


def read_framed(link: socket.socket) -> bytes | None:
    """Read a message; None: the other side is gone. `link` may be gevent's kind of socket."""
    head = _exactly(link, 4)
    size = 0 if head is None else int.from_bytes(head, "big")
    if size > MOST_BYTES:
        raise ValueError(f"{size} bytes are too many")
    return None if head is None else _exactly(link, size)


def read_answer(link: socket.socket) -> Answer | None:
    body = read_framed(link)
    return None if body is None else _answer.decode(body)


def _exactly(link: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = link.recv(min(size, 65_536))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class SigningLedger:
    """What was signed in the last hour, and for which epoch: outlives this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / SIGNING_FILE

    def read(self) -> tuple[int, RecentSignings]:
        epoch, spent = signing_log(self._folder)
        return epoch, RecentSignings(deque((float(at), str(node)) for at, node in spent))

    def write(self, signing: SigningPolicy) -> None:
        draft = self._path.with_name(SIGNING_FILE + ".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"epoch": signing.epoch, "spent": list(signing.signings.at)}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)


class SignerService:
    """Answers one request at a time."""

    def __init__(self, key: HubKey, signing: SigningPolicy, ledger: SigningLedger) -> None:
        self._key = key
        self._signing = signing
        self._ledger = ledger

    def ready(self) -> SignerReady:
        return SignerReady(self._key.public, self._signing.epoch)

    def answer(self, request: Request) -> Answer:
        match request:
            case ProveHubRequest(call, hub_id):
                return self._key.challenge(call, hub_id, self._signing.epoch)
            case NonceRequest():
                nonce = secrets.token_bytes(32)
                self._signing.add_nonce(nonce, time.monotonic())
                return SignerNonce(nonce)
            case RaiseEpochRequest(epoch):
                if self._signing.raise_epoch(epoch):
                    self._ledger.write(self._signing)
                return self.ready()
            case SignCommandRequest(command):
                return self._sign(command)
            case SignDesiredRequest(desired):
                return self._sign_desired(desired)

    def _sign_desired(self, desired: DesiredState) -> SignedDesired | SignerRefusal:
        refusal = self._signing.judge_desired(desired, time.time())
        if refusal is not None:
            return SignerRefusal(refusal)
        body = encode_desired(desired)
        return SignedDesired(body, self._key.sign(desired_statement(body)))

    def _sign(self, command: Command) -> SignedCommand | SignerRefusal:
        refusal = self._signing.judge(command, is_shown(command), time.time(), time.monotonic())
        if refusal is not None:
            return SignerRefusal(refusal)
        try:
            self._ledger.write(self._signing)  # first: a crash must not free any budget
        except OSError as error:
            return SignerRefusal(Refusal("signer",
                                         "the signer cannot write down what it signs, so it "
                                         f"signs nothing: {os.strerror(error.errno or 0).lower()}"))
        body = encode_command(command)
        return SignedCommand(body, self._key.sign(command_statement(body)))


def is_shown(command: Command) -> bool:
    """Return whether the node itself has signed the preview."""
    preview: Preview | None = command.preview
    return (preview is not None and fingerprint(preview.key) == command.node_id
            and is_signed(preview.key, preview_statement(preview), preview.signature))


def _lock_up() -> None:
    """Keep other processes of the same user from reading the key in memory, and core files from
    storing it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise CommandError("this kernel lets others read the signer's memory (prctl "
                           "PR_SET_DUMPABLE); the signer does not start")


def _leave_the_network() -> None:
    """Move into a network namespace without any way out, where the kernel allows that to an
    ordinary user."""
    ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER | CLONE_NEWNET)


def main(words: list[str]) -> int:
    descriptor, folder, fleet, node = words
    # Ctrl-C is for the hub; this process ends after it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _lock_up()
    ledger = SigningLedger(Path(folder))
    epoch, signings = ledger.read()
    policy = SigningPolicy(SigningBudget(int(fleet), int(node)), epoch, signings)
    service = SignerService(HubKey(Path(folder)), policy, ledger)
    _leave_the_network()
    _lock_up()  # the change of namespace undoes it
    with socket.socket(fileno=int(descriptor)) as link:
        link.setblocking(True)  # the hub made it for gevent
        link.sendall(frame(service.ready()))
        while (body := read_framed(link)) is not None:
            link.sendall(frame(service.answer(_request.decode(body))))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CommandError as error:
        print(f"gpudeck signer: {error}", file=sys.stderr)
        sys.exit(error.code)
    except ConnectionError:
        sys.exit(0)
    except (ValueError, msgspec.MsgspecError) as error:
        # Not in the protocol: the other end is no longer this signer's hub.
        print(f"gpudeck signer: ended by an invalid message: {error}", file=sys.stderr)
        sys.exit(1)
