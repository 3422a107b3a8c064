"""`gpudeck agent` suspends and restores by order of a hub, on the C fake of the driver, and over
its own death in the middle."""

import random
from pathlib import Path

import pytest

from gpudeck.contract.wire import Frame, Tasks, Use
from tests.fakes.children import Child, Children, a_ceiling, state_of, wait_until_old
from tests.fakes.cuda_checkpoint import FakeCudaCheckpoint
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeNvml
from tests.integration.test_agent_process import an_agent, flags

MIB = 2**20


class Node:
    """A machine with one GPU, two tasks on it, and `cuda-checkpoint`."""

    def __init__(self, folder: Path, children: Children) -> None:
        self.task, self.neighbour = children.start(listed=False), children.start(listed=False)
        self.nvml = FakeNvml(folder / "nvml.txt", gpus=1)
        self.nvml.driver = "580.95.05"
        self.mem_bytes = random.randint(100, 900) * MIB
        board = self.nvml.gpus[0]
        board["mem_adds"] = 1
        board.process(self.task.pid, self.mem_bytes).process(self.neighbour.pid, 50 * MIB)
        self.nvml.save()
        self.program = FakeCudaCheckpoint(folder, self.nvml.path)
        self.ceiling = a_ceiling(folder, own_pid_namespace=True,
                                 actions=["end", "suspend", "restore"])
        self.env = self.nvml.env() | {"PATH": self.program.path}

    def flags(self, hub: FakeHub, folder: Path) -> list[str]:
        return [*flags(hub, folder), "--ceiling", str(self.ceiling)]


AGENT = ("-m", "tests.fakes.roomy_agent")


@pytest.fixture
def node(tmp_path: Path, children: Children) -> Node:
    return Node(tmp_path, children)


def last_tasks(hub: FakeHub) -> Tasks | None:
    """Return the newest list of tasks."""
    if not hub.hellos:
        return None
    frames = [message for message in [*hub.messages[hub.stream].values()]
              if isinstance(message, Frame) and message.tasks is not None]
    newest = max(frames, key=lambda frame: frame.seq, default=None)
    return None if newest is None else newest.tasks


def last_use(hub: FakeHub, child: Child) -> Use | None:
    tasks = last_tasks(hub)
    return None if tasks is None else next(
        (use for use in tasks.uses if use.task_id == child.task_id), None)


def is_suspended(hub: FakeHub, child: Child) -> bool | None:
    tasks = last_tasks(hub)
    if tasks is None or last_use(hub, child) is None:
        return None
    return child.task_id in (tasks.suspended or ())


def test_by_order_of_a_hub_and_over_a_restart(node: Node, hub: FakeHub, tmp_path: Path) -> None:
    wait_until_old(node.neighbour)
    with an_agent(*node.flags(hub, tmp_path), env=node.env, program=AGENT):
        wait_for(lambda: is_suspended(hub, node.task) is False)
        preview = hub.look(node.task.task_id, "suspend")
        assert preview.refusals == ()
        reply = hub.reply(hub.send(hub.order(preview)))
        assert (reply.state, reply.verified and reply.verified.memory_returned) == (
            "done", True), (reply, node.program.calls, node.nvml.path.read_text())
        wait_for(lambda: is_suspended(hub, node.task))
        use = last_use(hub, node.task)
        assert use is not None
        assert use.mem_used_bytes == 0
    ends = [message for message in hub.messages[hub.stream].values()
             if not isinstance(message, Frame) and "ended" in message.kind]
    assert ends == [], "it has not ended"
    with an_agent(*node.flags(hub, tmp_path), env=node.env, program=AGENT):
        wait_for(lambda: len(hub.hellos) > 1 and is_suspended(hub, node.task))
        reply = hub.reply(hub.send(hub.order(hub.look(node.task.task_id, "restore"))))
        assert reply.state == "done", reply.step
        wait_for(lambda: is_suspended(hub, node.task) is False)
        use = last_use(hub, node.task)
        assert use is not None
        assert use.mem_used_bytes == node.mem_bytes
    assert state_of(node.task.pid) == state_of(node.neighbour.pid) == "S"


def test_an_agent_that_dies_in_the_middle(node: Node, hub: FakeHub, tmp_path: Path) -> None:
    wait_until_old(node.neighbour)
    node.program.do("checkpoint", "hang")
    with an_agent(*node.flags(hub, tmp_path), env=node.env, program=AGENT) as agent:
        wait_for(lambda: is_suspended(hub, node.task) is False)
        command_id = hub.send(hub.order(hub.look(node.task.task_id, "suspend")))
        wait_for(lambda: any("--action checkpoint" in call for call in node.program.calls))
        agent.kill()
        agent.wait(10)
    node.program.work()
    assert node.program.state(node.task.pid) == "locked"
    beats = len(hub.beats)
    with an_agent(*node.flags(hub, tmp_path), env=node.env, program=AGENT):
        way = f"`gpudeck restore {node.task.task_id}`"
        wait_for(lambda: any(f"process {node.task.pid} is locked; {way}" in str(beat)
                             for _, beat in hub.beats[beats:]))
        assert hub.reply(command_id).state == "unknown"
        assert node.program.state(node.task.pid) == "locked", "nobody has asked for it"
        reply = hub.reply(hub.send(hub.order(hub.look(node.task.task_id, "restore"))))
        assert reply.state == "done", reply.step
        later = len(hub.beats)
        wait_for(lambda: any(way not in str(beat) for _, beat in hub.beats[later:]))
    assert state_of(node.task.pid) == state_of(node.neighbour.pid) == "S"
    assert hub.broken == []
