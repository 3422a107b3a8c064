"""GPUs that leases of this node's pool hold: packages below the pool must not take one away."""

import msgspec

from .facts import Fact
from .store import ActionJournal, JournalError


class _LeasedGpus(msgspec.Struct):
    uuids: tuple[str, ...]
    id: str = ""


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
    text = journal.fact(Fact.POOL_LEASES)
    if text is None:
        return frozenset()
    try:
        stored = msgspec.json.decode(text, type=_LeasesOnDisk)
    except msgspec.MsgspecError as error:
        raise JournalError(f"the leases in the journal are not understood ({error})") from error
    if stored.boot_id != boot_id:
        return frozenset()
    if stored.unread:
        raise JournalError("some leases in the journal are not understood")
    return frozenset((lease.id, uuid) for lease in stored.leases for uuid in lease.uuids)
