"""Ed25519 keys of nodes and hubs, and the token that introduces them to each other once.

Proof by signature and not by a shared secret: what the hub stores of a node, or of a token, lets
nobody speak for it. The only file that uses `cryptography`.
"""

import base64
import binascii
import errno
import hashlib
import os
import pwd
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from gpudeck.errors import CommandError, ExitCode

SEED_BYTES = 32
TOKEN_MARK = "gdk1"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_FINGERPRINT = re.compile(r"[0-9a-f]{32}")
_TOKEN_ID = re.compile(r"[0-9a-f]{16}")


class SigningKey:
    """The secret half of a key; it never reveals itself."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        return self._key.sign(statement)


# Points of small order, without their sign bit, as libsodium's ge25519_has_small_order lists them:
# OpenSSL takes them for keys, and a "signature" by one fits every fourth statement or so.
_SMALL_ORDER = frozenset(bytes.fromhex(point) for point in (
    "00" * 32, "01" + "00" * 31,
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ec" + "ff" * 30 + "7f", "ed" + "ff" * 30 + "7f", "ee" + "ff" * 30 + "7f"))


def is_signed(public: bytes, statement: bytes, signature: bytes) -> bool:
    if public[:31] + bytes([public[-1] & 0x7F]) in _SMALL_ORDER:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def fingerprint(public: bytes) -> str:
    """Return the name of a key, and of the node that holds it."""
    return hashlib.sha256(public).hexdigest()[:32]


def spaced(name: str) -> str:
    """Format a fingerprint so that two people can compare it."""
    return " ".join(name[at : at + 4] for at in range(0, len(name), 4))


def kept_seed(path: Path) -> bytes:
    """Return the seed in this file, made at the first start. Readable by its owner alone, or
    refused."""
    try:
        _make_seed(path)
        return _read_seed(path)
    except OSError as error:
        cure = ("free some space, then start it again" if error.errno in NO_ROOM
                else "it must be a plain file of the user who runs this")
        raise CommandError(f"cannot use the key {path}: {os.strerror(error.errno or 0).lower()}; "
                           f"{cure}", ExitCode.CANNOT_START) from error


BOX_MARK = b"gpudeck box 1\0"
SALT_BYTES, NONCE_BYTES = 16, 12


def locked_box(passphrase: str, content: bytes) -> bytes:
    """Encrypt: only the passphrase opens it, and a change is noticed."""
    salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
    return BOX_MARK + salt + nonce + _cipher(passphrase, salt).encrypt(nonce, content, BOX_MARK)


def opened_box(passphrase: str, box: bytes) -> bytes:
    """Decrypt. Raises ValueError."""
    at = len(BOX_MARK)
    salt, nonce = box[at : at + SALT_BYTES], box[at + SALT_BYTES :][:NONCE_BYTES]
    if not box.startswith(BOX_MARK) or len(nonce) < NONCE_BYTES:
        raise ValueError("this is not a box of gpudeck")
    try:
        return _cipher(passphrase, salt).decrypt(nonce, box[at + SALT_BYTES + NONCE_BYTES :],
                                                 BOX_MARK)
    except InvalidTag as error:
        raise ValueError("the passphrase is wrong, or the file was changed") from error


def _cipher(passphrase: str, salt: bytes) -> ChaCha20Poly1305:
    """Make the cipher: 64 MiB and some 0.2 s for each guess."""
    return ChaCha20Poly1305(hashlib.scrypt(
        passphrase.encode(), salt=salt, n=2**16, r=8, p=1, maxmem=2**27, dklen=32))


def derived_seed(seed: bytes, name: str) -> bytes:
    """Derive the seed of a simulated node: each has its own key, all from one file."""
    return hashlib.sha256(b"gpudeck simulated node\0" + seed + name.encode()).digest()


def _make_seed(path: Path) -> None:
    """Write the seed whole or not at all: a power cut must not leave half a key."""
    if os.path.lexists(path):
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(draft, "wb", opener=_private) as file:
            file.write(secrets.token_bytes(SEED_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # fails where another process was faster
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_EXCL, 0o600)


def _read_seed(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        about = os.fstat(file.fileno())
        if about.st_uid != os.geteuid():
            owner = _name_of(about.st_uid)
            raise CommandError(f"the key {path} belongs to another user; run this as that one (as "
                               f"root: runuser -u {owner} -- gpudeck …)", ExitCode.CANNOT_START)
        if stat.S_IMODE(about.st_mode) & 0o077:
            raise CommandError(f"the key {path} can be read by others; treat it as stolen: delete "
                               "it and enrol again, or, if it never was, run: chmod 600 " +
                               str(path), ExitCode.CANNOT_START)
        seed = file.read(SEED_BYTES + 1)
    if len(seed) != SEED_BYTES:
        raise CommandError(f"{path} is not a key of gpudeck; delete it and enrol again",
                           ExitCode.CANNOT_START)
    return seed


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


@dataclass(frozen=True, slots=True)
class EnrolmentToken:
    """Admits one node, once. It is a key itself, so it is never sent: the node signs with it, and
    the hub stores only its public half. It names the hub's key, so that a node knows its hub at the
    first connection already."""

    id: str
    seed: bytes
    hub: str  # fingerprint of the hub's key

    @classmethod
    def new(cls, hub: str) -> "EnrolmentToken":
        return cls(secrets.token_hex(8), secrets.token_bytes(SEED_BYTES), hub)

    @classmethod
    def read(cls, text: str) -> "EnrolmentToken":
        """Parse a token. Raises ValueError with a sentence that does not repeat the secret."""
        mark, *parts = text.strip().split(".")
        if mark != TOKEN_MARK or len(parts) != 3:
            raise ValueError("this is not an enrolment token (gdk1.…); the hub's `gpudeck token "
                             "create agent` prints one")
        token_id, secret, hub = parts
        seed = _decoded(secret)
        if not _TOKEN_ID.fullmatch(token_id) or not _FINGERPRINT.fullmatch(hub) or seed is None:
            raise ValueError("the enrolment token is cut off or mistyped; copy the whole line")
        return cls(token_id, seed, hub)

    @property
    def text(self) -> str:
        secret = base64.urlsafe_b64encode(self.seed).decode().rstrip("=")
        return ".".join((TOKEN_MARK, self.id, secret, self.hub))

    def __repr__(self) -> str:
        return f"Token({self.id})"


def _decoded(secret: str) -> bytes | None:
    try:
        seed = base64.b64decode(secret + "=", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    return seed if len(seed) == SEED_BYTES else None
