"""Who reads the changes knows what the whole says."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from dashboard.fleet.gpu_table import MAX_OWNERS, NO_TASK
from dashboard.live.owner_changes import NAMES_SPARE, OwnersShown, next_owners


def seen(owners: list[str | None]) -> dict[str, Any]:
    """As `views.owners` has it: numbers in no order that lasts."""
    names = random.sample(found := sorted({each for each in owners if each is not None}),
                          len(found))
    codes = [NO_TASK if each is None else names.index(each) for each in owners]
    return {"epoch": 1, "names": names, "owner": np.array(codes, "<u2").tobytes(), "paused": b""}


class Page:
    """As `takeOwners` in assets/fleet/fleet_state.mjs."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.owner = np.zeros(0, "<u2")

    def take(self, said: Mapping[str, Any]) -> None:
        owner = np.frombuffer(said["owner"], "<u2")
        if "slots" not in said:
            self.names, self.owner = list(said["names"]), owner.copy()
            return
        self.names += said["names"]
        self.owner[np.frombuffer(said["slots"], "<u4")] = owner

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
        found = next_owners(version, seen(owners), last)
        fresh = Page()
        fresh.take(found.whole)
        assert fresh.owners() == owners
        page.take(found.whole if found.changes is None else found.changes)
        assert page.owners() == owners
        many += found.changes is not None
        last = found
        assert len(found.names) <= 2 * len(owners) + NAMES_SPARE
    assert many > 300


def test_one_change_of_ten_thousand_is_small() -> None:
    owners: list[str | None] = [f"user{number % 200}" for number in range(10_000)]
    first = next_owners(1, seen(owners), None)
    owners[random.randrange(10_000)] = "newcomer"
    second = next_owners(2, seen(owners), first)
    assert second.changes is not None
    assert second.changes["names"] == ["newcomer"]
    assert [len(second.changes[part]) for part in ("slots", "owner")] == [4, 2]
    assert isinstance(first, OwnersShown)
    assert len(first.whole["owner"]) == 20_000
