"""GPU memory of shares: which groups the driver is to limit, and what owners hear of it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.journal.store import ActionJournal, ActionStore, JournalError
from agent.limits.memory_limits import MemoryTarget
from agent.pool.clock import PoolClock
from agent.pool.cores import NodeCores
from agent.pool.leases import NodeLeases
from agent.pool.lock import LeasedProcess, NodeLease, PoolGpu
from agent.pool.memory import NO_GROUP, LeaseMemory, scope_of
from agent.pool.signs import ProcessSigns
from agent.pool.store import LeaseStore
from gpudeck.contract.limits import GroupMemoryLimit
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.host_resources import GPU_MEMORY, lease_words

GIB = 2**30
GPUS = {name: PoolGpu(name, "H100", index, name == "mig", 0, None, None, "")
        for index, name in enumerate(("a", "mig"))}
OWN = "/user.slice/user-7.slice/user@7.service/app.slice"
SCOPE = f"{OWN}/gpudeck-l.scope"


def lease(share: int = 300, mem_bytes: int | None = 12 * GIB, gpu: str = "a", **changes: object
          ) -> NodeLease:
    claim = Claim(id="l", owner="ann", gpus=1, submitted_at=0.0, share_milli=share,
                  mem_bytes=mem_bytes)
    return replace(NodeLease(
        id="l", claim=claim, uuids=(gpu,), uid=7, is_run=True, state="active", since=0.0,
        until=1e9, used_at=0.0, process=LeasedProcess(41, 5, None)), **changes)  # type: ignore[arg-type]


class Node:
    def __init__(self, folder: Path) -> None:
        self.store = ActionStore(folder / "acts.db", durable=False)
        self.limits: list[GroupMemoryLimit] = []
        self.groups = {41: SCOPE}
        self.notices: list[str] = []
        self.restart()

    def restart(self) -> None:
        self.leases = NodeLeases(LeaseStore(ActionJournal(self.store), "boot"),
                                 PoolClock(lambda: 0.0, lambda: 0.0), ProcessSigns(), NodeCores())
        self.leases.read()
        self.memory = LeaseMemory(self.leases, lambda: self.limits, self.groups.get,
                                  lambda lease, text: self.notices.append(text))

    def put(self, lease: NodeLease) -> None:
        self.leases.put(lease, {"pool": "granted"})

    def targets(self) -> list[MemoryTarget]:
        return self.memory.targets(GPUS)

    def report(self, state: str, words: str = "", group: str = SCOPE) -> None:
        self.limits = [GroupMemoryLimit(
            "a", group, "1", 12 * GIB, "lease l", "boot", 0.0, 12 * GIB,
            state, words)]  # type: ignore[arg-type]

    @property
    def words(self) -> str:
        one = self.leases.all["l"]
        return lease_words(one.claim, "", one.limits)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.store.close()


def test_the_scope_of_a_share_is_to_be_limited_to_what_it_asked_for(node: Node) -> None:
    node.put(lease())
    assert node.targets() == [MemoryTarget("a", SCOPE, 12 * GIB, "lease l")]


@pytest.mark.parametrize("case", [
    lease(share=1_000), lease(mem_bytes=None), lease(gpu="mig"), lease(gpu="unknown"),
    lease(state="offered"), lease(process=None)])
def test_what_needs_no_limit_or_can_have_none_gets_none(node: Node, case: NodeLease) -> None:
    """A whole board is for its lease alone; --mem is then the least that it shall have."""
    node.put(case)
    assert node.targets() == []


@pytest.mark.parametrize("group", [
    None, "/", OWN, f"/system.slice{SCOPE}", "/user.slice/user-8.slice/gpudeck-l.scope",
    f"{OWN}/gpudeck-l.scope.d", f"{OWN}/gpudeck-other.scope", "/gpudeck-l.scope",
    "/user.slice/user-70.slice/gpudeck-l.scope"])
def test_only_a_scope_of_this_lease_below_its_users_own_slice_counts(group: str | None) -> None:
    assert scope_of(lease(), {(41, 5)}, lambda pid: group) is None


def test_what_goes_on_in_the_scope_after_the_command_keeps_it(node: Node) -> None:
    groups = {41: None, 42: f"{SCOPE}/worker"}
    assert scope_of(lease(), {(41, 5), (42, 6)}, groups.get) == SCOPE


def test_the_owner_hears_once_that_the_driver_holds_it_and_the_page_says_so(node: Node) -> None:
    node.put(lease())
    node.targets()
    assert node.notices == []
    assert node.words == "12 GiB of GPU memory (at most, by MPS or HAMi-core in its processes)"
    node.report("in_force")
    for _ in range(2):
        node.targets()
    assert node.notices == ["the driver limits the GPU memory of this lease to 12.0 GiB"]
    assert node.words == "12 GiB of GPU memory (at most, by the driver)"
    node.report("drifted", "somebody has removed it since")
    for _ in range(2):
        node.targets()
    assert len(node.notices) == 2
    assert "somebody has removed it since" in node.notices[-1]
    assert "by MPS" in node.words


def test_who_leaves_the_scope_is_not_held_by_the_driver_any_more(node: Node) -> None:
    node.put(lease(mps_pipes="/tmp/mps"))
    node.report("in_force")
    node.targets()
    node.groups[41] = f"{OWN}/elsewhere.scope"
    assert node.targets() == []
    assert NO_GROUP in node.notices[-1]
    assert "MPS limits each of its processes" in node.notices[-1]
    assert GPU_MEMORY not in node.leases.all["l"].limits


def test_after_a_restart_the_driver_holds_nothing_until_it_was_read(node: Node) -> None:
    node.put(lease())
    node.report("in_force")
    node.targets()
    node.put(replace(node.leases.all["l"], told_at=1.0))
    node.restart()
    assert "by MPS" in node.words


def test_limits_that_cannot_be_read_are_not_claimed(node: Node) -> None:
    node.put(lease())

    def refuse() -> list[GroupMemoryLimit]:
        raise JournalError("the disk is full")

    memory = LeaseMemory(node.leases, refuse, node.groups.get, lambda lease, text: None)
    assert [target.group for target in memory.targets(GPUS)] == [SCOPE]
    assert "by MPS" in node.words
