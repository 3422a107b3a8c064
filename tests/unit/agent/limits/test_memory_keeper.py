"""Memory limits of control groups, on the C fake of NVIDIA's library: set, read back, cleared, and
none left behind."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pynvml
import pytest

from agent.backends import NVML
from agent.backends.nvml import group_memory
from agent.backends.nvml.limits import DENIED
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.apply import LimitApplier
from agent.limits.control_groups import GroupTree
from agent.limits.memory_keeper import (
    AGAIN_AFTER_S,
    ROUND_S,
    MemoryLimitKeeper,
    MemoryMachine,
    clear_all,
)
from agent.limits.memory_limits import HOLDS_AGENT, NESTED, REMOVED, MemoryTarget
from agent.limits.stores import MemoryLimitStore
from gpudeck.contract.limits import GroupMemoryLimit
from tests.fakes.hub import wait_for
from tests.fakes.nvml import FakeNvml

SET = "nvmlDeviceSetMemoryLimits_v1"
MIB = 2**20
# The real applier asks in a child process, which a unit test has no time for.
IN_PROCESS = replace(NVML, capabilities=replace(NVML.capabilities, limits="in process"))


class CrashError(BaseException):
    """End of the agent in the middle of an act."""


class Node:
    def __init__(self, folder: Path, nvml: FakeNvml) -> None:
        self.nvml, self.holds = nvml, set[str]()
        self.gpu = nvml.gpus[0]
        self.uuid = str(self.gpu["uuid"])
        self.root, self.proc = folder / "cgroup", folder / "proc"
        (self.proc / "self").mkdir(parents=True)
        self.move_agent("/system.slice/gpudeck-agent.service")
        self.make("/user.slice/user-7.slice/run.scope")
        (self.root / "dmem.capacity").touch()
        self.store = ActionStore(folder / "acts.db", durable=False)
        self.targets: list[MemoryTarget] | None = []
        self.boot_id, self.now, self.changes = "boot-1", 0.0, 0
        self.start()

    def make(self, group: str) -> None:
        (self.root / group.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def move_agent(self, group: str) -> None:
        (self.proc / "self/cgroup").write_text(f"1:name=systemd:/\n0::{group}\n")

    def folder(self, group: str) -> str:
        return f"{self.root}{group}"

    def start(self) -> None:
        """Start the agent, again after it has ended."""
        self.machine = MemoryMachine(
            driver=LimitApplier(IN_PROCESS, "", lambda _: ""),
            store=MemoryLimitStore(ActionJournal(self.store), is_shared=False),
            groups=GroupTree(self.root, self.proc), boot_id=self.boot_id,
            holds=lambda: tuple(self.holds))
        self.keeper = MemoryLimitKeeper(self.machine, [lambda: self.targets], self._note_change)

    def _note_change(self) -> None:
        self.changes += 1

    def round(self) -> list[GroupMemoryLimit]:
        self.now += ROUND_S
        self.keeper.round(self.now)
        return [*self.limits]

    @property
    def limits(self) -> tuple[GroupMemoryLimit, ...]:
        return self.machine.store.all()

    def want(self, *targets: tuple[str, int]) -> list[MemoryTarget]:
        self.targets = [MemoryTarget(self.uuid, group, most, f"lease {at}")
                       for at, (group, most) in enumerate(targets)]
        return self.targets

    def at_driver(self, group: str) -> int | None:
        return group_memory.read(self.uuid, self.folder(group)).hard_bytes

    def set_outside(self, group: str, hard: int | None) -> None:
        """Set a limit as somebody else does."""
        pynvml.nvmlDeviceSetMemoryLimits_v1(
            pynvml.nvmlDeviceGetHandleByUUID(self.uuid), pynvml.c_nvmlSetMemoryLimits_v1_t(
                nameSpace=self.folder(group).encode(),
                hardLimit=pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX if hard is None else hard))

    def audited(self) -> list[str]:
        return [msgspec.json.decode(body)["kind"] for (body,) in self.store.rows(
            "select body from audit order by seq")]


RUN = "/user.slice/user-7.slice/run.scope"
USER = "/user.slice/user-7.slice"


def amount() -> int:
    return random.randint(64, 4_000) * MIB


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    nvml = FakeNvml(tmp_path, gpus=2)
    for gpu in nvml.gpus:
        gpu["memory_limits"] = 1
    nvml.save()
    nvml.use(monkeypatch)
    pynvml.nvmlInit()
    node = Node(tmp_path, nvml)
    yield node
    pynvml.nvmlShutdown()
    node.store.close()


def test_a_limit_is_set_in_whole_mebibytes_read_back_and_cleared_at_its_end(node: Node) -> None:
    most = amount()
    node.want((RUN, most + 12_345))
    [limit] = node.round()
    assert (limit.state, limit.set_bytes, limit.limit_bytes) == ("in_force", most, most)
    assert "the driver reports" in limit.words
    assert node.at_driver(RUN) == most
    calls = len(node.nvml.calls(SET))
    assert node.round() == [limit], "what is in force is not set again"
    assert len(node.nvml.calls(SET)) == calls
    node.want()
    assert node.round() == []
    assert node.at_driver(RUN) is None
    assert [call.arguments[1] for call in node.nvml.calls(SET)] == ["0", "0"], "no soft limit, ever"
    assert node.audited()[0] == "memory_limit_kept"
    assert node.audited()[-1] == "memory_limit_over"


def test_the_strictest_of_two_counts_and_the_other_once_it_has_ended(node: Node) -> None:
    few, many = sorted((amount(), 5_000 * MIB))
    node.want((RUN, many), (RUN, few))
    [limit] = node.round()
    assert (node.at_driver(RUN), limit.holder) == (few, "lease 1")
    node.want((RUN, many))
    [limit] = node.round()
    assert (node.at_driver(RUN), limit.holder, limit.state) == (many, "lease 0", "in_force")


@pytest.mark.parametrize("knows_use", [True, False])
def test_a_limit_below_present_use_is_refused_and_set_once_less_is_in_use(node: Node,
                                                                        knows_use: bool) -> None:
    most = amount()
    if knows_use:
        node.set_outside(RUN, None)
    else:  # without a limit such a driver has no count
        node.gpu["flat_groups"] = 1
    node.gpu[f"used_by_{node.folder(RUN)}"] = most + 1
    node.nvml.save()
    node.want((RUN, most))
    [limit] = node.round()
    assert (limit.state, limit.words, limit.set_bytes) == (
        "not_in_force", group_memory.IN_USE, None)
    assert node.at_driver(RUN) is None
    node.gpu[f"used_by_{node.folder(RUN)}"] = most
    node.nvml.save()
    calls = len(node.nvml.calls(SET))
    node.round()
    assert len(node.nvml.calls(SET)) == calls, "a refusal is not repeated each round"
    node.now += AGAIN_AFTER_S
    [limit] = node.round()
    assert (limit.state, node.at_driver(RUN)) == ("in_force", most)


def test_a_lower_limit_than_is_in_use_leaves_the_old_one(node: Node) -> None:
    most = amount()
    node.want((RUN, most))
    node.round()
    node.gpu[f"used_by_{node.folder(RUN)}"] = most - MIB
    node.nvml.save()
    node.want((RUN, most - 2 * MIB))
    [limit] = node.round()
    assert (limit.state, limit.words) == ("not_in_force", group_memory.IN_USE)
    assert node.at_driver(RUN) == most
    node.want()
    assert node.round() == []
    assert node.at_driver(RUN) is None


@pytest.mark.parametrize(("code", "words"), [
    (4, DENIED), (13, group_memory.NO_CALL), (3, group_memory.NO_GROUP_LIMIT),
    (6, group_memory.NO_CONTROLLER)])
def test_a_refusal_says_why_and_leaves_nothing(node: Node, code: int, words: str) -> None:
    node.gpu.error(SET, code)
    node.nvml.save()
    node.want((RUN, amount()))
    [limit] = node.round()
    assert (limit.state, limit.words, limit.set_bytes) == ("not_in_force", words, None)
    node.want()
    assert node.round() == []


def test_a_driver_without_these_calls_says_so(node: Node) -> None:
    node.nvml.lines = [f"error * nvmlDevice{verb}MemoryLimits_v1 13" for verb in ("Set", "Get")]
    node.nvml.save()
    node.want((RUN, amount()))
    [limit] = node.round()
    assert (limit.state, limit.words) == ("not_in_force", group_memory.NO_CALL)


def test_a_driver_that_accepts_and_does_nothing_is_not_believed(node: Node) -> None:
    node.gpu.ignore(SET)
    node.nvml.save()
    most = amount()
    node.want((RUN, most))
    [limit] = node.round()
    assert (limit.state, limit.set_bytes) == ("not_in_force", None)
    node.gpu.lines = []
    node.nvml.save()
    node.now += AGAIN_AFTER_S
    node.round()
    node.gpu.ignore(SET)
    node.nvml.save()
    node.want()
    [limit] = node.round()
    assert "still reports it" in limit.words
    assert node.at_driver(RUN) == most
    node.gpu.lines = []
    node.nvml.save()
    assert node.round() == []
    assert node.at_driver(RUN) is None


def test_a_limit_of_somebody_else_is_left_alone_and_named(node: Node) -> None:
    foreign = amount()
    node.set_outside(RUN, foreign)
    node.want((RUN, 2 * foreign))
    [limit] = node.round()
    assert (limit.state, limit.set_bytes) == ("not_in_force", None)
    assert "somebody else has set a limit of" in limit.words
    node.want()
    assert node.round() == []
    assert node.at_driver(RUN) == foreign


@pytest.mark.parametrize("removed", [True, False])
def test_a_limit_that_somebody_removed_or_changed_is_said_and_left_alone(node: Node,
                                                                       removed: bool) -> None:
    most = amount()
    node.want((RUN, most))
    node.round()
    node.set_outside(RUN, None if removed else most + 64 * MIB)
    for _ in range(2):
        [limit] = node.round()
        assert limit.state == "drifted"
        assert (limit.words == REMOVED) is removed
    node.start()
    assert [limit.state for limit in node.round()] == ["drifted"], "a restart takes nothing back"
    node.want()
    assert node.round() == []
    assert node.at_driver(RUN) == (None if removed else most + 64 * MIB)


def test_what_a_reloaded_driver_has_forgotten_is_set_again(node: Node) -> None:
    most = amount()
    node.want((RUN, most))
    node.round()
    node.nvml.reload_driver()
    node.keeper.step(node.now, is_ok=False)
    node.keeper.step(node.now, is_ok=True)
    wait_for(lambda: node.keeper.is_idle)
    [limit] = node.limits
    assert (limit.state, node.at_driver(RUN)) == ("in_force", most)


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_group_that_vanished_or_is_another_now_takes_its_limit_along(node: Node,
                                                                     is_noticed: bool) -> None:
    node.want((RUN, amount()))
    node.round()
    folder = Path(node.folder(RUN))
    folder.rename(folder.with_name("old"))
    if is_noticed:
        assert node.round() == [], "nothing is made for a group that is not there"
    folder.mkdir()
    [limit] = node.round()
    assert limit.state == "not_in_force", "the driver shows the limit of a group of this name"
    assert "somebody else" in limit.words


def test_the_group_of_the_agent_is_never_limited(node: Node) -> None:
    node.move_agent(f"{USER}/user@7.service/app.slice/agent.service")
    node.want((USER, amount()))
    [limit] = node.round()
    assert (limit.state, limit.words) == ("not_in_force", HOLDS_AGENT)
    assert node.nvml.calls(SET) == []
    node.move_agent("/system.slice/agent.service")
    assert [limit.state for limit in node.round()] == ["in_force"]
    node.move_agent(f"{USER}/x.scope")
    assert [limit.words for limit in node.round()] == [HOLDS_AGENT]
    assert node.at_driver(USER) is None, "and one that it has come into is cleared"


def test_limits_nest_only_where_the_kernel_counts(node: Node) -> None:
    node.want((USER, 4_000 * MIB), (RUN, 1_000 * MIB))
    assert [limit.state for limit in node.round()] == ["in_force"] * 2
    (node.root / "dmem.capacity").unlink()
    node.gpu["flat_groups"] = 1
    node.nvml.save()
    by_group = {limit.group: limit for limit in node.round()}
    assert (by_group[RUN].state, by_group[RUN].words) == ("not_in_force", NESTED)
    assert by_group[USER].state == "in_force"
    assert node.at_driver(RUN) == 4_000 * MIB, "that of the user counts for it now"


def test_while_actions_are_stopped_nothing_is_set_or_cleared(node: Node) -> None:
    node.holds.add("root")
    most = amount()
    node.want((RUN, most))
    [limit] = node.round()
    assert (limit.state, limit.words) == ("not_in_force", "actions are stopped here")
    assert node.nvml.calls(SET) == []
    node.holds.clear()
    node.round()
    node.holds.add("root")
    node.want()
    assert [limit.state for limit in node.round()] == ["in_force"]
    assert node.at_driver(RUN) == most
    node.holds.clear()
    assert node.round() == []


def test_nothing_is_cleared_until_all_is_known_that_may_need_it(node: Node) -> None:
    most = amount()
    node.want((RUN, most))
    node.round()
    node.start()
    node.targets = None
    node.round()
    assert node.at_driver(RUN) == most
    node.want()
    assert node.round() == []


@pytest.mark.parametrize("is_needed", [True, False])
@pytest.mark.parametrize("at", range(6))
def test_killed_at_each_step_it_leaves_nothing_behind(node: Node, monkeypatch: pytest.MonkeyPatch,
                                                      at: int, is_needed: bool) -> None:
    """Steps: read, record, set, read back, record; and after it was wanted no more, clear."""
    most = amount()
    node.want((RUN, most))
    steps = 0

    def crash_in(owner: object, name: str) -> None:
        method = getattr(owner, name)

        def call(*args: object, **options: object) -> object:
            nonlocal steps
            steps += 1
            if steps - 1 == at:
                raise CrashError
            return method(*args, **options)

        monkeypatch.setattr(owner, name, call)

    for name in ("memory", "set_memory", "clear_memory"):
        crash_in(node.machine.driver, name)
    for name in ("keep", "note", "end"):
        crash_in(node.machine.store, name)

    def work() -> None:
        for _ in range(3):
            node.round()
            node.want()

    with pytest.raises(CrashError):
        work()
    node.start()
    node.want(*[(RUN, most)] * is_needed)
    limits = node.round()
    assert node.at_driver(RUN) == (most if is_needed else None)
    assert [limit.state for limit in limits] == ["in_force"] * is_needed


def test_a_reboot_forgets_what_no_driver_has_any_more(node: Node) -> None:
    node.want((RUN, amount()))
    node.round()
    node.nvml.reload_driver()
    node.boot_id = "boot-2"
    node.start()
    node.want()
    assert node.round() == []


def test_all_is_cleared_when_gpudeck_is_removed_and_what_stays_is_named(node: Node) -> None:
    node.want((RUN, amount()), (USER, 4_000 * MIB))
    node.round()
    foreign = 5_000 * MIB
    node.set_outside(USER, foreign)
    node.gpu.error(SET, 4)
    node.nvml.save()
    [trouble] = clear_all(node.machine)
    assert RUN in trouble
    assert DENIED in trouble
    assert [limit.group for limit in node.limits] == [RUN]
    node.gpu.lines = []
    node.nvml.save()
    assert clear_all(node.machine) == []
    assert (node.at_driver(RUN), node.at_driver(USER)) == (None, foreign)


def test_a_change_is_reported_once(node: Node) -> None:
    node.want((RUN, amount()))
    node.round()
    node.round()
    assert node.changes == 1
