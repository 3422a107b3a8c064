"""Ownership of a prefix: the hub whose token is in the object there writes below it. A token is in
no backup, so that a hub made from one reads what is there and changes nothing.

Hubs that share their state share a prefix. The one whose turn it is claims it, with a mark under
another key: a hub that stalled within a write replaces no mark of the next one.
"""

import json
import secrets
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .archive_mark import KEY as MARK
from .manifest import write_whole
from .s3 import S3Bucket, S3Error, S3ExistsError, S3MissingError

KEY = "gpudeck-owner.json"
FILE = "archive.owner"
MARK_OF_CLAIM = "gpudeck-history.{0}-{1}.mark"  # term, and what no other claim has


class NotOwnerError(S3Error):
    """Ownership error: nothing may be written there."""


@dataclass(frozen=True, slots=True)
class OwnerEntry:
    """`marks`: keys of the owner's mark and of those that count until it is there, newest first."""

    token: str
    hub: str
    term: int = 0
    marks: tuple[str, ...] = (MARK,)

    @classmethod
    def read(cls, data: bytes) -> "OwnerEntry":
        entry = json.loads(data)
        return cls(str(entry["token"]), str(entry["hub"])[:80], int(entry.get("term", 0)),
                   tuple(map(str, entry.get("marks", (MARK,)))) or (MARK,))

    @property
    def data(self) -> bytes:
        more = {"term": self.term, "marks": self.marks} if self.marks != (MARK,) else {}
        return json.dumps({"token": self.token, "hub": self.hub, **more}).encode()


def folder_token(folder: Path) -> str:
    """Return the token of the hub in this folder of history, which is made when it is first asked
    for."""
    path = folder / FILE
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, secrets.token_hex(16).encode())
    return path.read_text()


class ArchiveOwner:
    def __init__(self, folder: Path, store: S3Bucket, hub: str, check_term: Callable[[], None]
                 ) -> None:
        """`check_term`: raises an error if another hub may be writing there since."""
        self._folder = folder
        self._store = store
        self._hub = hub
        self.check_term = check_term
        self.marks: tuple[str, ...] = (MARK,)  # as the owner object said last

    def check(self, is_new: bool) -> None:
        """Check ownership, before anything is written or deleted there. `is_new`: nothing of this
        hub's can be there, so that a prefix of nobody may become its own."""
        self.check_term()
        owner = self.read_owner()
        if owner is None:
            if not is_new:
                raise NotOwnerError(f"there is no {KEY}, so this is not where this hub's files "
                                    "went; if it is, run `gpudeck history own-archive`")
            with suppress(S3ExistsError):  # of two at once, the object says who was first
                self._put(self._entry(), only_new=True)
            owner = self.read_owner()
        token, hub = ("", "nobody") if owner is None else (owner.token, owner.hub)
        if token != folder_token(self._folder):
            raise NotOwnerError(f"it belongs to the hub {hub!r}; name another prefix, or, where "
                                "that hub is no more, run `gpudeck history own-archive`")

    def read_owner(self) -> OwnerEntry | None:
        """Return the entry of the hub that owns it; None: nobody does."""
        try:
            entry = OwnerEntry.read(self._store.get_small(KEY))
        except S3MissingError:
            return None
        except (ValueError, KeyError, TypeError):
            raise NotOwnerError(f"its {KEY} does not read") from None
        self.marks = entry.marks
        return entry

    def take(self) -> None:
        """Take it over by hand: the hub that wrote there does not run any more."""
        former = self.read_owner()
        self._put(self._entry() if former is None else self._entry(marks=former.marks),
                  only_new=False)

    def claim(self, peers: Collection[str], term: int, marks: Iterable[str]) -> None:
        """Take it over in this hub's turn. `peers`: tokens of the hubs that share its state;
        `marks`: keys of this claim's mark and of those before."""
        self.check_term()
        former = self.read_owner()
        if former is not None and former.token not in {*peers, folder_token(self._folder)}:
            raise NotOwnerError(f"it belongs to the hub {former.hub!r}, which does not share this "
                                "hub's state; where that hub is no more, run `gpudeck history "
                                "own-archive`")
        if former is not None and former.term > term:
            raise NotOwnerError(f"the hub {former.hub!r} took it later than this one")
        before = (MARK,) if former is None else former.marks
        self._put(self._entry(term, tuple(dict.fromkeys((*marks, *before)))), only_new=False)
        self.check(is_new=False)

    def has(self, key: str) -> bool:
        """Return whether there is an object with this key."""
        try:
            self._store.get_small(key)
        except S3MissingError:
            return False
        return True

    def _entry(self, term: int = 0, marks: tuple[str, ...] = (MARK,)) -> OwnerEntry:
        return OwnerEntry(folder_token(self._folder), self._hub, term, marks)

    def _put(self, entry: OwnerEntry, only_new: bool) -> None:
        self._store.put_small(KEY, entry.data, only_new)


def new_mark_key(term: int) -> str:
    return MARK_OF_CLAIM.format(term, secrets.token_hex(4))
