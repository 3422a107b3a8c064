"""Pre-emption as a source of intents: the tasks of leases that are being taken back."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gpudeck.contract.action_table import ON_RUNG
from gpudeck.contract.actions import ActionParams, Refusal, RuleCondition
from gpudeck.contract.ladder import LadderRung
from gpudeck.contract.quota_usage import JobKey, TaskHolding
from gpudeck.contract.suspensions import PREEMPTION
from gpudeck.pool.core.claims import Lease
from gpudeck.pool.core.preemption import Preemption

from ..fleet.fleet import Fleet, Node
from ..pool.preempting import why
from ..pool.service import PoolService
from ..quotas.evaluate import holdings
from .brake_limits import FLEET_S, fleet_most
from .dispatch import ActionDispatcher
from .holds import HubHolds
from .intents import LASTING, ActionIntent, preview_flaw
from .ladder_runs import LadderRuns

SOURCE = PREEMPTION
CAUSE = "pool pre-emption of "


@dataclass(frozen=True, slots=True)
class PreemptionIntentSource:
    """Yields intents for leases that are taken back. `runs`: of the ladders, which are built after
    it."""

    pool: PoolService
    runs: Callable[[], LadderRuns]
    fleet: Fleet
    hub_holds: HubHolds
    dispatcher: ActionDispatcher
    _since: dict[str, float] = field(default_factory=dict)  # by lease

    def __call__(self) -> Iterator[ActionIntent]:
        now, current = time.time(), dict[str, float]()
        for preemption, lease in self.pool.preemptions.victims():
            current[lease.id] = self._since.get(lease.id, now)
            yield from self._of_lease(preemption, lease, current[lease.id])
        self._since.clear()
        self._since.update(current)

    def why_not(self, preemption: Preemption) -> str:
        """Ask the nodes whether everything that would have to go can be ended; return why not, or
        ''."""
        for lease in preemption.victims:
            # A run without a task on a GPU ends by itself, but not on a node on hold, nor where the
            # node's ceiling forbids it.
            node_id = lease.grants[0].node
            if reason := self.hub_holds.on_node(node_id) or self._no_end(node_id):
                return reason
            for intent in self._of_lease(preemption, lease, time.time()):
                if holds := [*intent.holds, *([] if intent.keep is None else [
                        intent.keep.sentence])]:
                    return holds[0]
                preview = self.dispatcher.preview(
                    intent.node_id, intent.task_ids[0], ON_RUNG["end"], ActionParams())
                refusal = preview if isinstance(preview, Refusal) else (
                    preview_flaw(intent, "end", preview))
                # The ladder itself retries what may change within a minute.
                if refusal is not None and refusal.code in LASTING:
                    return refusal.sentence
        return ""

    def _no_end(self, node_id: str) -> str:
        """Return what forbids rules to end work on a node, or ''."""
        node = next((candidate for candidate in self.pool.nodes if candidate.id == node_id), None)
        why = None if node is None else node.report.no_end
        return why if why is not None else "its node does not say whether rules may end work there"

    def stopped(self) -> dict[str, str]:
        """Return, by lease, why its work cannot be ended."""
        return {cause.removeprefix(CAUSE): run.climb.why
                for (cause, _), run in self.runs().of(SOURCE).items()
                if run.climb.state == "stopped"}

    def _of_lease(self, preemption: Preemption, lease: Lease, since: float
                  ) -> Iterator[ActionIntent]:
        node = self.fleet.nodes.get(lease.grants[0].node)
        if node is None:
            return
        jobs: dict[JobKey, list[TaskHolding]] = {}
        tasks = self._task_ids(lease)
        for holding in holdings(self.fleet, node):
            if holding.task.id in tasks:
                jobs.setdefault(holding.job, []).append(holding)
        for (_, job_id), job_holdings in jobs.items():
            # Its node takes the GPUs of a lease all of whose work is suspended.
            if {holding.task.id for holding in job_holdings} <= {*(node.suspended or ())}:
                continue
            yield self._intent(preemption, lease, node, job_id, job_holdings, since)

    def _task_ids(self, lease: Lease) -> frozenset[str]:
        """Return the tasks of a lease as its node reports them, by the mark that each of its
        processes carries."""
        return frozenset(task_id for node in self.pool.nodes if node.id == lease.grants[0].node
                         for reported in node.report.leases if reported.claim.id == lease.id
                         for task_id in reported.task_ids)

    def _intent(self, preemption: Preemption, lease: Lease, node: Node, job_id: str,
                job_holdings: list[TaskHolding], since: float) -> ActionIntent:
        node_id, task_ids = node.hello.node_id, tuple(holding.task.id for holding in job_holdings)
        is_suspendable = lease.claim.is_suspendable
        holds = [self.hub_holds.on_node(node_id)]
        uuids = {uuid for holding in job_holdings for uuid, _ in holding.uses}
        if not uuids <= set(lease.grants[0].uuids):
            holds.append("one of its tasks also uses GPUs outside this lease")
        return ActionIntent(
            cause=f"{CAUSE}{lease.id}", source=SOURCE, title=f"lease {lease.id} is taken back",
            target=f"{node_id}/{job_id}", node_id=node_id, host=node.hello.host,
            task_ids=task_ids, owner=lease.claim.owner,
            # What cannot be suspended is ended, as if nobody had asked for more.
            rungs=(LadderRung("tell"), *([LadderRung("suspend")] if is_suspendable else ()),
                   LadderRung("end", self.pool.policy.grace_s)), skips_refused=is_suspendable,
            mode="auto", condition_met="yes", sample_age_s=max(time.time() - node.frame_at, 0.0),
            since=since, sentence=why(preemption)[:900], holds=tuple(filter(None, holds)), mutes=(),
            keep=self.hub_holds.keep_of(node_id, task_ids),
            condition=RuleCondition((), why(preemption)[:900]),
            acts=fleet_most(len(self.fleet.nodes)), within_s=FLEET_S)
