"""Layouts of MIG as they are wanted and as they are there: what is said of each, and which steps
lead from one to another. Pure but for the applier that does the steps.

An instance without a compute instance is half of one: nothing runs on it, and it is destroyed
before anything else. What is lost with a reset is created again on a board that has no instance at
all, and only there; what somebody else has changed is said, and left.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec.structs import replace

from gpudeck.contract.limits import ManagedMigLayout
from gpudeck.mig.planner import Layout, MigPlan
from gpudeck.mig.wishes import OFF, wish_words

from ..readings import MigBoard

MODE_IS_OFF = "MIG is off on this board"


class MigSteps(Protocol):
    """Steps that change a board. "": taken without a word, which proves nothing."""

    def mig(self, uuid: str) -> MigBoard: ...
    def create_instance(self, uuid: str, profile: int, start: int) -> str: ...
    def destroy_instance(self, uuid: str, instance: int) -> str: ...


def present(board: MigBoard) -> Layout:
    return tuple(sorted((instance.profile, instance.start) for instance in board.instances
                        if instance.is_complete))


def profile_counts(layout: Iterable[tuple[int, int]]) -> Counter[int]:
    return Counter(profile for profile, _ in layout)


def words(board: MigBoard, layout: Mapping[int, int] | None = None) -> str:
    """Describe the layout that is there, or this one. A word of the contract has room for 128."""
    if layout is None and board.is_on is False:
        return OFF
    counts = profile_counts(present(board)) if layout is None else layout
    return wish_words(counts, board.profiles)[:128]


def is_there(board: MigBoard, layout: Iterable[tuple[int, int]]) -> bool:
    return present(board) == tuple(sorted(layout)) and all(
        instance.is_complete for instance in board.instances)


def carry_out(steps: MigSteps, board: MigBoard, plan: MigPlan) -> str:
    """Carry out a plan; end at the first step that is refused, and say which."""
    names = {profile.id: profile.name for profile in board.profiles}
    for instance in board.instances:
        if (instance.profile, instance.start) in plan.destroy or not instance.is_complete:
            trouble = steps.destroy_instance(board.uuid, instance.id)
            if trouble:
                return f"{names[instance.profile]} at {instance.start} was not destroyed: {trouble}"
    for profile, start in plan.create:
        if trouble := steps.create_instance(board.uuid, profile, start):
            return f"{names[profile]} at {start} was not created: {trouble}"
    return ""


def way_back(layout: ManagedMigLayout, board: MigBoard, why: str) -> ManagedMigLayout:
    """Return a layout that is neither the wanted nor the former one, with how to come to either."""
    return replace(layout, state="half_made", words=(
        f"{why}. There is now: {words(board)}. `gpudeck mig apply '{layout.layout}'` finishes it, "
        f"`gpudeck mig apply '{layout.before}'` goes back")[:1_024])


def _is_in_force(layout: ManagedMigLayout, board: MigBoard) -> bool:
    return (not board.is_pending and board.is_on == (layout.layout != OFF)
            and is_there(board, layout.wanted))


def followed(layout: ManagedMigLayout, board: MigBoard, is_fresh: bool, is_held: bool,
             steps: MigSteps) -> ManagedMigLayout:
    """Return the layout as it is now. `is_fresh`: the driver or the agent was restarted, and it was
    not there since. No act is in flight: one that is marked as running was cut short."""
    if board.trouble:
        return replace(layout, state="unknown", words=board.trouble[:1_024])
    if _is_in_force(layout, board):
        return replace(layout, state="in_force", words=f"the driver reports {words(board)}")
    if layout.state == "applying":
        return way_back(layout, board, "the agent ended in the middle of it")
    if not board.is_on and layout.state != "half_made":
        return replace(layout, state="not_in_force", words=(
            f"{MODE_IS_OFF}: from Hopper on a driver forgets the mode when the machine starts. "
            "When it is on again, the instances are created again"))
    if layout.state in ("half_made", "drifted"):
        return layout
    if is_fresh and not board.instances:
        if is_held:
            return replace(layout, state="not_in_force",
                           words="its instances are gone; actions are stopped here")
        return _made_again(layout, board, steps)
    return replace(layout, state="drifted", words=(
        f"somebody has changed it since; the driver reports {words(board)}"))


def _made_again(layout: ManagedMigLayout, board: MigBoard, steps: MigSteps) -> ManagedMigLayout:
    trouble = carry_out(steps, board, MigPlan((), tuple(layout.wanted), ()))
    now = steps.mig(layout.gpu_uuid)
    if is_there(now, layout.wanted):
        return replace(layout, state="in_force", words=(
            f"created again after a reset or restart; the driver reports {words(now)}"))
    return way_back(layout, now, f"not created again: {trouble or now.trouble or 'not there'}")
