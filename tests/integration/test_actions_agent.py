"""Acts through a real socket on real processes: the right one ends, and its neighbour trains on."""

import os
import pty
import random
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.actions import guard
from agent.actions.hold_files import hub_holds
from agent.actions.kinds.execution import ActionTimeouts
from agent.backends import SIMULATED
from agent.journal.store import ActionJournal, ActionStore
from agent.link.identity import NodeIdentity, node_key
from agent.link.outbox import Outbox
from agent.link.outbox_file import OutboxFile
from agent.node import run_node
from agent.node_config import NodeConfig
from agent.readings import ReadingSource
from agent.runtime.wake import ThreadWakeSignal
from agent.tasks.boot_id import boot_id
from gpudeck.audit.chain import verify
from gpudeck.contract.actions import Preview, Reply
from gpudeck.network.keys import fingerprint
from tests.fakes.children import (
    EXECS,
    FORKS_ON_TERM,
    ORPHAN,
    OTHERS,
    SAVES,
    STUBBORN,
    TREE,
    Child,
    Children,
    a_ceiling,
    is_alive,
    state_of,
)
from tests.fakes.hub import FakeHub, wait_for


@dataclass
class Bed:
    """A hub, a node, and on one GPU the task in question beside a bystander."""

    hub: FakeHub
    children: Children
    data: Path
    neighbour: Child = field(init=False)

    def __post_init__(self) -> None:
        self.neighbour = self.children.start()

    def preview(self, child: Child, action: Any = "end", **params: Any) -> Preview:
        preview = self.hub.look(child.task_id, action, **({"grace_s": 20.0} | params))
        assert preview.refusals == ()
        assert child.pid in [victim.process.pid for victim in preview.victims]
        return preview

    def act(self, child: Child, action: Any = "end", **params: Any) -> Reply:
        return self.hub.reply(self.hub.send(self.hub.order(self.preview(child, action, **params))))

    def check(self) -> None:
        """Check that the bystander lives and that the Audit verifies: every test ends with this."""
        assert self.neighbour.is_alive()
        assert state_of(self.neighbour.pid) in ("S", "R")
        assert self.hub.broken == []
        journal = ActionJournal(ActionStore(self.data / "acts.db"))
        assert verify(journal.audit.links()) is None

    def records(self) -> list[str]:
        journal = ActionJournal(ActionStore(self.data / "acts.db"))
        return [link.body for link in journal.audit.links()]


@contextmanager
def a_running_node(hub: FakeHub, children: Children, data: Path) -> Iterator[None]:
    identity = NodeIdentity(node_key(data), fingerprint(hub.key.public),
                            None if hub.hellos else hub.token())
    journal = OutboxFile(data / "journal.db")
    config = NodeConfig((hub.url,), lambda _: None, identity, "host", SIMULATED, boot_id(), data,
                        ActionStore(data / "acts.db"), ceiling=data / "ceiling.toml",
                        timeouts=ActionTimeouts(2.0, 1.0), own_hold_files=(data / "hold",),
                        hub_file=data / "hub-hold")
    stop = threading.Event()
    hello_count = len(hub.hellos)
    bell = ThreadWakeSignal()
    children.wake = bell.ring
    source: ReadingSource = children  # mypy holds it to that, not what a thread is given
    thread = threading.Thread(target=run_node, args=(
        config, source, Outbox(journal), stop, bell))
    thread.start()
    try:
        wait_for(lambda: len(hub.hellos) > hello_count and hub.beats)
        yield
    finally:
        stop.set()
        thread.join(timeout=5)
        journal.close()
        config.acts.close()


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    hub, children = FakeHub(), Children(detail="")
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    a_ceiling(data)
    # A test need not wait until its children are old enough; that has a separate test.
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    try:
        with a_running_node(hub, children, data):
            yield Bed(hub, children, data)
    finally:
        children.close()
        hub.close()


def test_end_hits_the_one_and_proves_it(bed: Bed) -> None:
    child = bed.children.start()
    preview = bed.preview(child)
    assert [bystander.task_id for bystander in preview.bystanders] == [bed.neighbour.task_id]
    assert preview.owner == preview.victims[0].user
    command = bed.hub.order(preview)
    reply = bed.hub.reply(bed.hub.send(command))
    assert reply.state == "done"
    assert child.process.wait(1) == -signal.SIGTERM
    verified = reply.verified
    assert verified is not None
    assert (verified.exited, verified.memory_returned, verified.bystanders_alive) == (
        True, True, True)
    assert verified.mem_before_bytes == child.mem_used_bytes
    assert verified.mem_after_bytes == 0
    states = [step.state for step in sorted(set(bed.hub.replies[command.command_id]),
                                            key=lambda step: step.number)]
    assert states[:2] == ["accepted", "acting"]
    assert '"reason":"because of a test"' in "".join(bed.records())
    bed.check()


def test_one_that_ignores_sigterm_is_killed_after_its_grace(bed: Bed) -> None:
    child = bed.children.start(STUBBORN)
    began = time.monotonic()
    reply = bed.act(child, grace_s=1.0)
    assert reply.state == "done"
    assert "SIGKILL" in reply.step
    assert time.monotonic() - began > 1.0
    assert child.process.wait(1) == -signal.SIGKILL
    bed.check()


def test_the_whole_tree_ends_sessions_of_their_own_included(bed: Bed) -> None:
    child = bed.children.start(TREE)
    preview = bed.preview(child)
    assert {victim.process.pid for victim in preview.victims} == {child.pid, *child.workers}
    reply = bed.act(child)
    assert reply.state == "done"
    assert not any(is_alive(pid) for pid in (child.pid, *child.workers))
    bed.check()


def test_a_worker_that_lost_its_parent_is_found_by_who_it_is(bed: Bed) -> None:
    child = bed.children.start(ORPHAN)
    [worker] = child.workers
    preview = bed.preview(child)
    assert child.process.stdin is not None
    assert child.process.stdout is not None
    child.process.stdin.write("x")
    child.process.stdin.flush()
    assert child.process.stdout.readline().strip() == "left"
    reply = bed.hub.reply(bed.hub.send(bed.hub.order(preview)))
    assert reply.state == "done"
    assert not is_alive(worker)
    bed.check()


def test_what_is_born_on_sigterm_goes_too(bed: Bed) -> None:
    child = bed.children.start(FORKS_ON_TERM)
    reply = bed.act(child, grace_s=1.0)
    assert reply.state == "done"
    assert wait_for(lambda: not any(
        child.pid == row for row in children_of(child.pid)) and not child.is_alive())
    assert children_of(child.pid) == []
    bed.check()


def children_of(pid: int) -> list[int]:
    from agent.tasks.jobs import below
    from agent.tasks.processes import table

    return [row.pid for row in below([pid], table()) if row.pid != pid and row.state not in "ZX"]


def test_a_job_of_four_processes_is_one_job(bed: Bed) -> None:
    child = bed.children.start(TREE)
    preview = bed.hub.look(child.task_id)
    assert preview.job_id == child.task_id
    assert len(preview.victims) == 4
    assert any("4 processes" in warning for warning in preview.warnings)


def test_a_stopped_task_acts_on_its_sigterm(bed: Bed) -> None:
    child = bed.children.start()
    os.kill(child.pid, signal.SIGSTOP)
    wait_for(lambda: state_of(child.pid) == "T")
    reply = bed.act(child)
    assert reply.state == "done"
    assert child.process.wait(1) == -signal.SIGTERM
    bed.check()


def test_pause_and_resume_the_whole_tree(bed: Bed) -> None:
    child = bed.children.start(TREE)
    reply = bed.act(child, "pause")
    assert reply.state == "done"
    assert {state_of(pid) for pid in (child.pid, *child.workers)} == {"T"}
    reply = bed.act(child, "resume")
    assert reply.state == "done"
    assert "T" not in {state_of(pid) for pid in (child.pid, *child.workers)}
    assert child.is_alive()
    bed.check()


def test_checkpoint_signal_first_and_only_to_who_handles_it(bed: Bed, tmp_path: Path) -> None:
    saved = tmp_path / "checkpoint"
    child = bed.children.start(SAVES, str(saved))
    reply = bed.act(child, checkpoint_signal="USR1", checkpoint_wait_s=20.0)
    assert reply.state == "done"
    assert saved.read_text() == "saved"
    assert child.process.wait(1) == 0
    other = bed.children.start()
    preview = bed.preview(other, checkpoint_signal="USR1", checkpoint_wait_s=20.0)
    assert any("handles SIGUSR1" in warning for warning in preview.warnings)
    reply = bed.hub.reply(bed.hub.send(bed.hub.order(preview)))
    assert reply.state == "done"
    assert other.process.wait(1) == -signal.SIGTERM  # not by USR1, whose default is to end it
    bed.check()


def test_the_owner_reads_it_at_their_terminal(bed: Bed) -> None:
    our_end, their_end = pty.openpty()
    uid = random.randint(20_000, 60_000) if os.geteuid() == 0 else os.geteuid()
    os.fchown(their_end, uid, -1)
    word = f"word {random.random()}"
    try:
        child = bed.children.start(OTHERS, str(uid))
        reply = bed.act(child, "notify", text=f"{word}\x1b[2J")
        assert reply.state == "done"
        assert "1 terminal" in reply.step
        read = os.read(our_end, 4_096).decode()
        assert f"{word} [2J" in read
        assert "test (person)" in read
        assert "because of a test" in read
        os.fchown(their_end, 0, -1)
        if os.geteuid() == 0:
            assert bed.act(child, "notify", text=word).state == "not_effective"
    finally:
        os.close(our_end)
        os.close(their_end)
    assert child.is_alive()
    bed.check()


def test_memory_that_stays_is_not_done(bed: Bed) -> None:
    child = bed.children.start()
    child.leaks = True
    reply = bed.act(child)
    assert reply.state == "not_effective"
    assert reply.verified is not None
    assert (reply.verified.exited, reply.verified.memory_returned) == (True, False)
    assert reply.verified.mem_after_bytes == child.mem_used_bytes
    bed.check()


def test_a_bystander_that_vanishes_is_told(bed: Bed) -> None:
    child, other = bed.children.start(STUBBORN), bed.children.start()
    command_id = bed.hub.send(bed.hub.order(bed.preview(child, grace_s=4.0)))
    bed.hub.acting(command_id, "SIGTERM sent")
    os.kill(other.pid, signal.SIGKILL)
    reply = bed.hub.reply(command_id)
    assert reply.state == "not_effective"
    assert reply.verified is not None
    assert reply.verified.exited
    assert (reply.verified.bystanders_alive, reply.verified.vanished) == (False, (other.task_id,))
    bed.check()


def test_a_hold_between_sigterm_and_sigkill_stops_it(bed: Bed) -> None:
    child = bed.children.start(STUBBORN)
    command_id = bed.hub.send(bed.hub.order(bed.preview(child, grace_s=4.0)))
    bed.hub.acting(command_id, "SIGTERM sent")
    if random.random() < 0.5:
        (bed.data / "hold").write_text("somebody is at the machine\n")
    else:
        bed.hub.send(bed.hub.order(None))
    reply = bed.hub.reply(command_id)
    assert (reply.state, reply.refusal and reply.refusal.code) == ("not_effective", "hold")
    assert reply.verified is not None
    assert reply.verified.survivors == (child.pid,)
    assert child.is_alive()
    bed.check()


def test_exec_between_preview_and_command_is_another_identity(bed: Bed) -> None:
    child = bed.children.start(EXECS)
    preview = bed.preview(child)
    assert child.process.stdin is not None
    child.process.stdin.write("x")
    child.process.stdin.flush()
    wait_for(lambda: os.readlink(f"/proc/{child.pid}/exe").endswith(("sleep", "coreutils",
                                                                     "busybox")))
    reply = bed.hub.reply(bed.hub.send(bed.hub.order(preview)))
    assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "identity")
    assert child.is_alive()
    bed.check()


def test_what_has_ended_is_gone(bed: Bed) -> None:
    child = bed.children.start()
    preview = bed.preview(child)
    child.process.kill()
    child.process.wait()
    reply = bed.hub.reply(bed.hub.send(bed.hub.order(preview)))
    assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "gone")
    assert [refusal.code for refusal in bed.hub.look(child.task_id).refusals] == ["gone"]
    bed.check()


def test_the_young_are_left_alone(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "YOUNGEST_S", 5.0)
    child = bed.children.start()
    assert [refusal.code for refusal in bed.hub.look(child.task_id).refusals] == ["young"]


def test_a_command_comes_ten_times_and_is_done_once(bed: Bed) -> None:
    child = bed.children.start()
    command = bed.hub.order(bed.preview(child))
    message = bed.hub.signed(command)
    for _ in range(10):
        bed.hub.tell(message)
    first = bed.hub.reply(command.command_id)
    assert first.state == "done"
    other = bed.children.start()
    bed.hub.replies.clear()
    bed.hub.tell(message)
    assert bed.hub.reply(command.command_id) == first
    assert "".join(bed.records()).count('"intent":true') == 1
    # The same preview in another command is spent.
    second_command = bed.hub.order(command.preview)
    reply = bed.hub.reply(bed.hub.send(second_command))
    assert reply.refusal is not None
    assert reply.refusal.code == "stale_preview"
    assert other.is_alive()
    bed.check()


def test_replies_are_said_until_they_are_noted(bed: Bed) -> None:
    bed.hub.notes = False
    child = bed.children.start()
    command_id = bed.hub.send(bed.hub.order(bed.preview(child)))
    reply = bed.hub.reply(command_id)
    reply_count = len(bed.hub.replies[command_id])
    bed.hub.drop_all()
    wait_for(lambda: len(bed.hub.replies[command_id]) > reply_count)
    assert bed.hub.replies[command_id][-1] == reply
    bed.check()


def test_hold_and_release_by_the_hub(bed: Bed) -> None:
    child = bed.children.start()
    preview = bed.preview(child)
    assert bed.hub.reply(bed.hub.send(bed.hub.order(None))).state == "done"
    wait_for(lambda: bed.hub.beats[-1][1].holds)
    assert "because of a test" in bed.hub.beats[-1][1].holds[0]
    hub_file = bed.data / "hub-hold"
    assert hub_holds(hub_file) == (bed.hub.beats[-1][1].holds[0],)
    assert stat.S_IMODE(hub_file.stat().st_mode) == 0o644, "every user of the machine reads it"
    reply = bed.hub.reply(bed.hub.send(bed.hub.order(preview)))
    assert reply.refusal is not None
    assert reply.refusal.code == "hold"
    assert [refusal.code for refusal in bed.hub.look(child.task_id, "notify").refusals] == ["hold"]
    bed.hub.reply(bed.hub.send(bed.hub.order(None, action="release")))
    assert hub_holds(hub_file) == ()
    assert bed.act(child).state == "done"
    bed.check()


def test_what_never_came_is_buried(bed: Bed) -> None:
    from gpudeck.contract.wire import Inquire

    child = bed.children.start()
    command = bed.hub.order(bed.preview(child))
    bed.hub.tell(Inquire((command.command_id,)))
    assert bed.hub.reply(command.command_id).state == "expired"
    bed.hub.replies.clear()
    bed.hub.send(command)  # it was only late
    assert bed.hub.reply(command.command_id).state == "expired"
    assert child.is_alive()
    bed.check()
