"""A span of time in which matching alerts neither notify nor act."""

from collections.abc import Callable

from msgspec import Struct

from .firing_alerts import Alert

MOST_S = 30 * 86_400


class Silence(Struct, frozen=True):
    """Matches alerts by every field that is given; an empty one matches all. `ended_at`: ended
    early."""

    id: str
    by: str
    because: str
    begins: float
    until: float
    rule: str = ""
    node: str = ""
    target: str = ""
    user: str = ""
    holds_acts: bool = True
    mutes: bool = True
    ended_at: float | None = None

    @property
    def what(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in (
            ("rule", self.rule), ("node", self.node), ("target", self.target),
            ("user", self.user)) if value)

    def is_on(self, now: float) -> bool:
        return self.begins <= now < (self.until if self.ended_at is None else self.ended_at)

    def is_over(self, now: float) -> bool:
        return self.ended_at is not None or self.until <= now

    def matches(self, alert: Alert) -> bool:
        target = alert.target
        return ((not self.rule or self.rule == alert.rule_id)
                and (not self.node or self.node in (target.node_id, target.host))
                and (not self.target or self.target == target.key)
                and (not self.user or target.users == (self.user,)))


Mute = Callable[[Alert], bool]
