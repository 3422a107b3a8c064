"""The quotas in force: one copy in memory for all that sum, deploy, change or show them."""

from gpudeck.quota import Quota
from gpudeck.quota_usage import QuotaIndex

from ..nodes.events import GroupChanged
from ..runtime.dispatcher import Dispatcher
from .events import QuotasChanged
from .store import QuotasStore


class ActiveQuotas:
    """The quotas in force by id, and the generation under which nodes get them."""

    def __init__(self, store: QuotasStore, events: Dispatcher) -> None:
        self._store = store
        self._events = events
        self.reload()
        events.listen(GroupChanged, lambda _: self._renew())

    def reload(self) -> None:
        """To be called after every change of the stored quotas."""
        self.versions = self._store.quotas()
        self.generation = self._store.generation()
        self.index = QuotaIndex(version.quota for version in self.versions.values())
        self._events.dispatch(QuotasChanged())

    def _renew(self) -> None:
        """A node in another group is to hold other quotas, so there is another generation."""
        if self.generation:
            self.generation = self._store.next_generation()

    def conflict(self, quota: Quota) -> str | None:
        """Why it cannot be in force along with the others."""
        found = next((each for each in self.index.all if each.id != quota.id
                      and _scope(each) == _scope(quota) and {*each.limits} & {*quota.limits}), None)
        return None if found is None else (
            f"{found.id} limits the same for {quota.subject} on {quota.scope}: change that one, or "
            "take its limit away first")


def _scope(quota: Quota) -> tuple[str, str, str]:
    return quota.subject, quota.scope, quota.count
