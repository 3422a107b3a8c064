"""Runs that end by themselves what is taken back: their commands, without a task on a GPU. What is
on a GPU is ended by commands of the hub, with all checks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpudeck.pool.messages import LeaseNotice
from gpudeck.times import span_words

from .clock import PoolClock
from .leases import NodeLeases
from .lock import NodeLease
from .server import PoolUser
from .uses import LeaseUse


@dataclass(slots=True)
class PreemptedRuns:
    """`why_not`: what forbids acts of rules on this node; "": nothing. Checked each time: no
    command is killed on a node whose actions were stopped after the warning."""

    leases: NodeLeases
    clock: PoolClock
    why_not: Callable[[], str]
    grace_s: float = 0.0
    _told: dict[str, tuple[str, PoolUser]] = field(init=False, default_factory=dict)  # by lease

    def step(self, users: Mapping[str, PoolUser], uses: Sequence[LeaseUse] | None) -> None:
        """Raises JournalError: without a record nobody is notified."""
        taken = [each for each in self.leases.all.values() if each.preempted and each.is_run]
        self._told = {each.id: self._told[each.id] for each in taken if each.id in self._told}
        if uses is None or not taken or self.why_not():
            return
        for lease in taken:
            user = users.get(lease.id)
            if user is not None and not any(each.may_be_of(lease) for each in uses):
                self._tell(lease, user)

    def _tell(self, lease: NodeLease, user: PoolUser) -> None:
        """Each connection once: a run that has found the agent again may not have heard it."""
        now = self.clock.now()
        kill_at = now + self.grace_s if lease.kill_at is None else lease.kill_at
        how = "term" if now < kill_at or lease.kill_at is None else "kill"
        if self._told.get(lease.id) == (how, user):
            return
        self.leases.put(replace(lease, kill_at=kill_at), {
            "pool": "ending", "lease": lease.id, "signal": how, "why": lease.preempted})
        self._told[lease.id] = how, user
        user.send(LeaseNotice(
            "its time is over: the command is killed (SIGKILL)" if how == "kill" else
            "the command is ended now (SIGTERM), and killed in "
            f"{span_words(max(kill_at - now, 0.0))} if it is still there", how))
