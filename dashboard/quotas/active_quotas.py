"""The quotas in force: one copy in memory for all that sum, deploy, change or show them."""

import time
from dataclasses import dataclass

import msgspec

from gpudeck.contract.quota import MAX_QUOTAS, Quota, meaning
from gpudeck.contract.quota_usage import QuotaIndex

from ..access.policy import Actor, actor_fields
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from ..nodes.events import GroupChanged
from ..runtime.dispatcher import Dispatcher
from .store import QuotasStore


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    """A quota was added, edited or removed."""


class ActiveQuotas:
    """The quotas in force by id, and the generation under which nodes get them."""

    def __init__(self, store: QuotasStore, auditor: AuditRecorder, events: Dispatcher) -> None:
        self._store = store
        self._auditor = auditor
        self._events = events
        self.reload()
        events.listen(GroupChanged, lambda _: self._renew())

    def reload(self) -> None:
        """Read the stored quotas; to be called after every change of them."""
        self.versions = self._store.quotas()
        self.generation = self._store.generation()
        self.index = QuotaIndex(version.quota for version in self.versions.values())
        self._events.dispatch(QuotasChanged())

    def _renew(self) -> None:
        """Start another generation: a node in another group is to hold other quotas."""
        if self.generation:
            self.generation = self._store.next_generation()

    def conflict(self, quota: Quota) -> str | None:
        """Return why a quota cannot be in force along with the others; None: it can."""
        rival = next((other for other in self.index.all if other.id != quota.id
                      and _scope(other) == _scope(quota)
                      and {*other.limits} & {*quota.limits}), None)
        return None if rival is None else (
            f"{rival.id} limits the same for {quota.subject} on {quota.scope}: change that one, or "
            "take its limit away first")

    # -- changes by admins

    def put(self, actor: Actor, quota: Quota) -> None:
        require(actor, "PUT /api/v1/quotas/<quota_id>")
        before = self.versions.get(quota.id)
        if before is None and len(self.versions) >= MAX_QUOTAS:
            raise InvalidChangeError(f"at most {MAX_QUOTAS} quotas are allowed")
        if (why := self.conflict(quota)) is not None:
            raise InvalidChangeError(why)
        with self._auditor.change("quota", actor_fields(actor) | {
                "action": "put", "sentence": f"{actor.name} set the quota {quota.id} "
                f"({quota.mode}): {meaning(quota)}", "detail": {
                    "quota": msgspec.to_builtins(quota),
                    "before": None if before is None else msgspec.to_builtins(before.quota)}}):
            self._store.put(quota, actor.name, time.time())
        self.reload()

    def remove(self, actor: Actor, quota_id: str) -> None:
        require(actor, "DELETE /api/v1/quotas/<quota_id>")
        version = self.versions.get(quota_id)
        if version is None:
            raise NotFoundError(f"there is no quota {quota_id[:80]!r}")
        with self._auditor.change("quota", actor_fields(actor) | {
                "action": "remove", "sentence": f"{actor.name} removed the quota {quota_id}",
                "detail": {"quota": quota_id}}, takes_away=True):
            self._store.put(version.quota, actor.name, time.time(), is_there=False)
        self.reload()


def _scope(quota: Quota) -> tuple[str, str, str]:
    return quota.subject, quota.scope, quota.count
