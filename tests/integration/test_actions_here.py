"""Acts at the node's own terminal: the same gate, without a hub. And MPS by its control program."""

import os
import random
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from agent.actions.hold_files import tell_hub_hold
from agent.actions.kinds.execution import ActionTimeouts
from agent.actions.signals import ProcessHandle, ProcessHandles, is_same
from agent.actions.standalone import READY_WITHIN_S, StandaloneNode
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.mps import LocalMpsDaemons
from agent.reader.watchdog import ThreadedReaderProcess
from agent.runtime.action_lock import ActionLock
from gpudeck.audit.chain import verify
from gpudeck.contract.actions import ProcessIdentity
from gpudeck.contract.wire import GpuFacts
from tests.fakes.children import STUBBORN, Children, a_ceiling, state_of, wait_until_old
from tests.fakes.hub import wait_for
from tests.integration.test_actions_crash import write_world


def test_a_user_to_whom_the_agents_journal_is_closed_hears_of_the_hubs_hold(
        children: Children, tmp_path: Path) -> None:
    """`gpudeck end` of an ordinary user has a folder and a journal of its own."""
    child, hub_file = children.start(), tmp_path / "hub-hold"
    write_world(tmp_path, [child])
    tell_hub_hold(hub_file, "the hub, by ops: flaky\nnode")
    with StandaloneNode(tmp_path / "data", "simulated", f"node=n1,gpus=1,world={tmp_path}",
                        a_ceiling(tmp_path), hub_file=hub_file) as here:
        wait_until_old(child)
        [refusal] = here.preview("end", child.task_id).refusals
        assert (refusal.code, "the hub, by ops: flaky node" in refusal.sentence) == ("hold", True)
        hub_file.write_text("")
        assert [one.code for one in here.preview("end", child.task_id).refusals] == ["hold"]
        tell_hub_hold(hub_file, None)
        assert here.preview("end", child.task_id).refusals == ()


def test_end_here(children: Children, tmp_path: Path) -> None:
    ceiling = a_ceiling(tmp_path)
    child, neighbour, third = children.start(STUBBORN), children.start(), children.start()
    write_world(tmp_path, [child, neighbour, third])
    data = tmp_path / "data"
    data.mkdir()
    with StandaloneNode(data, "simulated", f"node=n1,gpus=1,world={tmp_path}", ceiling,
                        ActionTimeouts(2.0, 2.0)) as here:
        wait_until_old(third)
        preview = here.preview("end", child.task_id)
        assert preview.refusals == ()
        assert {task.task_id for task in preview.bystanders} == {neighbour.task_id, third.task_id}
        steps: list[str] = []
        preview = here.preview("end", child.task_id,
                               type(preview.params)(grace_s=1.0))
        reply = here.act(preview, "it is mine", "ada", lambda step: steps.append(step.state))
        assert reply.state == "done"
        assert steps[:2] == ["accepted", "acting"]
        assert child.process.wait(1) == -signal.SIGKILL
        # A preview is for one act; a hold stops the next.
        (data / "hold").write_text("not now\n")
        assert [refusal.code for refusal in here.preview("end", third.task_id).refusals] == ["hold"]
        (data / "hold").unlink()
        preview = here.preview("end", third.task_id)
        (data / "hold").write_text("not now\n")
        reply = here.act(preview, "", "ada")
        assert reply.refusal is not None
        assert reply.refusal.code == "hold"
        (data / "hold").unlink()
        assert here.act(here.preview("pause", third.task_id), "", "ada").state == "done"
    assert neighbour.is_alive()
    assert third.is_alive()
    journal = ActionJournal(ActionStore(data / "acts.db"))
    assert verify(journal.audit.links()) is None
    assert '"kind":"terminal","name":"ada"' in "".join(link.body for link in journal.audit.links())
    assert journal.unsettled() == []  # nothing of it is the hub's


def test_one_act_at_a_time(tmp_path: Path) -> None:
    one, other = ActionLock(tmp_path), ActionLock(tmp_path)
    assert one.take(0.1)
    assert not other.take(0.1)
    one.free()
    assert other.take(0.1)
    other.free()


def test_a_grip_never_reaches_another(children: Children) -> None:
    child, neighbour = children.start(), children.start()
    with ProcessHandles() as handles:
        handle = handles.open(child.pid)
        assert handle is not None
        facts = handle.facts()
        assert facts is not None
        assert is_same(facts.identity, facts.identity)
        assert handle.send(signal.SIGKILL)
        wait_for(lambda: state_of(child.pid) == "Z")
        assert handle.facts() is None  # it has ended, reaped or not
        child.process.wait()
        assert handle.facts() is None
        assert not handle.send(signal.SIGKILL)
    assert ProcessHandle.open(child.pid) is None
    assert neighbour.is_alive()


def test_who_is_the_same() -> None:
    identity = ProcessIdentity(7, 100, 1_000, "8:1", "0::/a", 55)
    assert is_same(ProcessIdentity(7, 100, 1_000, None, None, None), identity)
    for other in (ProcessIdentity(8, 100, 1_000, "8:1", "0::/a", 55),
                  ProcessIdentity(7, 101, 1_000, "8:1", "0::/a", 55),
                  ProcessIdentity(7, 100, 0, "8:1", "0::/a", 55),
                  ProcessIdentity(7, 100, 1_000, "8:2", "0::/a", 55),
                  ProcessIdentity(7, 100, 1_000, "8:1", "0::/b", 55),
                  ProcessIdentity(7, 100, 1_000, "8:1", "0::/a", 56)):
        assert not is_same(other, identity)


def a_control_program(folder: Path, server: int, client: int, answer: str) -> Path:
    """Prints what the real one prints (535 to 555), and writes down what it was asked."""
    program = folder / "nvidia-cuda-mps-control"
    program.write_text(textwrap.dedent(f"""\
        #!{sys.executable} -SE
        import sys
        asked = sys.stdin.read()
        open({str(folder / "asked")!r}, "a").write(asked)
        answers = {{"get_server_list\\n": "{server}\\n",
                   "get_client_list {server}\\n": "{client}\\n",
                   "terminate_client {server} {client}\\n": {answer!r}}}
        sys.stdout.write(answers.get(asked, 'Unknown command "x"\\n'))
        """))
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("answer", "is_good"), [
    ("0\n", True), ("1\n", False), ("Server 5 not found\n", False), ("", False), ("0\n0\n", False),
])
def test_only_the_exact_words_of_success_count(
    tmp_path: Path, answer: str, is_good: bool
) -> None:
    server, client = random.sample(range(2, 4_000_000), 2)
    program = str(a_control_program(tmp_path, server, client, answer))
    mps = LocalMpsDaemons(program, is_alone=True)  # other tests have daemons on this machine
    assert mps.trouble() == ""
    assert (mps.terminate(client) == "") is is_good
    commands = (tmp_path / "asked").read_text().splitlines()
    assert commands[-1] == f"terminate_client {server} {client}"
    assert "as its client" in mps.terminate(client + 1)
    assert len((tmp_path / "asked").read_text().splitlines()) == len(commands) + 2


def test_without_the_control_program_it_says_what_to_do(tmp_path: Path) -> None:
    assert "Install it" in LocalMpsDaemons(str(tmp_path / "none"), is_alone=True).trouble()
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 1\n")
    silent.chmod(0o755)
    assert "CUDA_MPS_PIPE_DIRECTORY" in LocalMpsDaemons(
        str(silent), is_alone=True).trouble()
    assert os.access(silent, os.X_OK)


def test_gpus_are_known_where_somebody_else_takes_the_readings(tmp_path: Path) -> None:
    """Regression: each previewed act of a notebook took 30 s, as its widget draws from the same
    source, which gives each reading once."""
    facts = GpuFacts(uuid="GPU-1", index=3, name="H100")
    (tmp_path / "data").mkdir()
    source = ThreadedReaderProcess("simulated", "node=n1,gpus=1", str, lambda: None)
    stop = threading.Event()

    def take() -> None:
        while not stop.wait(0.001):
            source.latest()

    taker = threading.Thread(target=take)
    taker.start()
    try:
        with StandaloneNode(tmp_path / "data", "simulated", "node=n1,gpus=1", source=source,
                            facts=(facts,)) as here:
            began = time.monotonic()
            assert here.facts() == {"GPU-1": facts}
            assert time.monotonic() - began < READY_WITHIN_S / 10
    finally:
        stop.set()
        taker.join()
        source.close()
