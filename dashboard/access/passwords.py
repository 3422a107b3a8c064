"""The only argon2. Hashing takes its time in a native thread, never in the loop."""

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
# Of a password that was thrown away, hashed as above. Checked where there is no user, so that no
# clock tells who exists.
NOBODY = ("$argon2id$v=19$m=47104,t=2,p=1$WUGgi0kub4z2K83DYteJ7g$"
          "m+1oJ4wZIzf3DJWLMyfZhv8d5zaaketdv+BSHwVLSic")
MAX_WAITING = 16
LEAST_LENGTH = 12
MOST_LENGTH = 1_024

T = TypeVar("T")


class PasswordQueueFullError(Exception):
    """More passwords wait to be checked than will be within a second or two."""


def flaw(password: str | None, name: str) -> str | None:
    """Why this cannot be a password, in a sentence; None: it can, or there is none to set."""
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
    """At once, in this thread."""
    return (hasher or new_hasher()).hash(_normal(password))


class PasswordService:
    """Two lanes: a crowd of strangers who guess keeps none waiting whose device is known."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or new_hasher()
        self._nobody = NOBODY if not self._hasher.check_needs_rehash(NOBODY) else (
            self._hasher.hash("nobody has this password"))
        self._pools = {True: ThreadPool(1), False: ThreadPool(1)}
        self._waiting = {True: 0, False: 0}

    def hash(self, password: str) -> str:
        """For who has shown who they are."""
        return self._beside(True, lambda: hash_password(password, self._hasher))

    def fits(self, password: str, hashed: str | None, is_known: bool) -> bool:
        """`hashed` None: there is no such user, or none with a password; takes as long."""
        held = self._nobody if hashed is None else hashed
        fits = self._beside(is_known, lambda: self._verify(held, password))
        return fits and hashed is not None

    def _verify(self, hashed: str, password: str) -> bool:
        try:
            fits: bool = self._hasher.verify(hashed, _normal(password[:MOST_LENGTH]))
        except (VerificationError, InvalidHashError):
            return False
        return fits and len(password) <= MOST_LENGTH

    def _beside(self, lane: bool, work: Callable[[], T]) -> T:
        if self._waiting[lane] >= MAX_WAITING:
            raise PasswordQueueFullError
        self._waiting[lane] += 1
        try:
            found: T = self._pools[lane].apply(work)
            return found
        finally:
            self._waiting[lane] -= 1


def _normal(password: str) -> str:
    """As NIST SP 800-63B has it: what looks the same on two keyboards is the same."""
    return unicodedata.normalize("NFKC", password)
