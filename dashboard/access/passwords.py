"""Password hashing with argon2. It is slow by design and runs in native threads, never in the
event loop."""

import unicodedata
from collections.abc import Callable
from typing import TypeVar

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError
from gevent.threadpool import ThreadPool

# OWASP's second choice of argon2id, twice over: some 60 ms of one core and 46 MiB while it runs.
MEMORY_KIB = 47_104
TIMES = 2
LANES = 1
# Hash of a discarded password, made as above. Checked where there is no user, so that timing does
# not reveal who exists.
NOBODY = ("$argon2id$v=19$m=47104,t=2,p=1$WUGgi0kub4z2K83DYteJ7g$"
          "m+1oJ4wZIzf3DJWLMyfZhv8d5zaaketdv+BSHwVLSic")
MAX_WAITING = 16
LEAST_LENGTH = 12
MOST_LENGTH = 1_024

T = TypeVar("T")


class PasswordQueueFullError(Exception):
    """More passwords wait to be checked than will be within a second or two."""


def flaw(password: str | None, name: str) -> str | None:
    """Return why this cannot be a password; None: it can, or there is none to set."""
    if password is None:
        return None
    if len(password) < LEAST_LENGTH:
        return f"a password has at least {LEAST_LENGTH} characters; three or four words are easiest"
    if len(password) > MOST_LENGTH:
        return f"a password has at most {MOST_LENGTH} characters"
    if len(set(password)) < 4 or password.casefold() == name.casefold():
        return "that password is too easy to guess; use three or four words"
    return None


def new_hasher() -> PasswordHasher:
    return PasswordHasher(TIMES, MEMORY_KIB, LANES, hash_len=32, salt_len=16, type=Type.ID)


def hash_password(password: str, hasher: PasswordHasher | None = None) -> str:
    """Hash in the calling thread."""
    return (hasher or new_hasher()).hash(_normal(password))


class PasswordService:
    """Hashes and verifies in two lanes, so that a crowd of strangers who guess does not delay users
    whose device is known."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or new_hasher()
        self._nobody = NOBODY if not self._hasher.check_needs_rehash(NOBODY) else (
            self._hasher.hash("nobody has this password"))
        self._pools = {True: ThreadPool(1), False: ThreadPool(1)}
        self._waiting = {True: 0, False: 0}

    def hash(self, password: str) -> str:
        """Hash in the lane of known devices: the caller has been authenticated."""
        return self._run_in_lane(True, lambda: hash_password(password, self._hasher))

    def fits(self, password: str, hashed: str | None, is_known: bool) -> bool:
        """Tell whether the password is right. `hashed` None: there is no such user, or the user has
        no password; the check takes as long and fails."""
        stored_hash = self._nobody if hashed is None else hashed
        fits = self._run_in_lane(is_known, lambda: self._verify(stored_hash, password))
        return fits and hashed is not None

    def _verify(self, hashed: str, password: str) -> bool:
        try:
            fits: bool = self._hasher.verify(hashed, _normal(password[:MOST_LENGTH]))
        except (VerificationError, InvalidHashError):
            return False
        return fits and len(password) <= MOST_LENGTH

    def _run_in_lane(self, lane: bool, work: Callable[[], T]) -> T:
        if self._waiting[lane] >= MAX_WAITING:
            raise PasswordQueueFullError
        self._waiting[lane] += 1
        try:
            output: T = self._pools[lane].apply(work)
            return output
        finally:
            self._waiting[lane] -= 1


def _normal(password: str) -> str:
    """Normalize as NIST SP 800-63B recommends: one text typed on two keyboards is the same."""
    return unicodedata.normalize("NFKC", password)
