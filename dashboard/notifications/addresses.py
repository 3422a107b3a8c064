"""Where the owners of tasks read their mail: Unix name -> address."""

import re
import time
from collections.abc import Mapping

from ..access.policy import UNIX_NAME, Actor, RefusedError, by, may
from ..actions.standing_store import StandingStore
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError

MOST = 10_000
# What RFC 5321 lets through without quotes; nothing that could end a header or a command.
ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,189}")


def address_flaw(unix_name: str, address: str) -> str | None:
    if not UNIX_NAME.fullmatch(unix_name):
        return f"{unix_name[:80]!r} is no Unix name"
    if not ADDRESS.fullmatch(address):
        return f"{address[:80]!r} is no e-mail address, such as alice@example.org"
    return None


class OwnerAddresses:
    def __init__(self, standing: StandingStore, auditor: AuditRecorder) -> None:
        self._standing = standing
        self._auditor = auditor

    def all(self) -> dict[str, str]:
        return self._standing.addresses()

    def of(self, unix_name: str | None) -> str | None:
        return None if unix_name is None else self._standing.address(unix_name)

    def replace(self, actor: Actor, wanted: Mapping[str, str]) -> None:
        refusal = may(actor, "PUT /api/v1/addresses", now=time.time())
        if refusal is not None:
            raise RefusedError(refusal)
        wrong = [why for row in wanted.items() if (why := address_flaw(*row)) is not None]
        if wrong or len(wanted) > MOST:
            raise InvalidChangeError(wrong[0] if wrong else f"at most {MOST} addresses fit")
        before = self.all()
        changed = sorted(name for name in {*before, *wanted}
                         if before.get(name) != wanted.get(name))
        with self._auditor.change("address", by(actor) | {
                "action": "replace", "detail": {
                    "count": len(wanted), "changed": changed[:100]}}):
            self._standing.replace_addresses(wanted.items())
