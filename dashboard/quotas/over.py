"""For how long each job has been over a quota. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpudeck.quota import Quota
from gpudeck.quota_usage import QuotaBalance, QuotaOffender

HOLD_S = 30.0  # a job that is just being replaced by its next one is not warned
Key = tuple[str, str, str]  # Quota, node and job


@dataclass(slots=True)
class OverQuotaTracker:
    """Since when which job has been one that would go. Only a sum that was made anew counts."""

    since: dict[Key, float] = field(default_factory=dict)

    def saw(self, found: Iterable[QuotaBalance], now: float) -> None:
        keys = {_key(each.quota, offender) for each in found if each.is_over
                for offender in each.offenders}
        self.since = {key: self.since.get(key, now) for key in keys}


def _key(quota: Quota, offender: QuotaOffender) -> Key:
    return quota.id, offender.node_id, offender.job_id


def still_there(spared: Mapping[str, str], tasks: Iterable[str]) -> dict[str, str]:
    """What its node would not let go, as long as it is there."""
    there = set(tasks)
    return {task_id: why for task_id, why in spared.items() if task_id in there}
