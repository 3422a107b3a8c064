"""Preempted runs without a task on a GPU: they end their commands themselves. What is on a GPU is
ended by commands of the hub, with all checks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpudeck.contract.pool_messages import LeaseNotice
from gpudeck.language.times import span_words

from .clock import PoolClock
from .leases import NodeLeases
from .lock import NodeLease
from .server import PoolUser
from .uses import LeaseUse


@dataclass(slots=True)
class PreemptedRuns:
    """Preempted runs that have to end their commands. A program that holds its own lease has none.
    `why_not`: what forbids acts of rules on this node; "": nothing. Checked each time: no command
    is killed on a node whose actions were stopped after the warning."""

    leases: NodeLeases
    clock: PoolClock
    why_not: Callable[[], str]
    grace_s: float = 0.0
    _notified: dict[str, tuple[str, PoolUser]] = field(init=False, default_factory=dict)  # by lease

    def step(self, users: Mapping[str, PoolUser], uses: Sequence[LeaseUse] | None) -> None:
        """Notify the runs of preempted leases without a task on a GPU. Raises JournalError: without
        a record nobody is notified."""
        leases = self.leases.all.values()
        preempted = [lease for lease in leases
                     if lease.preempted and lease.is_run and not lease.is_program]
        self._notified = {lease.id: self._notified[lease.id] for lease in preempted
                          if lease.id in self._notified}
        if uses is None or not preempted or self.why_not():
            return
        for lease in preempted:
            user = users.get(lease.id)
            if user is not None and not any(use.may_be_of(lease) for use in uses):
                self._notify(lease, user)

    def _notify(self, lease: NodeLease, user: PoolUser) -> None:
        """Notify each connection once: a run that has reconnected may not have received it."""
        now = self.clock.now()
        kill_at = now + self.grace_s if lease.kill_at is None else lease.kill_at
        how = "term" if now < kill_at or lease.kill_at is None else "kill"
        if self._notified.get(lease.id) == (how, user):
            return
        self.leases.put(replace(lease, kill_at=kill_at), {
            "pool": "ending", "lease": lease.id, "signal": how, "why": lease.preempted})
        self._notified[lease.id] = how, user
        user.send(LeaseNotice(
            "its time is over: the command is killed (SIGKILL)" if how == "kill" else
            "the command is ended now (SIGTERM), and killed in "
            f"{span_words(max(kill_at - now, 0.0))} if it is still there", how))
