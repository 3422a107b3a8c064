"""Pre-emption as a source of intents: tasks on the GPUs of leases that are being taken back."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpudeck.actions import RuleCondition
from gpudeck.ladder import LadderRung
from gpudeck.pool.core.claims import Lease
from gpudeck.pool.core.preemption import Preemption
from gpudeck.quota_usage import JobKey, TaskHolding

from ..fleet.fleet import Fleet, Node
from ..pool.preempting import why
from ..pool.service import PoolService
from ..quotas.evaluate import holdings
from .brake_limits import FLEET_S, fleet_most
from .holds import HubHolds
from .intents import ActionIntent
from .service import LadderService

SOURCE = "pre-emption"
CAUSE = "pool pre-emption of "
SHARED = "another lease of its owner is on the same GPU, so nobody can tell whose task this is"


@dataclass(frozen=True, slots=True)
class PreemptionIntentSource:
    pool: PoolService
    fleet: Fleet
    hub_holds: HubHolds
    _since: dict[str, float] = field(default_factory=dict)  # by lease

    def __call__(self) -> Iterator[ActionIntent]:
        now, current = time.time(), dict[str, float]()
        for found, lease in self.pool.preemptions.victims():
            current[lease.id] = self._since.get(lease.id, now)
            node = self.fleet.nodes.get(lease.grants[0].node)
            if node is not None:
                yield from self._of_lease(found, lease, node, current[lease.id])
        self._since.clear()
        self._since.update(current)

    def _of_lease(self, found: Preemption, lease: Lease, node: Node, since: float
                  ) -> Iterator[ActionIntent]:
        uuids = set(lease.grants[0].uuids)
        jobs: dict[JobKey, list[TaskHolding]] = {}
        for held in holdings(self.fleet, node):
            if held.task.user == lease.claim.owner and uuids & {uuid for uuid, _ in held.uses}:
                jobs.setdefault(held.job, []).append(held)
        for (node_id, job_id), tasks in jobs.items():
            task_ids = tuple(each.task.id for each in tasks)
            holds = [self.hub_holds.on_node(node_id), self._doubt(lease, uuids, tasks)]
            yield ActionIntent(
                cause=f"{CAUSE}{lease.id}", source=SOURCE,
                title=f"lease {lease.id} is taken back", target=f"{node_id}/{job_id}",
                node_id=node_id, host=node.hello.host, task_ids=task_ids, owner=lease.claim.owner,
                rungs=(LadderRung("tell"), LadderRung("end", self.pool.policy.grace_s)),
                mode="auto", so="yes", sample_age_s=max(time.time() - node.frame_at, 0.0),
                since=since, sentence=why(found)[:900],
                holds=tuple(filter(None, holds)), mutes=(),
                keep=self.hub_holds.keep_of(node_id, task_ids),
                condition=RuleCondition((), why(found)[:900]),
                acts=fleet_most(len(self.fleet.nodes)), within_s=FLEET_S)

    def _doubt(self, lease: Lease, uuids: set[str], tasks: list[TaskHolding]) -> str | None:
        """What it holds beside the lease, or shares with another, is not the lease's to end."""
        if any(not {uuid for uuid, _ in each.uses} <= uuids for each in tasks):
            return "it also uses GPUs that are not of this lease"
        others = (each for node in self.pool.nodes if node.id == lease.grants[0].node
                  for each in node.report.leases if each.claim.id != lease.id)
        if any(each.claim.owner == lease.claim.owner and uuids & set(each.uuids)
               for each in others):
            return SHARED
        return None


def stopped(ladders: LadderService) -> dict[str, str]:
    """Lease to why its work cannot be ended."""
    return {cause.removeprefix(CAUSE): run.climb.why
            for (cause, _), run in ladders.runs.of(SOURCE).items() if run.climb.state == "stopped"}
