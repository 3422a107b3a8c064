"""E-mail addresses of task owners: Unix name -> address."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..access.policy import UNIX_NAME, Actor, actor_fields
from ..access.rights import require
from ..actions.standing_store import StandingStore
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from .receivers import MAIL

MOST = 10_000


def address_flaw(unix_name: str, address: str) -> str | None:
    if not UNIX_NAME.fullmatch(unix_name):
        return f"{unix_name[:80]!r} is not a Unix name"
    if not MAIL.fullmatch(address):
        return f"{address[:80]!r} is not an e-mail address, such as alice@example.org"
    return None


@dataclass(frozen=True, slots=True)
class OwnerAddresses:
    standing: StandingStore
    auditor: AuditRecorder

    def all(self) -> dict[str, str]:
        return self.standing.addresses()

    def of(self, unix_name: str | None) -> str | None:
        return None if unix_name is None else self.standing.address(unix_name)

    def replace(self, actor: Actor, replacement: Mapping[str, str]) -> None:
        require(actor, "PUT /api/v1/addresses")
        flaws = [why for row in replacement.items() if (why := address_flaw(*row)) is not None]
        if flaws or len(replacement) > MOST:
            raise InvalidChangeError(flaws[0] if flaws else f"at most {MOST} addresses are allowed")
        before = self.all()
        changed = sorted(name for name in {*before, *replacement}
                         if before.get(name) != replacement.get(name))
        with self.auditor.change("address", actor_fields(actor) | {"action": "replace", "detail": {
                "count": len(replacement), "changed": changed[:100]}}):
            self.standing.replace_addresses(replacement.items())

    def put(self, actor: Actor, unix_name: str, address: str) -> None:
        self.replace(actor, self.all() | {unix_name: address})

    def remove(self, actor: Actor, unix_name: str) -> None:
        remaining = self.all()
        if remaining.pop(unix_name, None) is None:
            raise NotFoundError("this owner has no address")
        self.replace(actor, remaining)
