"""Quotas in force: kept here with a generation, signed and sent to the nodes that they concern,
and summed up on the whole fleet; what is done about them is done by the ladder."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import gevent
import msgspec

from gpudeck.actions import Preview, Refusal, RefusalCode
from gpudeck.desired_state import REISSUE_EVERY_S, DesiredState, InForce, SignedDesired
from gpudeck.quota import MAX_QUOTAS, PER_S, Limit, Quota, meaning
from gpudeck.quota_usage import (
    QuotaBalance,
    QuotaChoice,
    QuotaIndex,
    balances,
    explained,
    holder_of,
)

from ..access.policy import Actor, RefusedError, by, may
from ..actions.signer_client import SignerClient
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from ..fleet.effects import SendMessage
from ..fleet.fleet import Fleet, Node
from ..fleet.visibility import VisibleFleet
from ..history.protocol import History
from .evaluate import (
    QuotaDeployment,
    concerns,
    deployment,
    deployments,
    for_node,
    holdings,
    is_current,
    on_gpu,
    worst_first,
)
from .gpu_hours import Place, QuotaGpuHours, cells_of, grain, hours_of
from .over import HOLD_S, OverQuotaTracker, still_there
from .prometheus import QuotaMetricsSnapshot, quota_look
from .store import CannotStore, QuotasStore, QuotaVersionRecord
from .usage_history import HOUR_S, PastQuotaSetting, QuotaUsageSeries, line, narrower, step_of

log = logging.getLogger("gpudeck.quotas")

EVERY_S = 1.0
DEPLOYED_FOR_S = 2.0
REST_SHARE = 20.0  # a look that takes long is not taken more often than one part in so many
REST_MOST_S = 8.0
HOURS_EVERY_S = 60.0
AGAIN_AFTER_S = 15.0  # what a node has not taken
SIGNED_AT_ONCE = 100
AT_ONCE = 500  # Tasks that are summed up here; of more, in a thread, so that live goes on beside
WITNESSES = 16
MOST_USERS = 50_000
SPARED: frozenset[RefusalCode] = frozenset(("protected", "managed", "made_up"))


@dataclass(frozen=True, slots=True)
class NodeQuotaStatus:
    """One Quota on one Node: whether it is in force there, and of each holder who is there the
    Balance of all they hold, and of what they hold there."""

    quota: Quota
    deployed: QuotaDeployment
    holders: list[tuple[QuotaBalance, QuotaBalance]]
    task_ids: frozenset[str]


class QuotaService:
    """`send`: to a connected node. `on_change`: who wants to hear that something was changed."""

    def __init__(self, store: QuotasStore, auditor: AuditRecorder, fleet: Fleet,
                 signer: SignerClient,
                 link_of: Mapping[str, str], send: Callable[[SendMessage], None],
                 history: History, hold_s: float = HOLD_S) -> None:
        self.hold_s = hold_s
        self._store = store
        self._auditor = auditor
        self._fleet = fleet
        self._signer = signer
        self._link_of = link_of
        self._send = send
        self._history = history
        self._base = time.time() - time.monotonic()
        self._told: dict[str, tuple[object, float]] = {}  # node -> what, when
        self._hours = QuotaGpuHours()
        self._knows_hours = False
        self._hours_mono = -HOURS_EVERY_S
        self._next_mono = 0.0
        self.groups = store.groups()
        self.spared: dict[str, str] = {}  # Tasks that no Quota can end, as their nodes said
        self.over = OverQuotaTracker()
        self.in_force: dict[str, InForce] = {}
        self._deployed: dict[tuple[str, int], tuple[float, list[QuotaDeployment]]] = {}
        self.balances: list[QuotaBalance] = []
        self.looked_at: float | None = None
        self.on_change: list[Callable[[], None]] = []
        self._load()

    def _load(self) -> None:
        self.versions = self._store.quotas()
        self.generation = self._store.generation()
        self.quotas = QuotaIndex(version.quota for version in self.versions.values())
        self._hours_mono = -HOURS_EVERY_S

    # -- time

    def steady(self) -> float:
        """Reads like UTC and never steps: since when somebody is over is told by it."""
        return self._base + time.monotonic()

    def run(self) -> None:
        while True:
            gevent.sleep(EVERY_S)
            try:
                self.step(time.time(), time.monotonic())
            except Exception:  # quotas must not take the hub with them
                log.exception("quotas_failed")

    def step(self, now: float, mono: float) -> None:
        self._deploy(now, mono)
        if mono < self._next_mono:
            return
        if mono - self._hours_mono >= HOURS_EVERY_S:
            self._hours_mono = mono
            self._note_groups()
            self._look_at_hours(now)
        self.spared = still_there(self.spared, (
            task_id for node in self._fleet.nodes.values() for task_id in node.tasks))
        self.balances = self._sum(now, self.quotas, self._hours)
        self.over.saw(self.balances, self.steady())
        self.looked_at = now
        self._next_mono = mono + min(REST_SHARE * (time.monotonic() - mono), REST_MOST_S)

    def _sum(self, now: float, quotas: QuotaIndex, counted: QuotaGpuHours,
             lens: VisibleFleet | None = None
             ) -> list[QuotaBalance]:
        found = []
        for node_id, node in list(self._fleet.nodes.items()):
            if is_current(node, now) and (lens is None or lens.sees_node(node_id)):
                found += holdings(self._fleet, node)
        asked = quotas, found, now, counted.of, frozenset(self.spared), counted.unsure
        if len(found) <= AT_ONCE:
            return balances(*asked)
        made: list[QuotaBalance] = gevent.get_hub().threadpool.apply(balances, asked)
        return made

    # -- hours

    def _note_groups(self) -> None:
        seen = {task.user: frozenset(task.groups) for node in self._fleet.nodes.values()
                for task in node.tasks.values() if task.user is not None and task.groups}
        news = {user: groups for user, groups in seen.items() if self.groups.get(user) != groups}
        if not news or len(self.groups | news) > MOST_USERS:  # nodes name them: who, they decide
            return
        try:
            self._store.put_groups(news)
        except CannotStore as error:
            log.warning("groups_not_kept why=%r", str(error))
            return
        self.groups |= news

    def _look_at_hours(self, now: float) -> None:
        """Those of a while ago say nothing of the day until now: nobody goes for them."""
        try:
            self._hours, self._knows_hours = self._count_hours(now, self.quotas), True
        except Exception:
            self._hours, self._knows_hours = QuotaGpuHours(), False
            raise

    def _count_hours(self, now: float, quotas: QuotaIndex,
                     lens: VisibleFleet | None = None) -> QuotaGpuHours:
        """In the day or week until now. With `lens`, of its Nodes."""
        groups = dict(self.groups)
        places = {node_id: (node.hello.host, self._fleet.group_of(node_id))
                  for node_id, node in self._fleet.nodes.items()}

        is_whole = lens is None or lens.is_whole
        seen = frozenset() if lens is None else frozenset(lens.node_ids)

        def place(node_id: str) -> Place:
            return places.get(node_id, ("", None))

        def ask() -> QuotaGpuHours:
            found = QuotaGpuHours()
            for per, span_s in PER_S.items():
                if by := grain(quotas, per, is_whole):
                    start = int((now - span_s) // 3_600) * 3_600
                    frame = self._history.held(by, start, now)
                    cells = [cell for cell in cells_of(frame.to_dict("records"))
                             if is_whole or cell.node_id in seen]
                    part = hours_of(quotas, per, cells, place, groups)
                    found = QuotaGpuHours(found.of | part.of, found.unsure | part.unsure)
            return found

        told: QuotaGpuHours = gevent.get_hub().threadpool.apply(ask)
        return told

    def previewed(self, preview: Preview) -> None:
        """Whom its node protects, no Quota chooses again."""
        why = next((each for each in preview.refusals if each.code in SPARED), None)
        if why is not None:
            self.spared[preview.task_id] = why.sentence

    # -- at the nodes

    def joined(self, node_id: str) -> None:
        self._told.pop(node_id, None)

    def said(self, node_id: str, in_force: InForce) -> None:
        self.in_force[node_id] = in_force

    def _deploy(self, now: float, mono: float) -> None:
        left = SIGNED_AT_ONCE
        for node_id in list(self._link_of):
            node = self._fleet.nodes.get(node_id)
            if node is None or not self._is_due(node_id, mono):
                continue
            self._told[node_id] = self._version_for(node_id), mono
            self._tell(node_id, node, now)
            left -= 1
            if left == 0:
                return

    def _version_for(self, node_id: str) -> object:
        return self.generation, self._fleet.epoch, self._fleet.group_of(node_id)

    def _is_due(self, node_id: str, mono: float) -> bool:
        said = self.in_force.get(node_id)
        if self.generation == 0 and (said is None or said.generation == 0):
            return False
        what, told_mono = self._told.get(node_id, (None, -REISSUE_EVERY_S))
        if what != self._version_for(node_id) or mono - told_mono >= REISSUE_EVERY_S:
            return True
        is_held = said is not None and said.generation == self.generation
        return not is_held and mono - told_mono >= AGAIN_AFTER_S

    def _tell(self, node_id: str, node: Node, now: float) -> None:
        desired = DesiredState(node_id, self._signer.epoch, self.generation, now,
                               self._fleet.group_of(node_id),
                               for_node(self.quotas.all, self._fleet, node))
        found = self._signer.sign_desired(desired)
        if isinstance(found, Refusal):
            log.warning("quotas_not_signed node=%s why=%r", node_id, found.sentence)
            return
        self._say(node_id, found)

    def _say(self, node_id: str, signed: SignedDesired) -> None:
        link = self._link_of.get(node_id)
        if link is not None:
            self._send(SendMessage(link, signed))

    def regrouped(self, node_id: str, group: str) -> None:
        """What it is to hold is another thing now, so it has another generation."""
        if self.generation:
            self.generation = self._store.next_generation()

    # -- what is known

    def said_by_nodes(self) -> Iterator[tuple[str, str, InForce]]:
        """Node, its host, and what it said last."""
        for node_id, said in self.in_force.items():
            node = self._fleet.nodes.get(node_id)
            if node is not None:
                yield node_id, node.hello.host, said

    def deployed(self, quota: Quota) -> list[QuotaDeployment]:
        """All who look within a moment share one look at the nodes."""
        key, now = (quota.id, self.generation), time.monotonic()
        kept = self._deployed.get(key)
        if kept is None or now - kept[0] >= DEPLOYED_FOR_S:
            gevent.sleep(0)  # of many Quotas on many nodes, live is not to wait for all
            kept = now, [*deployments(quota, self.generation, self._fleet, self.in_force)]
            self._deployed = {each: found for each, found in self._deployed.items()
                              if now - found[0] < DEPLOYED_FOR_S} | {key: kept}
        return kept[1]

    def seen_by(self, lens: VisibleFleet, quota: Quota) -> tuple[list[QuotaDeployment],
                                                                 list[QuotaBalance]]:
        sees_all = self.sees_all(lens, quota)
        return [each for each in self.deployed(quota) if lens.sees_node(each.node_id)], [
            each for each in self.of(quota.id) if sees_all or each.holder in lens.reads.own]

    def sees_all(self, lens: VisibleFleet, quota: Quota) -> bool:
        """A sum over more than one may see is told only to whom it is about."""
        return lens.is_whole or all(
            lens.sees_node(node_id) for node_id, node in self._fleet.nodes.items()
            if concerns(quota, self._fleet, node))

    def of(self, quota_id: str) -> list[QuotaBalance]:
        return worst_first(each for each in self.balances if each.quota.id == quota_id)

    def of_task(self, node: Node, task_id: str
                ) -> Iterator[tuple[Limit, QuotaChoice, QuotaBalance | None]]:
        """Which counts for it, and what its holder has of that."""
        for holding in holdings(self._fleet, node):
            if holding.task.id == task_id:
                for limit, choice in explained(self.quotas, holding):
                    holder = holder_of(choice.quota, holding.task)
                    yield limit, choice, next(
                        (each for each in self.of(choice.quota.id)
                         if (each.limit, each.holder) == (limit, holder)), None)

    def here(self, node: Node, uuid: str | None, lens: VisibleFleet) -> list[NodeQuotaStatus]:
        """The Quotas that concern this Node, or this Gpu of it, and who of theirs is there."""
        now = time.time()
        held = on_gpu(holdings(self._fleet, node), uuid) if is_current(node, now) else []
        task_ids = frozenset(each.task.id for each in held)
        parts = {(each.quota.id, each.limit, each.holder): each for each in balances(
            self.quotas, held, now, self._hours.of, frozenset(self.spared))}
        found, node_id = [], node.hello.node_id
        for quota in for_node(self.quotas.all, self._fleet, node):
            if quota.scope_kind == "gpu" and uuid not in (None, quota.scope_name):
                continue
            found.append(NodeQuotaStatus(
                quota, deployment(quota, self.generation, node_id, node,
                                  self.in_force.get(node_id)),
                [(each, part) for each in self.seen_by(lens, quota)[1]
                 if (part := parts.get((quota.id, each.limit, each.holder)))], task_ids))
        return found

    def of_owner(self, name: str, lens: VisibleFleet) -> list[QuotaBalance]:
        """All that counts for them, also where they hold nothing of it now."""
        found = [each for quota in self.quotas.all for each in self.seen_by(lens, quota)[1]
                 if name in (each.holder, *each.users)]
        if lens.is_whole or name in lens.reads.own:
            held = {(each.quota.id, each.limit) for each in found}
            found += [self._nothing(quota, limit, name) for quota, limit in
                      self.quotas.open_to(name, self.groups.get(name, ()))
                      if (quota.id, limit) not in held and limit != "max_age_s"]
        return worst_first(found)

    def _nothing(self, quota: Quota, limit: Limit, name: str) -> QuotaBalance:
        hours = self._hours.of.get((quota.id, name)) if limit == "gpu_hours" else None
        is_known = limit != "gpu_hours" or self._knows_hours
        return QuotaBalance(quota, limit, name, hours or 0.0, quota.limit(limit) or 0.0, is_known,
                            0, ())

    def looks(self, lens: VisibleFleet) -> list[QuotaMetricsSnapshot]:
        return [quota_look(version.quota, *self.seen_by(lens, version.quota))
                for version in self.versions.values()]

    def past(self, quota: Quota, limit: Limit, holder: str,
             span_s: float) -> tuple[int, QuotaUsageSeries]:
        """Its steps, and what this holder had of it in them."""
        step_s, now = step_of(limit, span_s), time.time()
        is_hours = limit == "gpu_hours"  # the mean of a step that is not over is not known
        end = (int(now // step_s) + is_hours) * step_s
        span = end - int(span_s), end
        asked = span[0] - int(PER_S[quota.per] + HOUR_S if is_hours else 0), end
        column = "mem_byte_s" if limit == "mem_bytes" else "gpu_s"
        nodes = self._counted_on(quota, limit, holder)
        # Where not one of several Nodes was seen, nothing is known: the hub was away.
        witnesses = [self._fleet.uuids[node.listing.order[0]] for node in list(
            self._fleet.nodes.values()) if node.listing and node.listing.order][:WITNESSES]
        gave = [PastQuotaSetting(each.set_at, each.quota if each.is_there else None)
                for each in self.history(quota.id)]

        def ask() -> QuotaUsageSeries:
            if not witnesses or nodes == frozenset():
                return line(quota, limit, span, step_s, {}, frozenset(), gave)
            seen = self._history.series(witnesses, ["mem_used_bytes"], *span, step_s, ("n",))
            own = self._history.usage("user", step_s, *asked, nodes, holder)
            return line(quota, limit, span, step_s,
                        dict(zip(own["t"].tolist(), own[column].tolist(), strict=True)),
                        frozenset(seen["t"].tolist()), gave)

        told: QuotaUsageSeries = gevent.get_hub().threadpool.apply(ask)
        return step_s, told

    def _counted_on(self, quota: Quota, limit: Limit, holder: str) -> frozenset[str] | None:
        """Where nothing narrower counts for them; None: everywhere, also where no Node is now."""
        taken = [each for each in narrower(quota, limit, holder, self.groups.get(holder, ()),
                                           self.quotas.all) if each.scope_kind != "gpu"]
        if quota.scope == "fleet" and not taken:
            return None
        return frozenset(
            node_id for node_id, node in self._fleet.nodes.items()
            if concerns(quota, self._fleet, node) and not any(
                concerns(each, self._fleet, node) for each in taken))

    def history(self, quota_id: str) -> list[QuotaVersionRecord]:
        return self._store.versions(quota_id)

    def try_out(self, quota: Quota, lens: VisibleFleet) -> list[QuotaBalance]:
        """Who would be over what, if it were in force now beside the others."""
        now = time.time()
        quotas = QuotaIndex([*(each for each in self.quotas.all if each.id != quota.id), quota])
        seen = None if lens.is_whole else lens
        counted = QuotaGpuHours() if quota.gpu_hours is None else self._count_hours(now, quotas,
                                                                                    seen)
        return worst_first(each for each in self._sum(now, quotas, counted, seen)
                           if each.quota.id == quota.id)

    def twin(self, quota: Quota) -> str | None:
        """Why it cannot stand beside the others."""
        found = next((each for each in self.quotas.all if each.id != quota.id
                      and _place(each) == _place(quota) and {*each.limits} & {*quota.limits}), None)
        return None if found is None else (
            f"{found.id} limits the same for {quota.subject} on {quota.scope}: change that one, or "
            "take its limit away first")

    def reach(self, quota: Quota, lens: VisibleFleet) -> int:
        """How many nodes it is about."""
        return sum(concerns(quota, self._fleet, node) for node_id, node in list(
            self._fleet.nodes.items()) if lens.sees_node(node_id))

    # -- changes

    def put(self, actor: Actor, quota: Quota) -> QuotaVersionRecord:
        self._may(actor, "PUT /api/v1/quotas/<quota_id>")
        if quota.id not in self.versions and len(self.versions) >= MAX_QUOTAS:
            raise InvalidChangeError(f"at most {MAX_QUOTAS} quotas fit")
        if (why := self.twin(quota)) is not None:
            raise InvalidChangeError(why)
        before = self.versions.get(quota.id)
        with self._auditor.change("quota", by(actor) | {
                "action": "put", "sentence": f"{actor.name} set the quota {quota.id} "
                f"({quota.mode}): {meaning(quota)}", "detail": {
                "quota": msgspec.to_builtins(quota),
                "before": None if before is None else msgspec.to_builtins(before.quota)}}):
            self._store.put(quota, actor.name, time.time())
        self._changed()
        return self.versions[quota.id]

    def remove(self, actor: Actor, quota_id: str) -> None:
        self._may(actor, "DELETE /api/v1/quotas/<quota_id>")
        if quota_id not in self.versions:
            raise NotFoundError(f"there is no quota {quota_id[:80]!r}")
        with self._auditor.change("quota", by(actor) | {
                "action": "remove", "sentence": f"{actor.name} removed the quota {quota_id}",
                "detail": {"quota": quota_id}}, takes_away=True):
            self._store.put(self.versions[quota_id].quota, actor.name, time.time(),
                            is_there=False)
        self._changed()

    def _changed(self) -> None:
        self._load()
        self._next_mono = 0.0
        self.balances = [each for each in self.balances
                         if self.quotas.of.get(each.quota.id) == each.quota]
        for tell in self.on_change:
            tell()

    def _may(self, actor: Actor, verb: str) -> None:
        refusal = may(actor, verb, now=time.time())
        if refusal is not None:
            raise RefusedError(refusal)


def _place(quota: Quota) -> tuple[str, str, str]:
    return quota.subject, quota.scope, quota.count
