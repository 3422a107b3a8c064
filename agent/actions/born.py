"""Processes born of an action's targets while it lasts: they belong to it, orphaned or not."""

import time
from types import TracebackType

from gpudeck.contract.actions import MAX_VICTIMS, ProcessIdentity

from ..tasks.births import watch_births
from ..tasks.processes import began_s, table, uptime_s
from .signals import ProcessHandle, living
from .targets import TargetProcess, TargetProcessSet

BORN_WITHIN_S = 0.5  # of the time of birth that the kernel reports
TICK_S = 0.01  # by which the kernel rounds when a process began


class BornProcesses:
    """Descendants born since this was made, where the kernel reports births; elsewhere none."""

    def __init__(self, targets: TargetProcessSet) -> None:
        self._targets = targets
        self._untouched: list[ProcessHandle] = []  # born of the targets, and not touched
        self._births = watch_births()
        if self._births is not None:
            # Only a process that is alive now still owns its number.
            self._births.lineage.follow(handle.pid for handle in targets.living())

    def __enter__(self) -> "BornProcesses":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._births is not None:
            self._births.close()

    def adopt(self) -> bool:
        """Add new descendants to the targets; return whether there were any."""
        targets = self._targets
        by_pid = {target.handle.pid: target for target in targets.all if target.handle.is_alive()}
        untouched = {handle.pid for handle in living(self._untouched)}
        before = len(targets.all)
        for pid in self._born().keys() - untouched:
            target = by_pid.get(pid)
            if target is None and len(targets.all) + len(self._untouched) < MAX_VICTIMS:
                self._adopt(pid)
            elif target is not None and target.is_adopted:
                target.identity = self._current_identity(target)
        return len(targets.all) > before

    def left_over(self) -> str:
        """Describe what is still there and was not touched; "": nothing. Where the kernel reports
        no births: what is in a session of theirs, or began since in their cgroup."""
        if self._births is not None and self._births.lineage.is_known:
            pids, whose = [handle.pid for handle in living(self._untouched)], "born of it"
        else:
            pids, whose = self._near(), "of its session, or begun since in its cgroup,"
        return "" if not pids else (
            f"; {len(pids)} processes {whose} are still there, not touched: "
            f"{', '.join(str(pid) for pid in pids[:8])}{' …' if len(pids) > 8 else ''}")

    def _near(self) -> list[int]:
        targets = self._targets
        target_pids = targets.pids
        cgroups = {target.identity.cgroup for target in targets.all} - {None}
        taken_s = uptime_s() - (time.monotonic() - targets.began) - TICK_S
        near = [row for row in table().values() if row.pid not in target_pids
                and (row.session in target_pids or began_s(row.start_ticks) >= taken_s)]
        about = ((row, targets.handles.facts(row.pid)) for row in near)
        return [row.pid for row, facts in about
                if facts is not None and facts.identity.uid == targets.uid
                and (row.session in target_pids or facts.identity.cgroup in cgroups)]

    def _adopt(self, pid: int) -> None:
        targets = self._targets
        handle = targets.handles.open(pid)
        facts = None if handle is None else handle.facts()
        # Only with a handle on it is it certain whose number this is.
        born_s = self._born().get(pid)
        if handle is None or facts is None or born_s is None:
            return
        if (abs(began_s(facts.row.start_ticks) - born_s) <= BORN_WITHIN_S
                and facts.identity.uid == targets.uid and targets.may_adopt(facts, handle)):
            targets.add(handle, facts)
        else:
            self._untouched.append(handle)

    def _current_identity(self, target: TargetProcess) -> ProcessIdentity:
        """Return its identity now: it may run another program meanwhile, and is still the job's
        child."""
        facts, uid = target.handle.facts(), self._targets.uid
        if facts is None or facts.identity.uid != uid or not self._targets.may_adopt(facts,
                                                                                     target.handle):
            return target.identity
        return facts.identity

    def _born(self) -> dict[int, float]:
        return {} if self._births is None else self._births.born()
