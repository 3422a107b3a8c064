"""Owners of GPUs, sent as changes: there are thousands of them, and one changes at a time."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fleet.gpu_table import MAX_OWNERS

SHOWN_MOST = 256  # sets of rights
NAMES_SPARE = 64  # of people who have no GPU any more


@dataclass(frozen=True, slots=True)
class OwnersShown:
    """A version, whole and against the one before it. A name keeps its number meanwhile."""

    version: int
    names: tuple[str, ...]
    owner: NDArray[np.uint16]
    whole: Mapping[str, Any]
    before: int | None = None  # None: only the whole says it
    changes: Mapping[str, Any] | None = None


def next_owners(version: int, view: Mapping[str, Any], last: OwnersShown | None) -> OwnersShown:
    """`view`: as `views.owners` has it, with its own numbers each time."""
    owner, names = np.frombuffer(view["owner"], "<u2"), tuple(view["names"])
    if (last is None or len(last.owner) != len(owner)
            or len({*last.names, *names}) > 2 * len(names) + NAMES_SPARE):
        return OwnersShown(version, names, owner, view)
    number = {name: at for at, name in enumerate(last.names)}
    came = [name for name in names if name not in number]
    number |= {name: at for at, name in enumerate(came, len(number))}
    renumbered = owner.copy()
    is_one = owner < MAX_OWNERS
    renumbered[is_one] = np.array([number[name] for name in names] or [0], "<u2")[owner[is_one]]
    slots = np.flatnonzero(renumbered != last.owner)
    all_names = (*last.names, *came)
    return OwnersShown(
        version, all_names, renumbered,
        {**view, "names": list(all_names), "owner": renumbered.tobytes()}, last.version,
        {**view, "names": came, "slots": slots.astype("<u4").tobytes(),
         "owner": renumbered[slots].tobytes()})


class OwnerChanges:
    """Latest version for each set of rights."""

    def __init__(self) -> None:
        self._versions: dict[Hashable, OwnersShown] = {}

    def last(self, of: Hashable) -> OwnersShown | None:
        return self._versions.get(of)

    def keep(self, of: Hashable, owners: OwnersShown) -> OwnersShown:
        if len(self._versions) >= SHOWN_MOST:
            self._versions.clear()
        self._versions[of] = owners
        return owners
