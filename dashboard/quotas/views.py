"""Quotas as the API and the page show them. Pure."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from gpudeck.contract.desired_state import InForce
from gpudeck.contract.quota import Limit, Quota, QuotaMode, QuotaProblem, meaning
from gpudeck.contract.quota_usage import QuotaBalance, QuotaChoice, QuotaOffender

from .evaluate import OverKey, QuotaDeployment, counts, over_key
from .store import QuotaVersion

NODES_SHOWN = 200
HOLDERS_SHOWN = 200
Ladder = Mapping[OverKey, str]


class QuotaOffenderView(QuotaOffender, frozen=True):
    ladder: str  # how far it is, and why it waits; "": nothing is done


class QuotaBalanceView(Struct):
    """Balance of one holder for one limit. `is_whole` false: at least that much. `offenders`: the
    jobs that would go, the first one first."""

    quota: str
    limit: Limit
    holder: str
    used: float
    most: float
    is_over: bool
    is_whole: bool
    tasks: int
    users: list[str]
    sentence: str
    offenders: list[QuotaOffenderView]


class QuotaView(Struct):
    """Quota with its state. `wanted`, `applied`, `in_force`: on how many of its nodes; `nodes`
    shows those first where it is not in force."""

    quota: Quota
    meaning: str
    generation: int
    by: str
    set_at: float
    wanted: int
    applied: int
    in_force: int
    nodes: list[QuotaDeployment]
    balances: list[QuotaBalanceView]
    over: int


class NodeMechanismView(Struct):
    node: str
    host: str
    proof: str


class MechanismView(Struct):
    """A means to hold a Quota: on which nodes it is there, and what they say of it; `not_there`:
    why, with the number of nodes that say so."""

    name: str
    there: list[NodeMechanismView]
    not_there: dict[str, int]


class QuotaList(Struct):
    """List of quotas. `looked_at`: when use was summed up; None: not yet."""

    generation: int
    looked_at: float | None
    items: list[QuotaView]
    mechanisms: list[MechanismView]


class QuotaVersionList(Struct):
    items: list[QuotaVersion]


class TaskQuotaView(Struct):
    """Quota that counts for one limit of a Task, and why that one. `sentence`: what its holder has
    of it now; None: it is not for the asker, or not known yet. `goes`: the Task is of a job that
    would go."""

    quota: str
    limit: Limit
    mode: QuotaMode
    meaning: str
    why: str
    sentence: str | None
    is_over: bool
    goes: bool


class TaskQuotaList(Struct):
    items: list[TaskQuotaView]


class NodeQuotaHolderView(Struct):
    """Holder of a Quota on this Node. `here`: how much of `used` is on this Node or GPU; None: of
    such a limit there is no part. `goes`: of the jobs that would go, how many are here."""

    holder: str
    limit: Limit
    used: float
    most: float
    here: float | None
    is_over: bool
    is_whole: bool
    sentence: str
    goes: int


class NodeQuotaView(Struct):
    """Quota on one Node, and who of its holders is there."""

    quota: str
    mode: QuotaMode
    meaning: str
    is_applied: bool
    is_in_force: bool
    proof: str
    holders: list[NodeQuotaHolderView]


class NodeQuotaList(Struct):
    items: list[NodeQuotaView]


class OwnerQuotaView(Struct):
    """Limit of an owner. `goes`: how many jobs would go; `ladder`: how far it is with the first of
    them, "": nothing is done. `in_force` of `wanted` nodes."""

    quota: str
    mode: QuotaMode
    meaning: str
    because: str
    limit: Limit
    holder: str
    used: float
    most: float
    is_over: bool
    is_whole: bool
    sentence: str
    goes: int
    ladder: str
    wanted: int
    in_force: int


class OwnerQuotaList(Struct):
    items: list[OwnerQuotaView]


class QuotaHistoryView(Struct):
    """Usage of one limit by a holder, the mean of each step; null: not known. `most`: what it gave
    then; null: nothing was limited. `why`: why there is no past."""

    quota: str
    limit: Limit
    holder: str
    step_s: int
    t: list[int]
    used: list[float | None]
    most: list[float | None]
    why: str


class QuotaDraft(Struct, forbid_unknown_fields=True):
    """Quota as it is being written: anything may be wrong with it. Sizes and spans as numbers, or
    as `40GiB` and `12h`. `is_new`: it must not take the place of another one."""

    quota: dict[str, Any]
    is_new: bool = False


class QuotaCheck(Struct):
    """Check of a draft: who would be over at this moment. `nodes`: how many it would be about; 0
    where its scope names nothing that there is."""

    problems: list[QuotaProblem]
    meaning: str
    holders: int
    over: list[QuotaBalanceView]
    nodes: int = 0


class NewQuota(Struct, forbid_unknown_fields=True):
    """Quota without its id; sizes and spans may be written as `40GiB` and `12h`."""

    subject: str
    scope: str = "fleet"
    gpus: int | None = None
    mem_bytes: int | str | None = None
    gpu_hours: float | None = None
    per: str = "day"
    max_age_s: float | str | None = None
    count: str = "each"
    priority: Annotated[int, Meta(ge=0, le=4)] = 2
    mode: Literal["observe", "warn", "act"] = "observe"
    ladder: list[dict[str, Any]] | None = None
    offline: str = "wait"
    because: str = ""


def balance_view(balance: QuotaBalance, ladder: Ladder) -> QuotaBalanceView:
    return QuotaBalanceView(
        balance.quota.id, balance.limit, balance.holder, balance.used, balance.most,
        balance.is_over, balance.is_whole, balance.tasks, [*balance.users], balance.sentence,
        [QuotaOffenderView(**asdict(offender),
                           ladder=ladder.get(over_key(balance.quota, offender), ""))
         for offender in balance.offenders[:20]])


def node_quota(quota: Quota, deployed: QuotaDeployment, holders: list[NodeQuotaHolderView]
               ) -> NodeQuotaView:
    return NodeQuotaView(quota.id, quota.mode, meaning(quota), deployed.is_applied,
                         deployed.is_in_force, deployed.proof, holders)


def holder_here(whole: QuotaBalance, part: QuotaBalance, task_ids: Container[str]
                ) -> NodeQuotaHolderView:
    """Return a holder on a node. `part`: of `whole`, what is on this node; `task_ids`: of all tasks
    there."""
    here = part.used if whole.limit in ("gpus", "mem_bytes") and part.is_whole else None
    return NodeQuotaHolderView(
        whole.holder, whole.limit, whole.used, whole.most, here, whole.is_over, whole.is_whole,
        whole.sentence, sum(any(task_id in task_ids for task_id in offender.task_ids)
                            for offender in whole.offenders))


def owner_quota(balance: QuotaBalance, deployed: Sequence[QuotaDeployment],
                ladder: Ladder) -> OwnerQuotaView:
    quota, (wanted_nodes, _, in_force) = balance.quota, counts(deployed)
    first = next((words for offender in balance.offenders
                  if (words := ladder.get(over_key(quota, offender)))), "")
    return OwnerQuotaView(quota.id, quota.mode, meaning(quota), quota.because, balance.limit,
                          balance.holder, balance.used, balance.most, balance.is_over,
                          balance.is_whole, balance.sentence, len(balance.offenders), first,
                          wanted_nodes, in_force)


def task_quota(limit: Limit, choice: QuotaChoice, balance: QuotaBalance | None,
               task_id: str) -> TaskQuotaView:
    goes = balance is not None and any(
        task_id in offender.task_ids for offender in balance.offenders)
    quota = choice.quota
    return TaskQuotaView(quota.id, limit, quota.mode, meaning(quota), choice.why,
                         None if balance is None else balance.sentence,
                         balance is not None and balance.is_over, goes)


def quota_view(version: QuotaVersion, deployed: Iterable[QuotaDeployment],
               balances: Sequence[QuotaBalance], ladder: Ladder) -> QuotaView:
    nodes = sorted(deployed, key=lambda state: (state.is_in_force, state.is_applied, state.host))
    return QuotaView(
        version.quota, version.meaning, version.generation, version.by, version.set_at,
        *counts(nodes), nodes[:NODES_SHOWN],
        [balance_view(balance, ladder) for balance in balances[:HOLDERS_SHOWN]],
        sum(balance.is_over for balance in balances))


def mechanism_views(reports: Iterable[tuple[str, str, InForce]]) -> list[MechanismView]:
    """Return the mechanisms of nodes. `reports`: of each node its id, host and report."""
    by_name: dict[str, MechanismView] = {}
    for node_id, host, in_force in reports:
        for mechanism in in_force.mechanisms:
            view = by_name.setdefault(mechanism.name, MechanismView(mechanism.name, [], {}))
            if mechanism.state == "there":
                view.there.append(NodeMechanismView(node_id, host, mechanism.proof))
            else:
                view.not_there[mechanism.proof] = view.not_there.get(mechanism.proof, 0) + 1
    for view in by_name.values():
        view.there = view.there[:NODES_SHOWN]
        view.not_there = dict(sorted(view.not_there.items(), key=lambda entry: -entry[1])[:20])
    return [by_name[name] for name in sorted(by_name)]
