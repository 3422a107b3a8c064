"""Identity of this node, and of the hub it belongs to: its key, and the fingerprint of the hub's.

Both lie in the agent's data folder. The hub is pinned at enrolment, from the token, and from then
on nothing is sent to a hub with another key.
"""

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpudeck.contract import wire
from gpudeck.contract.actions import Preview
from gpudeck.errors import CommandError, ExitCode
from gpudeck.network.keys import (
    EnrolmentToken,
    SigningKey,
    derived_seed,
    fingerprint,
    is_signed,
    kept_seed,
)

from .protocol import HubIdentityError

KEY_FILE = "agent.key"
HUB_FILE = "hub.fingerprint"
HOW_TO_FORGET = ("if this is intended, stop this agent, run `gpudeck agent --forget-hub` as its "
                 "user with its --data, and enrol it again")


def pinned_hub(data: Path, offered: str | None) -> str:
    """Return the hub that this folder's nodes belong to; the first time, the one of the token."""
    pinned = _read(data / HUB_FILE)
    if pinned is None and offered is None:
        raise CommandError("this node is not enrolled with a hub yet; run `gpudeck token create "
                           "agent` where the hub is, and start the agent once with that token by "
                           "--token-file or GPUDECK_TOKEN; without a hub: gpudeck agent --alone",
                           ExitCode.CANNOT_START)
    if pinned is None:
        _write(data / HUB_FILE, offered or "")
    elif offered not in (None, pinned):
        raise CommandError(f"this node belongs to the hub with the key {pinned}, the token to the "
                           f"one with the key {offered}; {HOW_TO_FORGET}", ExitCode.CANNOT_START)
    return pinned or offered or ""


def belongs_to_a_hub(data: Path) -> bool:
    return _read(data / HUB_FILE) is not None


def forget_hub(data: Path) -> None:
    (data / HUB_FILE).unlink(missing_ok=True)


def node_key(data: Path, name: str = "") -> SigningKey:
    """Return the key of this machine, or of one simulated node."""
    seed = kept_seed(data / KEY_FILE)
    return SigningKey(derived_seed(seed, name) if name else seed)


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    key: SigningKey
    hub: str  # the fingerprint of its key; "": none so far
    token: EnrolmentToken | None = None  # for the first time

    @property
    def node_id(self) -> str:
        return fingerprint(self.key.public)

    def prove(self, call: wire.Call, challenge: wire.Challenge, hello: wire.Hello) -> wire.Hello:
        """Return the same Hello, signed. Raises HubIdentityError."""
        self.check(call, challenge)
        token, enrolment = self.token, None
        if token is not None:
            signature = SigningKey(token.seed).sign(wire.enrolment_statement(challenge, hello))
            enrolment = wire.Enrolment(token.id, signature)
        signed = self.key.sign(wire.node_statement(challenge, hello))
        return msgspec.structs.replace(hello, signature=signed, enrolment=enrolment)

    def check(self, call: wire.Call, challenge: wire.Challenge) -> None:
        check_hub(self.hub, call, challenge)


def check_hub(pinned: str, call: wire.Call, challenge: wire.Challenge) -> None:
    """Check that this comes from our hub. Raises HubIdentityError."""
    found_hub = fingerprint(challenge.hub_key)
    if found_hub != pinned:
        raise HubIdentityError(
            f"this hub has the key {found_hub}, not {pinned}, with which this node "
            f"is enrolled: another hub, or an interception; {HOW_TO_FORGET}")
    if not is_signed(challenge.hub_key, wire.hub_statement(call, challenge), challenge.signature):
        raise HubIdentityError("the server claims our hub's key but cannot prove it; nothing "
                               "is sent")


def new_call() -> wire.Call:
    return wire.Call(secrets.token_bytes(32))


def _read(path: Path) -> str | None:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
            text = file.read(64).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", ExitCode.CANNOT_START
                           ) from error
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise CommandError(f"{path} holds no fingerprint; {HOW_TO_FORGET}", ExitCode.CANNOT_START)
    return text


def _write(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, flags, 0o600), "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}; free some space or mend the "
                           "disk, then start it again", ExitCode.CANNOT_START) from error


def is_shown_by(preview: Preview, node_id: str, key: bytes) -> bool:
    return (preview.node_id == node_id and preview.key == key
            and is_signed(key, wire.preview_statement(preview), preview.signature))
