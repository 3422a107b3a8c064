"""The lock: whatever the requests and their order, no GPU is leased twice; what keeps a lease."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.pool.gpus import UNCONFINED, PoolSnapshot, pool_gpus, with_reasons
from agent.pool.lock import (
    BIND_WITHIN_S,
    LEFT_KEEP_S,
    LEFT_LOOK_S,
    UNUSED_TAKE_PART,
    UNUSED_TELL_S,
    LeasedProcess,
    LeaseSigns,
    NodeLease,
    PoolGpu,
    Review,
    free_node,
    refusal,
    remaining_gpus,
    review,
)
from gpudeck.contract.wire import GpuFacts, GpuLink
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.host_resources import NOT_COUNTED, FreeHost
from tests.unit.readings import gpu_reading

GIB = 2**30
UNUSED_TAKE_S = UNUSED_TELL_S / UNUSED_TAKE_PART
GPUS = {f"G{index}": PoolGpu(f"G{index}", "H100", index, False, 0, None, 80 * GIB, "")
        for index in range(4)}


def reviewed(lease: NodeLease, signs: LeaseSigns, keep_until: float | None, now: float) -> Review:
    return review(lease, signs, keep_until, UNUSED_TELL_S, now)


def lease(name: str = "a", *uuids: str, share: int = 1_000, mem: int | None = None,
          state: str = "active", is_run: bool = True, since: float = 0.0) -> NodeLease:
    claim = Claim(id=name, owner="ann", gpus=len(uuids), submitted_at=0.0, share_milli=share,
                  mem_bytes=mem)
    return NodeLease(id=name, claim=claim, uuids=uuids or ("G0",), uid=1_000, is_run=is_run,
                     state=state, since=since, until=28_800.0, used_at=since,  # type: ignore[arg-type]
                     process=LeasedProcess(4_242, 7, None) if is_run else None)


def test_no_cpu_and_no_memory_of_the_node_is_given_twice() -> None:
    host = FreeHost(16_000, 64 * GIB)
    leases = [replace(grant, claim=replace(grant.claim, cpu_milli=10_000, ram_bytes=50 * GIB))
              for grant in (lease("a", "G0"),)]
    other = lease("b", "G1")
    asks = replace(other.claim, cpu_milli=6_000, ram_bytes=14 * GIB)
    assert refusal(leases, replace(other, claim=asks), GPUS, host) == ""
    assert refusal(leases, replace(other, claim=replace(asks, cpu_milli=7_000)), GPUS, host) == (
        "it needs 7 CPUs, 6 of 16 are not allocated")
    assert refusal(leases, replace(other, claim=replace(asks, ram_bytes=15 * GIB)), GPUS, host) == (
        "it needs 15 GiB of memory, 14 of 64 GiB are not allocated")


WISHES = st.lists(st.tuples(
    st.sets(st.sampled_from(sorted(GPUS)), min_size=1, max_size=3),
    st.sampled_from((1_000, 100, 300, 600)), st.sampled_from((None, 20 * GIB, 50 * GIB))))


@given(WISHES, st.randoms())
def test_no_gpu_is_given_twice(wishes: list[tuple[set[str], int, int | None]],
                               draw: object) -> None:
    leases: list[NodeLease] = []
    for number, (uuids, share, mem) in enumerate(wishes):
        request = lease(str(number), *sorted(uuids), share=share, mem=mem)
        if not refusal(leases, request, GPUS, NOT_COUNTED):
            leases.append(request)
        if leases and draw.random() < 0.2:  # type: ignore[attr-defined]
            leases.pop(0)
        milli: Counter[str] = Counter()
        memory: Counter[str] = Counter()
        for grant in leases:
            milli.update(dict.fromkeys(grant.uuids, grant.claim.share_milli))
            memory.update(dict.fromkeys(grant.uuids, grant.claim.mem_bytes or 0))
        assert all(total <= 1_000 for total in milli.values())
        assert all(total <= 80 * GIB for total in memory.values())


def test_why_not() -> None:
    leases = [lease("a", "G1")]
    troubled = GPUS | {"G2": replace(GPUS["G2"], trouble="the driver has lost it")}
    assert refusal(leases, lease("b", "G1"), GPUS, NOT_COUNTED) == "GPU 1 is leased"
    assert refusal(leases, lease("b", "G9"), GPUS, NOT_COUNTED) == "there is no GPU G9 on this node"
    assert refusal(leases, lease("b", "G2"), troubled, NOT_COUNTED) == (
        "GPU 2: the driver has lost it")
    unknown = GPUS | {"G0": replace(GPUS["G0"], mem_bytes=None)}
    assert "memory" in refusal([], lease("b", "G0", share=300, mem=GIB), unknown, NOT_COUNTED)


def test_gpu_0_goes_last() -> None:
    assert free_node("id", "n", GPUS.values(), (), NOT_COUNTED).uuids == ("G3", "G2", "G1", "G0")


@pytest.mark.parametrize(("signs", "stays"), [
    (LeaseSigns(False, True, 0, False), True),
    (LeaseSigns(False, False, 1, False), True),
    (LeaseSigns(False, False, 0, True), True),
    (LeaseSigns(True, False, 0, False), True),  # `gpudeck run` is about to give it back
    (LeaseSigns(False, False, 0, False), False),
])
def test_any_sign_keeps_the_lease_of_a_run(signs: LeaseSigns, stays: bool) -> None:
    assert (reviewed(lease(), signs, None, 10.0).lease is not None) == stays


NOTHING = LeaseSigns(False, False, 0, False)


def test_what_nobody_came_for_goes_back() -> None:
    offered = lease(state="offered")
    assert reviewed(offered, NOTHING, None, BIND_WITHIN_S - 0.1).lease == offered
    assert reviewed(offered, NOTHING, None, BIND_WITHIN_S).lease is None


def test_a_bare_claim_that_nobody_uses_is_told_once_and_then_taken() -> None:
    bare = lease(is_run=False)
    assert reviewed(bare, NOTHING, None, UNUSED_TELL_S - 1).tell == ()
    notice = reviewed(bare, NOTHING, None, UNUSED_TELL_S)
    assert "released in 5 min" in notice.tell[0]
    assert notice.lease is not None
    later = reviewed(notice.lease, NOTHING, None, UNUSED_TELL_S + UNUSED_TAKE_S - 1)
    assert (later.tell, later.lease) == ((), notice.lease)
    assert reviewed(notice.lease, NOTHING, None, UNUSED_TELL_S + UNUSED_TAKE_S).lease is None
    in_use = reviewed(notice.lease, LeaseSigns(False, False, 1, False), None, UNUSED_TELL_S + 100)
    assert in_use.lease is not None
    assert in_use.lease.told_at is None


def test_of_whose_use_nobody_can_tell_nothing_is_taken() -> None:
    unknown = LeaseSigns(False, False, 0, None)
    assert reviewed(lease(is_run=False), unknown, None, 1e6).tell == ()


def test_a_run_that_uses_no_gpu_is_told_and_keeps_them() -> None:
    alive = LeaseSigns(True, True, 1, False)
    notice = reviewed(lease(), alive, None, UNUSED_TELL_S)
    assert notice.lease is not None
    assert "it keeps them while it runs" in notice.tell[0]
    later = reviewed(notice.lease, alive, None, UNUSED_TELL_S + 10 * UNUSED_TAKE_S)
    assert (later.tell, later.lease) == ((), notice.lease)
    busy = reviewed(notice.lease, replace(alive, on_gpus=True), None, UNUSED_TELL_S + 1)
    assert busy.lease is not None
    assert busy.lease.told_at is None


def test_what_a_program_left_behind_keeps_its_own_gpus_and_no_others() -> None:
    initial = lease("a", "G0", "G1", "G2")
    worker, helper = (7, 1), (8, 1)
    on_one, on_two = [(worker, "G1")], [(worker, "G1"), (helper, "G2"), (worker, "G9")]
    assert remaining_gpus(initial, [worker], on_one, 1e6) == initial.uuids, "it was not given back"
    back = replace(initial, given_back_at=100.0)

    def rest(processes: list[tuple[int, int]], uses: list[tuple[tuple[int, int], str]],
             after_s: float) -> tuple[str, ...]:
        return remaining_gpus(back, processes, uses, 100.0 + after_s)

    assert rest([worker], on_one, LEFT_LOOK_S - 0.1) == initial.uuids
    assert rest([worker], on_one, LEFT_LOOK_S) == ("G1",)
    assert rest([worker, helper], on_one, LEFT_KEEP_S - 0.1) == initial.uuids, "it may come to one"
    assert rest([worker, helper], on_two, LEFT_LOOK_S) == ("G1", "G2")
    assert rest([worker, helper], on_one, LEFT_KEEP_S) == ("G1",)
    assert rest([helper], [], LEFT_KEEP_S) == ()


USED = LeaseSigns(True, True, 1, True)


def test_at_the_end_of_its_term_a_used_lease_is_renewed_while_nobody_needs_its_gpus() -> None:
    original = lease()
    [before, after] = [reviewed(original, USED, None, at).lease for at in (28_799.0, 28_800.0)]
    assert before is not None
    assert after is not None
    assert (before.until, after.until) == (28_800.0, 28_800.0 + original.claim.term_s)
    booked = reviewed(original, USED, 30_000.0, 28_800.0).lease
    assert booked is not None
    assert booked.until == 30_000.0, "renewed, but not past what is booked"
    overdue = reviewed(original, USED, 28_800.0, 28_800.0)
    assert overdue.lease is not None
    assert overdue.lease.until == 28_800.0
    assert "others wait for its GPUs" in overdue.tell[0]
    assert reviewed(overdue.lease, USED, 0.0, 40_000.0).tell == (), "notified once"
    extended = replace(overdue.lease, until=39_000.0)
    assert reviewed(extended, USED, 0.0, 40_000.0).tell != (), "and once more of the new end"


def test_a_split_board_is_its_instances_and_nvlink_makes_cliques() -> None:
    facts = [GpuFacts("B0", 0, "H100"), GpuFacts("M1", 0, "H100", parent_uuid="B0"),
             GpuFacts("B2", 2, "H100"), GpuFacts("B3", 3, "H100")]
    links = [GpuLink(2, 3, "one switch", 18), GpuLink(0, 2, "system", None)]
    gpus = pool_gpus(facts, links, [gpu_reading("M1"), gpu_reading("B2", "lost")], ())
    by_uuid = with_reasons(PoolSnapshot(gpus, ()), (), "", (), (), "")
    assert {uuid: (gpu.trouble, gpu.clique) for uuid, gpu in by_uuid.items()} == {
        "M1": ("", None), "B2": ("the driver has lost it", by_uuid["B3"].clique),
        "B3": ("the driver has lost it", 3)}


def test_a_board_that_no_program_can_be_confined_to_is_not_given_out() -> None:
    facts = [GpuFacts("GPU-5d0a1c7e-0000-4000-8000-1", 0, "H100"), GpuFacts("INTEL-1", 1, "B580")]
    gpus = pool_gpus(facts, (), [gpu_reading(board.uuid) for board in facts], ())
    by_uuid = with_reasons(PoolSnapshot(gpus, ()), (), "", (), (), "")
    assert [(gpu.reason, gpu.trouble) for gpu in by_uuid.values()] == [
        ("", ""), ("managed", UNCONFINED)]


def test_what_waits_for_a_reset_is_not_given_out_nor_are_its_instances() -> None:
    facts = [GpuFacts("A", 0, "H100"), GpuFacts("B", 1, "H100"),
             GpuFacts("M1", 1, "H100", parent_uuid="B"), GpuFacts("C", 2, "H100"),
             GpuFacts("D", 3, "H100")]
    gpus = pool_gpus(facts, (), [gpu_reading(board.uuid, "lost" if board.uuid == "D" else "ok")
                                 for board in facts], {"A", "B", "D"})
    by_uuid = with_reasons(PoolSnapshot(gpus, ()), (), "", (), (), "")
    assert {uuid: gpu.reason for uuid, gpu in by_uuid.items()} == {
        "A": "row_remap", "M1": "row_remap", "C": "", "D": "lost"}


def test_of_a_board_that_is_leased_whole_no_instance_is_leased() -> None:
    """Somebody splits it by other means meanwhile."""
    facts = [GpuFacts(uuid="B", index=0, name="H100", mem_total_bytes=80 * GIB)] + [
        GpuFacts(uuid=f"M{at}", index=0, name="H100 MIG 3g.40gb", mem_total_bytes=40 * GIB,
                 parent_uuid="B") for at in range(2)]
    gpus = pool_gpus(facts, (), [gpu_reading(uuid="M0"), gpu_reading(uuid="M1")], ())
    board, other = lease("a", "B"), lease("b", "M0")
    assert refusal([], other, gpus, NOT_COUNTED) == ""
    assert "board was leased whole" in refusal([board], other, gpus, NOT_COUNTED)
    in_pool = with_reasons(PoolSnapshot(gpus, ()), (), "", (), {"B"}, "")
    assert {gpu.reason for gpu in in_pool.values()} == {"leased"}
    assert free_node("n1", "n1", in_pool.values(), [board], NOT_COUNTED).gpus == ()
