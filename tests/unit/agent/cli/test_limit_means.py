"""Means of limiting memory on a machine: the strictest that gpudeck uses, and nothing claimed
that was not read."""

import pytest
from msgspec import to_builtins

from agent.cli.limit_means import NAMES, ORDER, best, means_lines
from agent.cli.limits import _limit_lines
from agent.quotas.mechanisms import mechanisms, mps
from gpudeck.contract.desired_state import QuotaMechanism
from gpudeck.contract.limits import GroupMemoryLimit, MpsDaemon
from gpudeck.contract.wire import GpuFacts


def means_with(*there: str) -> list[QuotaMechanism]:
    return [QuotaMechanism(name, "there" if name in (*there, "ladder") else "not_there", "proof")
            for name in ORDER]


@pytest.mark.parametrize(("there", "is_best"), [
    ((), "ladder"), (("hami",), "hami"), (("hami", "mps"), "mps"), (("mps", "mig"), "mig"),
    (("memory_limit", "mig", "hami"), "memory_limit")])
def test_the_strictest_that_is_used_is_the_best(there: tuple[str, ...], is_best: str) -> None:
    assert best(means_with(*there)) == is_best


def test_each_is_named_with_what_was_read() -> None:
    facts = (GpuFacts("GPU-1", 0, "H100"),)
    daemon = MpsDaemon("/run/mps", 0, "root", True, default_pct=50.0)
    by_name = {row.name: row for row in (*mechanisms("580.95.05", facts, None, ()), mps([daemon]))}
    lines = [*means_lines([by_name[name] for name in ORDER])]
    assert lines[0] == "GPU memory is limited here by MPS at best:"
    assert "not there: driver 580.95.05 is older than 615" in lines[1]
    assert "50 % of the threads" in lines[3]
    assert "limit no memory" in lines[-1]
    assert {*NAMES} == {*ORDER} == {*by_name}


def test_memory_limits_are_listed_and_an_older_hub_has_none() -> None:
    item = {"host": "n1", "leases": [], "modes": [], "layouts": []}
    assert [*_limit_lines(item)] == []
    limit = GroupMemoryLimit("GPU-1", "/a.scope", "1", 2**31, "lease l", "b", 0.0, 2**31,
                             "in_force", "the driver reports 2.0 GiB")
    assert [*_limit_lines(item | {"memory": [to_builtins(limit)]})] == [
        "n1  GPU-1  memory at most 2.0 GiB for lease l  in force: the driver reports 2.0 GiB  "
        "(/a.scope)"]
