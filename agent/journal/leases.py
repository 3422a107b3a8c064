"""GPUs that leases of this node's pool hold, or wait for: packages below the pool must not take one
away."""

from collections.abc import Sequence

import msgspec

from .facts import Fact
from .store import ActionJournal, JournalError


class _LeasedGpus(msgspec.Struct):
    uuids: tuple[str, ...]
    id: str = ""
    home_gpus: tuple[str, ...] = ()


class _LeasesOnDisk(msgspec.Struct):
    boot_id: str
    leases: list[_LeasedGpus]
    unread: list[str] = []


def leased_gpus(journal: ActionJournal, boot_id: str) -> frozenset[str]:
    """Return the GPUs leased in this boot. Raises JournalError."""
    return frozenset(uuid for _, uuid in leases_of_gpus(journal, boot_id))


def leases_of_gpus(journal: ActionJournal, boot_id: str) -> frozenset[tuple[str, str]]:
    """Return each lease of this boot with each GPU of it; the machine's restart ends a lease.
    Raises JournalError."""
    return frozenset((lease.id, uuid) for lease in _leases(journal, boot_id)
                     for uuid in lease.uuids)


def waiting_leases(journal: ActionJournal, boot_id: str) -> frozenset[str]:
    """Return the leases whose work is suspended, and which wait for their GPUs. Raises
    JournalError."""
    return frozenset(lease.id for lease in _leases(journal, boot_id)
                     if lease.home_gpus and not lease.uuids)


def _leases(journal: ActionJournal, boot_id: str) -> Sequence[_LeasedGpus]:
    text = journal.fact(Fact.POOL_LEASES)
    if text is None:
        return ()
    try:
        stored = msgspec.json.decode(text, type=_LeasesOnDisk)
    except msgspec.MsgspecError as error:
        raise JournalError(f"the leases in the journal are not understood ({error})") from error
    if stored.boot_id != boot_id:
        return ()
    if stored.unread:
        raise JournalError("some leases in the journal are not understood")
    return stored.leases
