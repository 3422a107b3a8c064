"""All that sets limits on one node, and what of it is on disk."""

from dataclasses import dataclass

from ..journal.store import ActionJournal
from .apply import LimitApplier
from .compute_modes import ComputeModeStore
from .mps import LocalMpsDaemons
from .mps_store import MpsSettingStore
from .timed_limit_store import TimedLimitStore


@dataclass(frozen=True, slots=True)
class LimitStores:
    """`applier` sets limits of GPUs, `mps` those of MPS; the others are on disk."""

    applier: LimitApplier
    mps: LocalMpsDaemons
    timed: TimedLimitStore
    modes: ComputeModeStore
    mps_settings: MpsSettingStore


def open_limits(applier: LimitApplier, mps: LocalMpsDaemons, journal: ActionJournal, boot_id: str,
                is_shared: bool) -> LimitStores:
    """`is_shared`: another process may write the journal as well."""
    return LimitStores(applier, mps, TimedLimitStore(journal, is_shared),
                       ComputeModeStore(journal, is_shared), MpsSettingStore(journal, boot_id))
