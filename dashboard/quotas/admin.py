"""Changes of quotas: rights, record, and then in force."""

import time

import msgspec

from gpudeck.quota import MAX_QUOTAS, Quota, meaning

from ..access.policy import Actor, by
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from .active_quotas import ActiveQuotas
from .store import QuotasStore


class QuotaAdmin:
    """Puts and removes quotas."""

    def __init__(self, active: ActiveQuotas, store: QuotasStore, auditor: AuditRecorder) -> None:
        self._active = active
        self._store = store
        self._auditor = auditor

    def put(self, actor: Actor, quota: Quota) -> None:
        require(actor, "PUT /api/v1/quotas/<quota_id>")
        before = self._active.versions.get(quota.id)
        if before is None and len(self._active.versions) >= MAX_QUOTAS:
            raise InvalidChangeError(f"at most {MAX_QUOTAS} quotas fit")
        if (why := self._active.conflict(quota)) is not None:
            raise InvalidChangeError(why)
        with self._auditor.change("quota", by(actor) | {
                "action": "put", "sentence": f"{actor.name} set the quota {quota.id} "
                f"({quota.mode}): {meaning(quota)}", "detail": {
                "quota": msgspec.to_builtins(quota),
                "before": None if before is None else msgspec.to_builtins(before.quota)}}):
            self._store.put(quota, actor.name, time.time())
        self._active.reload()

    def remove(self, actor: Actor, quota_id: str) -> None:
        require(actor, "DELETE /api/v1/quotas/<quota_id>")
        known = self._active.versions.get(quota_id)
        if known is None:
            raise NotFoundError(f"there is no quota {quota_id[:80]!r}")
        with self._auditor.change("quota", by(actor) | {
                "action": "remove", "sentence": f"{actor.name} removed the quota {quota_id}",
                "detail": {"quota": quota_id}}, takes_away=True):
            self._store.put(known.quota, actor.name, time.time(), is_there=False)
        self._active.reload()
