"""Pre-emption as a source of intents: the tasks of leases that are being taken back."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gpudeck.action_table import ON_RUNG
from gpudeck.actions import ActionParams, Refusal, RuleCondition
from gpudeck.ladder import LadderRung
from gpudeck.pool.core.claims import Lease
from gpudeck.pool.core.preemption import Preemption
from gpudeck.quota_usage import JobKey, TaskHolding

from ..fleet.fleet import Fleet, Node
from ..pool.preempting import why
from ..pool.service import PoolService
from ..quotas.evaluate import holdings
from .brake_limits import FLEET_S, fleet_most
from .dispatch import ActionDispatcher
from .holds import HubHolds
from .intents import LASTING, ActionIntent, preview_flaw
from .ladder_runs import LadderRuns

SOURCE = "pre-emption"
CAUSE = "pool pre-emption of "


@dataclass(frozen=True, slots=True)
class PreemptionIntentSource:
    """`runs`: of the ladders, which are built with it."""

    pool: PoolService
    runs: Callable[[], LadderRuns]
    fleet: Fleet
    hub_holds: HubHolds
    dispatcher: ActionDispatcher
    _since: dict[str, float] = field(default_factory=dict)  # by lease

    def __call__(self) -> Iterator[ActionIntent]:
        now, current = time.time(), dict[str, float]()
        for found, lease in self.pool.preemptions.victims():
            current[lease.id] = self._since.get(lease.id, now)
            yield from self._of_lease(found, lease, current[lease.id])
        self._since.clear()
        self._since.update(current)

    def why_not(self, found: Preemption) -> str:
        """Asks the nodes of all that would have to go; "": all of it can be ended."""
        for lease in found.victims:
            # A run without a task on a GPU ends by itself, but not on a node that is on hold, nor
            # where its ceiling forbids that.
            node_id = lease.grants[0].node
            if held := self.hub_holds.on_node(node_id) or self._no_end(node_id):
                return held
            for intent in self._of_lease(found, lease, time.time()):
                if said := [*intent.holds, *([] if intent.keep is None else [
                        intent.keep.sentence])]:
                    return said[0]
                seen = self.dispatcher.look(intent.node_id, intent.task_ids[0], ON_RUNG["end"],
                                            ActionParams())
                refusal = seen if isinstance(seen, Refusal) else preview_flaw(intent, "end", seen)
                # What will be different in a minute is for the ladder to try again.
                if refusal is not None and refusal.code in LASTING:
                    return refusal.sentence
        return ""

    def _no_end(self, node_id: str) -> str:
        """What forbids rules to end work on a node; "": nothing."""
        node = next((each for each in self.pool.nodes if each.id == node_id), None)
        why = None if node is None else node.report.no_end
        return why if why is not None else "its node does not say whether rules may end work there"

    def stopped(self) -> dict[str, str]:
        """Lease to why its work cannot be ended."""
        return {cause.removeprefix(CAUSE): run.climb.why
                for (cause, _), run in self.runs().of(SOURCE).items()
                if run.climb.state == "stopped"}

    def _of_lease(self, found: Preemption, lease: Lease, since: float) -> Iterator[ActionIntent]:
        node = self.fleet.nodes.get(lease.grants[0].node)
        if node is None:
            return
        jobs: dict[JobKey, list[TaskHolding]] = {}
        tasks = self._task_ids(lease)
        for held in holdings(self.fleet, node):
            if held.task.id in tasks:
                jobs.setdefault(held.job, []).append(held)
        for (_, job_id), those in jobs.items():
            yield self._intent(found, lease, node, job_id, those, since)

    def _task_ids(self, lease: Lease) -> frozenset[str]:
        """As its node says: by the mark that each process of a lease carries."""
        return frozenset(task_id for node in self.pool.nodes if node.id == lease.grants[0].node
                         for each in node.report.leases if each.claim.id == lease.id
                         for task_id in each.task_ids)

    def _intent(self, found: Preemption, lease: Lease, node: Node, job_id: str,
                those: list[TaskHolding], since: float) -> ActionIntent:
        node_id, task_ids = node.hello.node_id, tuple(each.task.id for each in those)
        holds = [self.hub_holds.on_node(node_id)]
        if not {uuid for each in those for uuid, _ in each.uses} <= set(lease.grants[0].uuids):
            holds.append("one of its tasks also uses GPUs outside this lease")
        return ActionIntent(
            cause=f"{CAUSE}{lease.id}", source=SOURCE, title=f"lease {lease.id} is taken back",
            target=f"{node_id}/{job_id}", node_id=node_id, host=node.hello.host,
            task_ids=task_ids, owner=lease.claim.owner,
            rungs=(LadderRung("tell"), LadderRung("end", self.pool.policy.grace_s)),
            mode="auto", so="yes", sample_age_s=max(time.time() - node.frame_at, 0.0),
            since=since, sentence=why(found)[:900], holds=tuple(filter(None, holds)), mutes=(),
            keep=self.hub_holds.keep_of(node_id, task_ids),
            condition=RuleCondition((), why(found)[:900]),
            acts=fleet_most(len(self.fleet.nodes)), within_s=FLEET_S)
