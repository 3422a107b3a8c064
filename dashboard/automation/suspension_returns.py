"""Has work restored that a pre-emption has suspended, as soon as its lease has its GPUs again.

What is to be restored is read from the leases that nodes report, so that a restart forgets none.
What cannot be restored now is tried again: until then its lease holds its GPUs, and says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpudeck.contract.actions import (
    COMMAND_LASTS_S,
    ActionParams,
    CommandActor,
    Refusal,
    RuleCondition,
)
from gpudeck.contract.pool_link import ReportedLease

from ..actions.commander import new_id
from ..actions.lifecycle import CommandRecord
from ..actions.views import mem_of
from ..fleet.fleet import Fleet
from ..pool.service import PoolService
from ..runtime.runner import Loop
from .dispatch import ActionDispatcher
from .preemption_source import SOURCE

EVERY_S = 2.0
AGAIN_AFTER_S = 60.0
AT_ONCE = 4  # per step: each waits for its node
BECAUSE = "its lease has its GPUs again"


@dataclass(frozen=True, slots=True)
class SuspendedWork:
    """Task of a lease that has its GPUs again."""

    node_id: str
    host: str
    lease: ReportedLease
    task_id: str


@dataclass(slots=True)
class SuspensionReturns:
    pool: PoolService
    fleet: Fleet
    dispatcher: ActionDispatcher
    _tried_mono: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def loop(self) -> Loop:
        return Loop("suspended work", self.step, EVERY_S)

    def step(self, now: float, mono: float) -> None:
        self._tried_mono = {key: at for key, at in self._tried_mono.items()
                            if mono - at < AGAIN_AFTER_S}
        busy = self.dispatcher.busy_nodes()
        for work in [*self._due()][:AT_ONCE]:
            if work.node_id not in busy:
                self._tried_mono[work.node_id, work.task_id] = mono
                busy.add(work.node_id)
                self._restore(work, now)

    def _due(self) -> Iterator[SuspendedWork]:
        for node in self.pool.nodes:
            restoring = [lease for lease in node.report.leases if lease.state == "restoring"]
            of_fleet = self.fleet.nodes.get(node.id)
            if not restoring or of_fleet is None:
                continue
            suspended = {*(of_fleet.suspended or ())}
            yield from (SuspendedWork(node.id, node.host, lease, task_id) for lease in restoring
                        for task_id in lease.task_ids if task_id in suspended
                        and (node.id, task_id) not in self._tried_mono)

    def _restore(self, work: SuspendedWork, now: float) -> Refusal | CommandRecord:
        """Restore work in the name of the pre-emption that suspended it: its node accepts no
        other."""
        preview = self.dispatcher.preview(work.node_id, work.task_id, "restore", ActionParams())
        if isinstance(preview, Refusal):
            return preview
        if preview.refusals:
            return preview.refusals[0]
        record = CommandRecord(
            new_id(now), "restore", work.node_id, work.host,
            CommandActor("rule", f"{SOURCE} of {work.lease.claim.id}"), BECAUSE, now, now,
            now + COMMAND_LASTS_S, ActionParams(), task_id=work.task_id,
            task_ids=tuple(victim.task_id for victim in preview.victims if victim.task_id),
            job_id=preview.job_id, owner=preview.owner, bystanders=len(preview.bystanders),
            command=next((victim.command for victim in preview.victims if victim.command), None),
            mem_used_bytes=mem_of(preview))
        return self.dispatcher.order(record, preview, RuleCondition((), BECAUSE),
                                     detail={"lease": work.lease.claim.id})
