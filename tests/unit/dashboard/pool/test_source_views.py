"""The pool in a resource manager's shapes: what is counted, and what is not known."""

import ast
import random
from dataclasses import replace

import msgspec
import pytest

from dashboard.pool.plan import PendingOffer, PoolNode
from dashboard.pool.setup_code import pytorch_code, tensorflow_code
from dashboard.pool.source_views import (
    LiveNumbers,
    available_nodes,
    leased,
    live_gpus,
    monitored_nodes,
    suits,
    utilization,
)
from gpudeck.contract.pool_link import OfferedGpu, PoolReport, ReportedLease
from gpudeck.pool.core.claims import Claim, Grant
from gpudeck.pool.core.fragmentation import accepts
from gpudeck.pool.environment import environment

GIB = 2**30
CLAIM = Claim(id="c", owner="ann", gpus=1, submitted_at=0.0)


def node(name: str, *gpus: OfferedGpu, uuids: tuple[str, ...] = ()) -> PoolNode:
    leases = (ReportedLease(CLAIM, uuids, "active", 0.0, 1e9, 0.0),) if uuids else ()
    return PoolNode(f"id-{name}", name, PoolReport(gpus, (), leases))


def gpu(uuid: str, model: str = "Tesla V100-SXM2-32GB", mem_bytes: float | None = 32 * GIB,
        trouble: str = "") -> OfferedGpu:
    return OfferedGpu(uuid, model, 0, mem_bytes=mem_bytes, trouble=trouble)


def test_what_is_free_what_is_used_and_what_is_not_known() -> None:
    one, two, size = (random.uniform(1, 99) for _ in range(3))
    util = {"a": one, "b": two}
    live = LiveNumbers(lambda _, uuid: util.get(uuid),
                       lambda _, uuid: size * GIB / 10 if uuid == "a" else None)
    nodes = [
        node("n1", gpu("a"), gpu("b"), gpu("c"), gpu("d", trouble="lost"), uuids=("a",)),
        node("n2", gpu("x", "NVIDIA T4", None)),
        node("n3", gpu("y"), gpu("z", "NVIDIA A100-SXM4-80GB", 80 * GIB)),
    ]
    offered = [PendingOffer(CLAIM, (Grant("id-n3", ("y",)),), 0.0)]
    gpus = live_gpus(nodes, offered, live)
    assert [(node.node_name, node.gpu_type, node.available_gpus, node.memory_per_gpu,
             node.utilization) for node in available_nodes(gpus)] == [
        ("n1", "Tesla V100-SXM2-32GB", 2, 32.0, round((one + two) / 200, 3)),
        ("n2", "NVIDIA T4", 1, None, None),
        ("n3", "NVIDIA A100-SXM4-80GB", 1, 80.0, None)]
    whole = utilization(gpus)
    assert whole.gpu_utilization == round((one + two) / 200, 3)
    assert whole.gpu_memory_usage == round(size / 320, 3)
    nothing = utilization(live_gpus(nodes[1:], offered, live))
    assert (nothing.gpu_utilization, nothing.gpu_memory_usage) == (None, None)
    [first, *_] = monitored_nodes(gpus)
    assert (first.total_gpus, first.leased_gpus, first.memory_usage) == (4, 1, round(size / 320, 3))


@pytest.mark.parametrize(("models", "least_gb", "hosts"), [
    ((), 0.0, ["h", "t", "v"]), (("V100",), 0.0, ["v"]), (("v100", "T4"), 0.0, ["t", "v"]),
    ((), 16.0, ["h", "v"]), ((), 32.0, ["h", "v"]), ((), 80.0, ["h"]), ((), 90.0, []),
    (("V100",), 80.0, []),
])
def test_types_are_words_and_memory_is_as_boards_are_sold(
    models: tuple[str, ...], least_gb: float, hosts: list[str]
) -> None:
    unknown = LiveNumbers(lambda *_: None, lambda *_: None)
    gpus = live_gpus([
        node("h", gpu("1", "NVIDIA H100 80GB HBM3", 81_559 * 2**20)),  # 79.6 GiB
        node("t", gpu("2", "Tesla T4", None)), node("v", gpu("3"))], (), unknown)
    assert [node.node_name for node in available_nodes(gpus, models, least_gb)] == hosts


@pytest.mark.parametrize(("has", "needs", "is_enough"), [
    ((16, 64), (16, 64), True), ((16, 64), (None, None), True), ((16, 64), (17, 1), False),
    ((16, 64), (1, 65), False), ((None, None), (None, 1), False), ((None, 64), (1, None), False),
])
def test_a_lease_suits_that_has_the_cpus_and_the_memory(
    has: tuple[int | None, int | None], needs: tuple[int | None, int | None], is_enough: bool
) -> None:
    def claim(cpus: int | None, gib: int | None) -> Claim:
        return replace(CLAIM, cpu_milli=None if cpus is None else cpus * 1_000,
                       ram_bytes=None if gib is None else gib * GIB)

    at = node("n", gpu("a"), uuids=("a",))
    lease = msgspec.structs.replace(at.report.leases[0], claim=claim(*has))
    assert suits(at, lease, claim(*needs)) == is_enough


def test_whatever_is_asked_for_is_not_kept_for_ever() -> None:
    for number in range(10_000):
        accepts((f"model {number}",), "NVIDIA T4")
    assert accepts.cache_info().currsize < 10_000


@pytest.mark.parametrize("fraction", [0.8, 0.95, None])
@pytest.mark.parametrize("is_distributed", [False, True])
@pytest.mark.parametrize("code_of", [tensorflow_code, pytorch_code])
def test_lines_of_code_are_of_this_lease_whatever_a_node_says(
    code_of: type[object], is_distributed: bool, fraction: float | None
) -> None:
    evil = 'GPU-"); import os; os.abort()  #\n\'x'
    at = node("n", gpu(evil), gpu("b"), uuids=(evil, "b"))
    lease = leased(at, at.report.leases[0])
    variables = dict(environment(lease, "auto", ()).set)
    lines = code_of(lease, variables, fraction, is_distributed, True)  # type: ignore[call-arg]
    tree = ast.parse("\n".join(lines))  # type: ignore[arg-type]
    [update] = [stmt.value for stmt in tree.body
                if isinstance(stmt, ast.Expr) and "environ.update" in ast.unparse(stmt)]
    assert isinstance(update, ast.Call)
    assert ast.literal_eval(update.args[0]) == variables
    assert variables["CUDA_VISIBLE_DEVICES"] == f"{evil},b"
    framework = next(at for at, line in enumerate(tree.body)
                     if ast.unparse(line).startswith(("import t",)))
    assert tree.body.index(next(stmt for stmt in tree.body if isinstance(stmt, ast.Expr)
                                and stmt.value is update)) < framework
    text = ast.unparse(tree)
    if fraction is None:
        assert "fraction" not in text
        assert "memory_limit" not in text
    elif code_of is tensorflow_code:
        assert str([int(32 * 1024 * fraction)] * 2) in text
    else:
        assert f"fraction({fraction}, device)" in text
    assert ("nccl" in text or "MirroredStrategy" in text) == is_distributed


def test_where_a_board_is_of_unknown_size_tensorflow_grows() -> None:
    at = node("n", gpu("a", mem_bytes=None), uuids=("a",))
    lines = tensorflow_code(leased(at, at.report.leases[0]), {}, 0.8, False, False)
    assert "set_memory_growth" in "\n".join(lines)
