"""The name under which this node keeps its leases of the pool, and the GPUs that they hold: what
stands below the pool must not take one away."""

import msgspec

from .store import ActionJournal, JournalError

NAME = "pool_leases"


class _LeasedGpus(msgspec.Struct):
    uuids: tuple[str, ...]


class _LeasesOnDisk(msgspec.Struct):
    boot_id: str
    leases: list[_LeasedGpus]


def leased_gpus(journal: ActionJournal, boot_id: str) -> frozenset[str]:
    """Of this boot; the machine's restart ends a lease. Raises JournalError."""
    said = journal.fact(NAME)
    if said is None:
        return frozenset()
    try:
        stored = msgspec.json.decode(said, type=_LeasesOnDisk)
    except msgspec.MsgspecError as error:
        raise JournalError(f"the leases in the journal are not understood ({error})") from error
    return frozenset(uuid for lease in stored.leases for uuid in lease.uuids
                     if stored.boot_id == boot_id)
