"""What the processes of an act bear while it lasts: part of it, whether orphaned or not."""

import time
from types import TracebackType

from gpudeck.actions import MAX_VICTIMS, ProcessIdentity

from ..tasks.births import watch_births
from ..tasks.processes import began_s, table, uptime_s
from .signals import ProcessHandle, living
from .targets import TargetProcess, TargetProcessSet

BORN_WITHIN_S = 0.5  # of what the kernel tells of its birth
TICK_S = 0.01  # by which the kernel rounds when a process began


class BornProcesses:
    """From when it is made on, where the kernel tells of births; elsewhere nothing is taken in."""

    def __init__(self, targets: TargetProcessSet) -> None:
        self._targets = targets
        self._left: list[ProcessHandle] = []  # born of them, and not touched
        self._births = watch_births()
        if self._births is not None:
            # Only of those that are alive now is the number still theirs.
            self._births.line.follow(grip.pid for grip in targets.living())

    def __enter__(self) -> "BornProcesses":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._births is not None:
            self._births.close()

    def adopt(self) -> bool:
        """Whether some are new among the targets."""
        targets = self._targets
        known = {each.grip.pid: each for each in targets.all if each.grip.is_alive()}
        left = {grip.pid for grip in living(self._left)}
        before = len(targets.all)
        for pid in self._born().keys() - left:
            target = known.get(pid)
            if target is None and len(targets.all) + len(self._left) < MAX_VICTIMS:
                self._adopt(pid)
            elif target is not None and target.is_adopted:
                target.shown = self._now(target)
        return len(targets.all) > before

    def left_over(self) -> str:
        """What is still there and was not touched, in words. Where the kernel tells of no births:
        what is in a session of theirs, or began since in their cgroup."""
        if self._births is not None and self._births.line.is_known:
            pids, whose = [grip.pid for grip in living(self._left)], "born of it"
        else:
            pids, whose = self._near(), "of its session, or begun since in its cgroup,"
        return "" if not pids else (
            f"; {len(pids)} processes {whose} are still there, not touched: "
            f"{', '.join(str(pid) for pid in pids[:8])}{' …' if len(pids) > 8 else ''}")

    def _near(self) -> list[int]:
        targets = self._targets
        known, cgroups = targets.pids, {each.shown.cgroup for each in targets.all} - {None}
        taken_s = uptime_s() - (time.monotonic() - targets.began) - TICK_S
        near = [row for row in table().values() if row.pid not in known
                and (row.session in known or began_s(row.start_ticks) >= taken_s)]
        about = ((row, targets.grips.facts(row.pid)) for row in near)
        return [row.pid for row, facts in about
                if facts is not None and facts.identity.uid == targets.uid
                and (row.session in known or facts.identity.cgroup in cgroups)]

    def _adopt(self, pid: int) -> None:
        targets = self._targets
        grip = targets.grips.take(pid)
        facts = None if grip is None else grip.facts()
        # Only now, with a hold on it, is it certain whose number it is.
        born_s = self._born().get(pid)
        if grip is None or facts is None or born_s is None:
            return
        if (abs(began_s(facts.row.start_ticks) - born_s) <= BORN_WITHIN_S
                and facts.identity.uid == targets.uid and targets.may_adopt(facts, grip)):
            targets.take_in(grip, facts)
        else:
            self._left.append(grip)

    def _now(self, target: TargetProcess) -> ProcessIdentity:
        """It may run another program meanwhile: it is a child of the job all the same."""
        facts, uid = target.grip.facts(), self._targets.uid
        if facts is None or facts.identity.uid != uid or not self._targets.may_adopt(facts,
                                                                                     target.grip):
            return target.shown
        return facts.identity

    def _born(self) -> dict[int, float]:
        return {} if self._births is None else self._births.born()
