"""Quotas: what may be written, which one counts, and who would go first."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.contract.quota import InvalidQuotaError, Quota, meaning, read
from gpudeck.contract.quota_usage import QuotaBalance, QuotaIndex, TaskHolding, balances, explained
from gpudeck.contract.wire import Task
from gpudeck.language.sizes import parse_size
from gpudeck.language.times import parse_span

NOW = 1_000_000.0
GIB = 2**30


def task(name: str, user: str | None = "alice", age_s: float | None = 1_000.0, job: str = "",
         **more: Any) -> Task:
    return Task(name, 100, 5, None if age_s is None else NOW - age_s, user, "python",
                job_id=job or name, **more)


def holding(one: Task, *uses: tuple[str, float | None], node: str = "n1", group: str = "default"
            ) -> TaskHolding:
    return TaskHolding(one, node, f"host-{node}", group, uses)


def quota(**fields: Any) -> Quota:
    return read({"id": "q", "subject": "user:alice", **fields})


def one(quotas: list[Quota], *holdings: TaskHolding, **more: Any) -> QuotaBalance:
    [balance] = balances(QuotaIndex(quotas), holdings, NOW, more.pop("hours", {}),
                         more.pop("spared", ()), **more)
    return balance


# -- written


def test_sizes_and_spans_are_read_and_said_again() -> None:
    a_quota = read({"id": "night", "subject": "group:ml", "scope": "node:n1", "mem_bytes": "40GiB",
                    "max_age_s": "12h", "gpus": 2, "mode": "act", "because": "shared",
                    "ladder": [{"do": "tell"}, {"do": "end", "after_s": "10m"}]})
    assert (a_quota.mem_bytes, a_quota.max_age_s) == (40 * GIB, 43_200.0)
    assert a_quota.ladder[1].after_s == 600.0
    assert meaning(a_quota) == ("each member of ml may hold 2 GPUs and 40 GiB of memory and "
                                "run a task for 12 h on n1")
    assert parse_size("1.5TiB") == 1.5 * 2**40
    assert parse_span("90s") == 90.0


@pytest.mark.parametrize(("field", "fields"), [
    ("id", {"id": "Not So"}),
    ("subject", {"subject": "alice"}), ("subject", {"subject": "user:"}),
    ("subject", {"subject": "*:x"}), ("subject", {"subject": "user:a b"}),
    ("subject", {"subject": "user:*"}), ("subject", {"subject": "container:web-*"}),
    ("subject", {"subject": "k8s:/pod"}), ("subject", {"subject": "k8s:a/b/c"}),
    ("scope", {"scope": "rack:1"}), ("scope", {"scope": "node:"}), ("scope", {"scope": "fleet:x"}),
    ("mem_bytes", {"mem_bytes": "2.5X"}), ("mem_bytes", {"mem_bytes": "lots"}),
    ("mem_bytes", {"mem_bytes": "9" * 400 + "GiB"}), ("mem_bytes", {"mem_bytes": "9999TiB"}),
    ("max_age_s", {"max_age_s": "1 month"}), ("max_age_s", {"max_age_s": "9" * 400 + "d"}),
    ("gpus", {"gpus": -1}), ("priority", {"priority": 5}), ("mode", {"mode": "kill"}),
    ("mode", {"gpus": None, "mode": "act"}),
    ("gpu_hours", {"gpu_hours": 5, "subject": "slurm:12"}),
    ("max_age_s", {"max_age_s": 5, "count": "together"}),
    ("gpus", {"gpus": 2, "scope": "gpu:GPU-1"}),
    ("ladder", {"ladder": [{"do": "end", "after_s": 60}]}),
    ("ladder", {"ladder": [{"do": "tell"}, {"do": "end", "after_s": 59}]}),
    ("ladder", {"ladder": [{"do": "tell"}, {"do": "end", "after_s": 60},
                           {"do": "tell", "after_s": 60}]}),
    ("ladder", {"mode": "act", "ladder": [{"do": "tell"}]}),
    ("kills", {"kills": 3}),
])
def test_what_is_wrong_is_named(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidQuotaError) as error:
        read({"id": "q", "subject": "user:alice", "gpus": 1} | fields)
    assert field in [problem.field.partition("[")[0] for problem in error.value.problems]
    assert all(problem.message for problem in error.value.problems)


def test_a_node_that_may_end_tasks_by_itself_is_refused() -> None:
    assert quota(gpus=1, offline="wait").offline == "wait"
    with pytest.raises(InvalidQuotaError, match=r"offline: .*ends nothing"):
        quota(gpus=1, offline="allow")


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidQuotaError) as error:
        read({"id": "Q", "subject": "bob", "scope": "moon", "mem_bytes": "2.5X"})
    assert {"id", "subject", "scope", "mem_bytes"} <= {
        problem.field for problem in error.value.problems}


@pytest.mark.parametrize("field", ["gpus", "priority", "per", "count", "mode", "offline", "ladder",
                                   "max_age_s", "gpu_hours", "mem_bytes", "id", "subject"])
def test_of_another_kind_is_said_for_people_beside_all_that_is_wrong_too(field: str) -> None:
    with pytest.raises(InvalidQuotaError) as error:
        read({"id": "x", "subject": "bob", "scope": "moon", field: [random.random()]})
    texts = {problem.field.partition("[")[0]: problem.message for problem in error.value.problems}
    assert {field, "scope"} <= texts.keys()
    assert not any("Expected" in message for message in texts.values())
    with pytest.raises(InvalidQuotaError) as error:
        read({})
    assert [problem.field for problem in error.value.problems] == ["id", "subject"]


# -- which one counts

MIXED = task("t1", "alice", groups=("ml",), container="c" * 64, container_name="trainer",
             namespace="vision", pod="p-0", slurm_job="12")


@pytest.mark.parametrize(("winner", "rivals"), [
    ("container:trainer", ["slurm:12", "k8s:vision/p-0", "user:alice"]),
    (f"container:{'c' * 12}", ["k8s:vision", "*"]),
    ("slurm:12", ["k8s:vision/p-0", "user:alice"]),
    ("k8s:vision/p-0", ["k8s:vision", "user:alice"]),
    ("k8s:vision", ["user:alice", "group:ml"]),
    ("user:alice", ["group:ml", "*"]),
    ("group:ml", ["*"]),
])
def test_the_most_specific_subject_wins(winner: str, rivals: list[str]) -> None:
    quotas = [Quota(f"q{at}", subject, gpus=9) for at, subject in enumerate([*rivals, winner])]
    random.shuffle(quotas)
    choice = QuotaIndex(quotas).choice(holding(MIXED, ("G1", 1.0)), "G1", "gpus", "each")
    assert choice is not None
    assert choice.quota.subject == winner
    assert {rival.subject for rival in choice.beside} == set(rivals)
    assert "more specific" in choice.why


@pytest.mark.parametrize(("winner", "rivals"), [
    ("gpu:G1", ["node:host-n1", "group:a", "fleet"]), ("node:host-n1", ["group:a", "fleet"]),
    ("group:a", ["fleet"]), ("fleet", ["node:host-n2", "gpu:G2", "group:b"]),
])
def test_the_narrowest_scope_wins(winner: str, rivals: list[str]) -> None:
    quotas = [Quota(f"q{at}", "*", scope, gpus=1) for at, scope in enumerate([*rivals, winner])]
    random.shuffle(quotas)
    choice = QuotaIndex(quotas).choice(
        holding(task("t"), ("G1", 1.0), group="a"), "G1", "gpus", "each")
    assert choice is not None
    assert choice.quota.scope == winner


def test_a_use_counts_once_and_explains_itself() -> None:
    fleet = Quota("fleet", "user:alice", gpus=1)
    here = Quota("here", "user:alice", "node:host-n1", gpus=2)
    totals = balances(QuotaIndex([fleet, here]), [
        holding(task("a"), ("G1", 1.0), ("G2", 1.0), node="n1"),
        holding(task("b"), ("G3", 1.0), node="n2")], NOW, {}, ())
    assert {total.quota.id: (total.used, total.is_over) for total in totals} == {
        "fleet": (1.0, False), "here": (2.0, False)}
    [explanation] = explained(QuotaIndex([fleet, here]), holding(task("a"), ("G1", 1.0)))
    assert explanation[0] == "gpus"
    assert explanation[1].why == ("here (user:alice on node:host-n1) is more specific than fleet")


def test_each_and_together_both_count() -> None:
    per_holder, all_of = Quota("each", "*", gpus=1), Quota("all", "*", gpus=1, count="together")
    totals = balances(QuotaIndex([per_holder, all_of]), [
        holding(task("a", "alice"), ("G1", 1.0)), holding(task("b", "bob"), ("G2", 1.0))],
        NOW, {}, ())
    assert {(one.quota.id, one.holder): one.is_over for one in totals} == {
        ("each", "alice"): False, ("each", "bob"): False, ("all", "everyone together"): True}


# -- who goes


def test_memory_that_is_not_known_is_not_counted_and_said() -> None:
    balance = one([quota(mem_bytes="2GiB")], holding(task("a"), ("G1", 1.0 * GIB), ("G2", None)))
    assert (balance.used, balance.is_whole, balance.is_over) == (GIB, False, False)
    assert "at least" in balance.sentence


def test_priority_4_goes_before_1_whatever_their_age() -> None:
    balance = one(
        [Quota("all", "*", gpus=1, count="together"), Quota("a", "user:alice", priority=1),
         Quota("b", "user:bob", priority=4)],
        holding(task("young", "alice", 1.0), ("G1", 1.0)),
        holding(task("old", "bob", 9_000.0), ("G2", 1.0)))
    assert [job.task_ids for job in balance.offenders] == [("old",)]
    assert balance.offenders[0].priority == 4


def test_of_equals_the_youngest_goes_and_who_has_no_age_last() -> None:
    balance = one([quota(gpus=1)], holding(task("old", age_s=900.0), ("G1", 1.0)),
                  holding(task("young", age_s=10.0), ("G2", 1.0)),
                  holding(task("unknown", age_s=None), ("G3", 1.0)))
    assert [job.task_ids for job in balance.offenders] == [("young",), ("old",)]


def test_who_frees_nothing_stays() -> None:
    """The youngest shares its GPU with another: without it as much would be held."""
    balance = one([quota(gpus=1)], holding(task("a", age_s=900.0), ("G1", 1.0)),
                  holding(task("b", age_s=500.0), ("G2", 1.0)),
                  holding(task("c", age_s=10.0), ("G1", 1.0)))
    assert [job.task_ids for job in balance.offenders] == [("b",)]


def test_the_protected_are_spared_and_the_next_goes() -> None:
    holdings = [holding(task(name, age_s=age_s), (f"G-{name}", 1.0))
                for name, age_s in (("a", 10.0), ("b", 20.0), ("c", 30.0))]
    balance = one([quota(subject="*", gpus=2)], *holdings, spared={"a"})
    assert [job.task_ids for job in balance.offenders] == [("b",)]


def test_tasks_of_nobody_known_count_for_no_one_and_are_never_chosen() -> None:
    assert balances(QuotaIndex([quota(subject="*", gpus=0)]),
                    [holding(task("x", None), ("G1", 1.0))], NOW, {}, ()) == []
    balance = one([quota(subject="*", gpus=0, count="together")],
                  holding(task("x", None), ("G1", 1.0)))
    assert (balance.used, balance.offenders) == (1.0, ())


def test_a_job_with_somebody_elses_processes_is_not_chosen() -> None:
    balance = one([quota(gpus=0)], holding(task("a", job="j"), ("G1", 1.0)),
                  holding(task("b", "bob", job="j"), ("G1", 1.0)))
    assert balance.is_over
    assert balance.offenders == ()


def test_age_is_of_each_task_and_unknown_ages_are_not_old() -> None:
    balance = one([quota(max_age_s="1h")], holding(task("old", age_s=3_601.0), ("G1", 1.0)),
                  holding(task("new", age_s=3_599.0), ("G2", 1.0)),
                  holding(task("unknown", age_s=None), ("G3", 1.0)))
    assert [job.task_ids for job in balance.offenders] == [("old",)]


def test_hours_are_of_the_holder_and_none_is_not_zero() -> None:
    a_holding = holding(task("a"), ("G1", 1.0))
    assert balances(QuotaIndex([quota(gpu_hours=5)]), [a_holding], NOW, {}, ()) == []
    balance = one([quota(gpu_hours=5)], a_holding, hours={("q", "alice"): 5.5},
                  hours_by_node={("q", "alice"): {"n1": 5.5}})
    assert (balance.is_over, [job.task_ids for job in balance.offenders]) == (True, [("a",)])
    assert not one([quota(gpu_hours=5)], a_holding, hours={("q", "alice"): 5.0}).is_over


# -- what one node says of another's work


def on(node: str, *gpus: str, since: float, user: str = "alice", mem: float = 1.0,
       age_s: float | None = 60.0) -> TaskHolding:
    """Return the holding of a new job."""
    a_task = task(f"{node}-{'-'.join(gpus)}", user, age_s=age_s)
    return replace(holding(a_task, *((gpu, mem) for gpu in gpus), node=node),
                   since=dict.fromkeys(gpus, since))


def offender_nodes(balance: QuotaBalance) -> set[str]:
    return {job.node for job in balance.offenders}


def test_the_excess_goes_where_it_arose_whatever_ages_are_claimed() -> None:
    """A case that was tried: one node claims eight tasks of a user who holds four elsewhere."""
    real = [on("n1", f"A{at}", since=100.0, age_s=3_600.0) for at in range(4)]
    for age_s in (None, 9e9, 0.0):
        made_up = [on("evil", f"E{at}", since=200.0, age_s=age_s) for at in range(8)]
        balance = one([quota(gpus=6)], *real, *made_up)
        assert (offender_nodes(balance), len(balance.offenders)) == ({"evil"}, 6)
        spared = {fake.task.id for fake in made_up}
        balance = one([quota(gpus=6)], *real, *made_up, spared=spared)
        assert (balance.offenders, balance.is_contested) == ((), True)
        assert "only one node reports" in balance.sentence


def test_who_spreads_over_two_nodes_is_over_where_it_came_last() -> None:
    balance = one([quota(gpus=6)], *(on("n1", f"A{at}", since=100.0) for at in range(4)),
                  *(on("n2", f"B{at}", since=101.0 + at) for at in range(4)))
    assert (offender_nodes(balance), len(balance.offenders)) == ({"n2"}, 2)
    assert {job.job_id for job in balance.offenders} == {"n2-B2", "n2-B3"}


def test_what_any_two_nodes_say_is_enough() -> None:
    total = one([quota(mem_bytes=10)], *(on(f"n{at}", "G", since=1.0, mem=6.0) for at in range(3)))
    assert len(total.offenders) == 1, "whoever of them lies, it is over by the others"
    total = one([quota(mem_bytes=10)], *(on(f"n{at}", "G", since=1.0, mem=6.0) for at in range(2)))
    assert (total.is_over, total.offenders, total.is_contested) == (True, (), True)


@pytest.mark.parametrize(("by_node", "goes"), [
    ({"n1": 9.0}, True), ({"n2": 9.0}, False), ({"n2": 6.0, "n3": 6.0}, True), ({}, False),
    ({"n1": 3.0, "n2": 6.0}, False)])
def test_hours_that_only_another_node_says_end_nothing_here(by_node: dict[str, float], goes: bool
                                                            ) -> None:
    total = one([quota(gpu_hours=5)], on("n1", "G", since=1.0),
                hours={("q", "alice"): max(9.0, sum(by_node.values()))},
                hours_by_node={("q", "alice"): by_node})
    assert (total.is_over, bool(total.offenders), total.is_contested) == (True, goes, not goes)


@given(data=st.data())
def test_no_claim_of_one_node_takes_from_others_what_the_quota_gives(data: st.DataObject) -> None:
    """The node may say anything after they came; also of users, ages and what it spares."""
    def some(nodes: list[str], begin: int) -> list[TaskHolding]:
        return [on(data.draw(st.sampled_from(nodes)), f"G{at}-{begin}", since=float(begin + at),
                   user=data.draw(st.sampled_from(["alice", "bob"])),
                   age_s=data.draw(st.none() | st.floats(0, 1e6)))
                for at in range(data.draw(st.integers(0, 8)))]

    most = data.draw(st.integers(0, 9))
    quotas = QuotaIndex([quota(subject="*", gpus=most,
                               count=data.draw(st.sampled_from(["each", "together"])))])
    honest, made_up = some(["n1", "n2", "n3"], 0), some(["evil"], 100)
    spared = data.draw(st.sets(st.sampled_from([fake.task.id for fake in made_up] or ["none"])))
    for balance in balances(quotas, [*honest, *made_up], NOW, {}, spared):
        honest_part = [row for row in honest
                       if balance.quota.count == "together" or row.task.user == balance.holder]
        evicted = [job for job in balance.offenders if job.node != "evil"]
        assert len(honest_part) - len(evicted) >= min(most, len(honest_part))


# -- whatever there is

USERS = ("alice", "bob", "carol", None)
quota_st = st.builds(
    lambda at, subject, scope, gpus, mem, count, priority: Quota(
        f"q{at}", subject, scope, gpus=gpus, mem_bytes=mem, count=count, priority=priority),
    st.integers(0, 999),
    st.sampled_from(("*", "user:alice", "user:bob", "group:ml", "container:box")),
    st.sampled_from(("fleet", "node:host-n1", "group:a", "gpu:n1-G1")),
    st.none() | st.integers(0, 4), st.none() | st.integers(0, 8), st.sampled_from(
        ("each", "together")), st.integers(0, 4))


@st.composite
def holdings_st(draw: st.DrawFn) -> list[TaskHolding]:
    holdings = []
    for at in range(draw(st.integers(0, 9))):
        node = draw(st.sampled_from(("n1", "n2")))
        user = draw(st.sampled_from(USERS))
        gpus = draw(st.sets(st.integers(0, 3), min_size=1, max_size=3))
        holdings.append(TaskHolding(
            task(f"t{at}", user, draw(st.none() | st.floats(1, 9_000)),
                 f"j{draw(st.integers(0, 5))}",
                 groups=("ml",) if draw(st.booleans()) else (),
                 container_name=draw(st.sampled_from((None, "box")))),
            node, f"host-{node}", draw(st.sampled_from(("a", "b"))),
            tuple((f"{node}-G{gpu}", draw(st.none() | st.integers(0, 5).map(float)))
                  for gpu in sorted(gpus))))
    return holdings


@settings(max_examples=150, deadline=None)
@given(st.lists(quota_st, max_size=6, unique_by=lambda a_quota: a_quota.id), holdings_st(),
       st.sets(st.integers(0, 9).map("t{}".format)))
def test_never_the_protected_never_within_and_never_more_than_must(
        quotas: list[Quota], holdings: list[TaskHolding], spared: set[str]) -> None:
    index = QuotaIndex(quotas)
    for balance in balances(index, holdings, NOW, {}, spared):
        evicted = {(job.node, job.job_id) for job in balance.offenders}
        assert not evicted or balance.is_over
        assert not any(task_id in spared for job in balance.offenders for task_id in job.task_ids)
        assert all(job.user is not None for job in balance.offenders)
        if balance.limit == "max_age_s":
            continue
        remaining = [row for row in holdings if row.job not in evicted]
        for one_more in evicted:  # each of them is needed
            stays = [*remaining, *(row for row in holdings if row.job == one_more)]
            assert amount_used(index, balance, stays) > balance.most
            assert amount_used(index, balance, stays) > amount_used(index, balance, remaining)


def amount_used(quotas: QuotaIndex, of: QuotaBalance, holdings: list[TaskHolding]) -> float:
    return next((balance.used for balance in balances(quotas, holdings, NOW, {}, ())
                 if (balance.quota.id, balance.limit, balance.holder)
                 == (of.quota.id, of.limit, of.holder)), 0.0)


SPECIFIC = ("*", "group:", "user:", "k8s:", "slurm:", "container:")
NARROW = ("fleet", "group:", "node:", "gpu:")


def is_about(quota: Quota, a_holding: TaskHolding, uuid: str) -> bool:
    """Read off the documentation, not off the code."""
    one = a_holding.task
    names = {"*", f"user:{one.user}", *(f"group:{group}" for group in one.groups),
             f"container:{one.container_name}"}
    places = {"fleet", f"node:{a_holding.host}", f"group:{a_holding.group}", f"gpu:{uuid}"}
    return quota.subject in names and quota.scope in places


def how_specific(quota: Quota) -> tuple[int, int]:
    return (next(at for at, kind in enumerate(SPECIFIC) if quota.subject.startswith(kind)),
            next(at for at, kind in enumerate(NARROW) if quota.scope.startswith(kind)))


@settings(max_examples=150, deadline=None)
@given(st.lists(quota_st, max_size=8, unique_by=lambda a_quota: a_quota.id), holdings_st())
def test_none_that_is_more_specific_is_passed_over(quotas: list[Quota], holdings: list[TaskHolding]
                                                   ) -> None:
    index = QuotaIndex(quotas)
    for a_holding in holdings:
        for uuid, _ in a_holding.uses:
            for count in ("each", "together"):
                rivals = [quota for quota in quotas if quota.count == count
                          and quota.gpus is not None and is_about(quota, a_holding, uuid)]
                choice = index.choice(a_holding, uuid, "gpus", count)
                assert (choice is None) == (not rivals)
                if choice is not None:
                    assert choice.quota in rivals
                    assert how_specific(choice.quota) == max(map(how_specific, rivals))
                    assert {*choice.beside} | {choice.quota} == {*rivals}


@settings(max_examples=80, deadline=None)
@given(st.lists(quota_st, max_size=6, unique_by=lambda a_quota: a_quota.id), holdings_st())
def test_one_quota_per_use_and_limit(quotas: list[Quota], holdings: list[TaskHolding]) -> None:
    """Summed over all holders, no use is counted twice."""
    limited = Counter[str]()
    for balance in balances(QuotaIndex(quotas), holdings, NOW, {}, ()):
        if balance.limit == "gpus":
            limited[balance.quota.count] += int(balance.used)
    for count in ("each", "together"):
        there = {(one.node_id, uuid, one.task.user if count == "each" else None, at)
                 for at, one in enumerate(holdings) for uuid, _ in one.uses}
        assert limited[count] <= len(there)
