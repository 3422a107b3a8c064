"""A Node that people work on: nothing is done there by itself, and by hand only on a second click.
Pure."""

from msgspec import Struct

MOST_S = 30 * 86_400.0


class MaintenanceWindow(Struct, frozen=True):
    """It ends by itself; `until` and `since` are UTC."""

    node_id: str
    by: str
    because: str
    since: float
    until: float

    def is_on(self, now: float) -> bool:
        return now < self.until

    @property
    def sentence(self) -> str:
        return f"this node is in maintenance by {self.by}: {self.because}"
