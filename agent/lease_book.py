"""The leases of this node, on disk before they are in force."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpudeck.limits import Lease

from . import leases
from .acts_journal import ActsJournal, JournalRefuses
from .leases import Clock

NAME = "leases"
_DECODER: msgspec.json.Decoder[tuple[Lease, ...]] = msgspec.json.Decoder(tuple[Lease, ...])


@dataclass(slots=True)
class LeaseBook:
    """Raises JournalRefuses. `is_shared`: another process may write it as well; else what was read
    once holds."""

    journal: ActsJournal
    is_shared: bool = True
    _known: tuple[Lease, ...] | None = field(default=None)

    def all(self) -> tuple[Lease, ...]:
        if self.is_shared or self._known is None:
            self._known = _read(self.journal.fact(NAME))
        return self._known

    @property
    def is_surely_empty(self) -> bool:
        """Without a look at the disk."""
        return not self.is_shared and self._known == ()

    def begin(self, lease: Lease) -> None:
        """It takes the place of another on the same limit."""
        self._change(lambda all: leases.with_new(all, lease),
                     {"kind": "lease", "lease": msgspec.to_builtins(lease)})

    def note(self, lease: Lease) -> None:
        """What is known of it now; in the Audit where it is another state than before."""
        was = next((each for each in self.all() if each.lease_id == lease.lease_id), None)
        if was is None or was == lease:
            return
        news = was.state != lease.state
        self._change(lambda all: leases.with_news(all, lease), {
            "kind": "lease_state", "lease_id": lease.lease_id, "state": lease.state,
            "words": lease.words} if news else None)

    def end(self, lease: Lease, why: str) -> None:
        self._change(lambda all: leases.without(all, lease.lease_id), {
            "kind": "lease_over", "lease_id": lease.lease_id, "gpu_uuid": lease.gpu_uuid,
            "why": why})

    def put_back(self, lease: Lease, former: tuple[Lease, ...]) -> None:
        """It never came to be: what it took the place of is there again."""
        self._change(lambda _: former, {"kind": "lease_over", "lease_id": lease.lease_id,
                                        "gpu_uuid": lease.gpu_uuid, "why": "it was refused"})

    def _change(self, turn: Callable[[tuple[Lease, ...]], tuple[Lease, ...]],
                record: dict[str, Any] | None) -> None:
        def turned(text: str | None) -> str | None:
            self._known = turn(_read(text))
            return msgspec.json.encode(self._known).decode() if self._known else None

        try:
            self.journal.change(NAME, turned, record)
        except JournalRefuses:
            self._known = None
            raise


def _read(text: str | None) -> tuple[Lease, ...]:
    if not text:
        return ()
    try:
        return _DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise JournalRefuses(f"the leases in the journal are not understood ({error})") from error


def clock_now(boot_id: str) -> Clock:
    return Clock(time.time(), boot_id, time.clock_gettime(time.CLOCK_BOOTTIME))
