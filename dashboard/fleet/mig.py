"""Boards that are split by MIG, and their instances: nothing of a fleet is counted twice. Pure.

A split board is not a GPU to give out, its instances are; heat and power are the board's alone;
memory is reported by both.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpudeck.contract.wire import GpuFacts

NO_PARENT = -1

Mask = npt.NDArray[np.bool_]


def parents(order: Sequence[int], gpus: Sequence[GpuFacts]) -> list[int]:
    """Return the slot of each one's board, NO_PARENT for a board. `order`: slots of `gpus`."""
    slots = {facts.uuid: slot for slot, facts in zip(order, gpus, strict=True)}
    return [NO_PARENT if facts.parent_uuid is None else slots.get(facts.parent_uuid, NO_PARENT)
            for facts in gpus]


def split(parent: npt.NDArray[np.int32], is_there: Mask) -> Mask:
    """Return which slots are boards whose instances are there."""
    is_split = np.zeros(len(parent), bool)
    is_split[parent[(parent != NO_PARENT) & is_there]] = True
    return is_split


def once(parent: npt.NDArray[np.int32], is_known: Mask, shares: Mask) -> Mask:
    """Return those known slots that together hold each byte once: an instance where its board does
    not report (it may be denied), and of those that share one memory the first."""
    of_board = parent != NO_PARENT
    told_by_board = np.zeros(len(parent), bool)
    told_by_board[of_board] = is_known[parent[of_board]]
    return is_known & ~told_by_board & ~shares
