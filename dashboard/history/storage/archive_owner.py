"""Ownership of a prefix: the hub whose token is in the object there writes below it. A token is in
no backup, so that a hub made from one reads what is there and changes nothing."""

import json
import secrets
from contextlib import suppress
from pathlib import Path

from .manifest import write_whole
from .s3 import S3Bucket, S3Error, S3ExistsError, S3MissingError

KEY = "gpudeck-owner.json"
FILE = "archive.owner"


class NotOwnerError(S3Error):
    """Ownership error: nothing may be written there."""


class ArchiveOwner:
    def __init__(self, folder: Path, store: S3Bucket, hub: str) -> None:
        self._path = folder / FILE
        self._store = store
        self._hub = hub

    def check(self, is_new: bool) -> None:
        """Check ownership, before anything is written or deleted there. `is_new`: nothing of this
        hub's can be there, so that a prefix of nobody may become its own."""
        owner = self.read_owner()
        if owner is None:
            if not is_new:
                raise NotOwnerError(f"there is no {KEY}, so this is not where this hub's files "
                                    "went; if it is, run `gpudeck history own-archive`")
            with suppress(S3ExistsError):  # of two at once, the object says who was first
                self._store.put_small(KEY, self._words(), only_new=True)
            owner = self.read_owner()
        token, hub = owner or ("", "nobody")
        if token != self._token():
            raise NotOwnerError(f"it belongs to the hub {hub!r}; name another prefix, or, where "
                                "that hub is no more, run `gpudeck history own-archive`")

    def read_owner(self) -> tuple[str, str] | None:
        """Return token and name of the hub that owns it; None: nobody does."""
        try:
            owner = json.loads(self._store.get_small(KEY))
            return str(owner["token"]), str(owner["hub"])[:80]
        except S3MissingError:
            return None
        except (ValueError, KeyError, TypeError):
            raise NotOwnerError(f"its {KEY} does not read") from None

    def take(self) -> None:
        self._store.put_small(KEY, self._words(), only_new=False)

    def _words(self) -> bytes:
        return json.dumps({"token": self._token(), "hub": self._hub}).encode()

    def _token(self) -> str:
        if not self._path.exists():
            write_whole(self._path, secrets.token_hex(16).encode())
        return self._path.read_text()
