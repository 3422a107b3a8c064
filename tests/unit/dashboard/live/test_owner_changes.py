"""A reader of the changes knows what the whole says."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from dashboard.fleet.gpu_table import MAX_OWNERS, NO_TASK
from dashboard.live.owner_changes import NAMES_SPARE, OwnersShown, next_owners


def owners_message(owners: list[str | None]) -> dict[str, Any]:
    """Return owners as `views.owners` has them: numbers in no order that lasts."""
    names = random.sample(distinct := sorted({owner for owner in owners if owner is not None}),
                          len(distinct))
    codes = [NO_TASK if owner is None else names.index(owner) for owner in owners]
    return {"epoch": 1, "names": names, "owner": np.array(codes, "<u2").tobytes(), "paused": b""}


class Page:
    """Page that reads owners as `takeOwners` in assets/live/fleet_state.mjs does."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.owner = np.zeros(0, "<u2")

    def take(self, message: Mapping[str, Any]) -> None:
        owner = np.frombuffer(message["owner"], "<u2")
        if "slots" not in message:
            self.names, self.owner = list(message["names"]), owner.copy()
            return
        self.names += message["names"]
        self.owner[np.frombuffer(message["slots"], "<u4")] = owner

    def owners(self) -> list[str | None]:
        return [self.names[code] if code < MAX_OWNERS else None for code in self.owner.tolist()]


def test_changes_and_whole_say_the_same() -> None:
    people = [f"user{number}" for number in range(300)]
    owners: list[str | None] = [random.choice([*people[:5], None]) for _ in range(60)]
    page, last = Page(), None
    many = 0
    for version in range(400):
        if random.random() < 0.02:
            owners.append(None)
        for _ in range(random.randint(0, 3)):
            owners[random.randrange(len(owners))] = random.choice([*people, None])
        shown_now = next_owners(version, owners_message(owners), last)
        fresh = Page()
        fresh.take(shown_now.whole)
        assert fresh.owners() == owners
        page.take(shown_now.whole if shown_now.changes is None else shown_now.changes)
        assert page.owners() == owners
        many += shown_now.changes is not None
        last = shown_now
        assert len(shown_now.names) <= 2 * len(owners) + NAMES_SPARE
    assert many > 300


def test_one_change_of_ten_thousand_is_small() -> None:
    owners: list[str | None] = [f"user{number % 200}" for number in range(10_000)]
    first = next_owners(1, owners_message(owners), None)
    owners[random.randrange(10_000)] = "newcomer"
    second = next_owners(2, owners_message(owners), first)
    assert second.changes is not None
    assert second.changes["names"] == ["newcomer"]
    assert [len(second.changes[part]) for part in ("slots", "owner")] == [4, 2]
    assert isinstance(first, OwnersShown)
    assert len(first.whole["owner"]) == 20_000
