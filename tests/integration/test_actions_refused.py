"""Commands that an agent refuses over a real socket, and proof that nothing was touched."""

import os
import random
import secrets
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable

import msgspec
import pytest

from agent.actions import context as node_context
from agent.actions.ceiling import Ceiling
from agent.actions.guard import GuardedProcess, GuardInput, ProtectedExecutables, refusals
from agent.actions.preview import preview as make_preview
from agent.actions.signals import ProcessHandle
from agent.journal.store import ActionJournal, ActionStore
from agent.readings import ProcessReading
from agent.tasks.processes import ourselves
from gpudeck.contract.action_table import TaskAction
from gpudeck.contract.actions import ActionParams, Command, CommandActor
from gpudeck.contract.wire import (
    Look,
    SignedCommand,
    command_statement,
    encode_command,
    preview_statement,
)
from gpudeck.network.keys import SigningKey, fingerprint
from tests.fakes.children import STUBBORN, a_ceiling
from tests.fakes.contexts import a_context
from tests.fakes.hub import wait_for
from tests.integration.test_actions_agent import Bed, a_running_node, bed

__all__ = ["bed"]


def refusal_code(bed: Bed, command: Command) -> str:
    reply = bed.hub.reply(bed.hub.send(command))
    assert reply.state in ("refused", "expired")
    assert reply.refusal is not None
    return reply.refusal.code


def resigned(command: Command) -> Command:
    """Return the command with a made-up preview: signed, but by another key."""
    assert command.preview is not None
    key = SigningKey(secrets.token_bytes(32))
    unsigned = msgspec.structs.replace(command.preview, key=key.public, signature=b"",
                                       node_id=fingerprint(key.public))
    signed = msgspec.structs.replace(unsigned, signature=key.sign(preview_statement(unsigned)))
    return msgspec.structs.replace(command, preview=signed)


def with_preview(command: Command, **changed: object) -> Command:
    assert command.preview is not None
    return msgspec.structs.replace(
        command, preview=msgspec.structs.replace(command.preview, **changed))


FORGERIES: dict[str, tuple[str, Callable[[Command], Command]]] = {
    "for another node": ("node", lambda it: msgspec.structs.replace(it, node_id="f" * 32)),
    "of an older hub": ("epoch", lambda it: msgspec.structs.replace(it, epoch=it.epoch - 1)),
    "too late": ("expired", lambda it: msgspec.structs.replace(
        it, issued_at=it.issued_at - 60, expires_at=it.issued_at - random.uniform(0.5, 30))),
    "too long": ("expired", lambda it: msgspec.structs.replace(it, expires_at=it.issued_at + 300)),
    "no preview": ("schema", lambda it: msgspec.structs.replace(it, preview=None)),
    "another action": ("schema", lambda it: msgspec.structs.replace(it, action="pause")),
    "another nonce": ("schema", lambda it: msgspec.structs.replace(
        it, nonce=secrets.token_bytes(32))),
    "a preview by another key": ("signature", resigned),
    "another victim": ("signature", lambda it: with_preview(
        it, victims=(*it.preview.victims, *it.preview.victims))),  # type: ignore[union-attr]
    "another grace": ("signature", lambda it: with_preview(
        it,
        params=msgspec.structs.replace(it.preview.params, grace_s=1))),  # type: ignore[union-attr]
    "without the refusals": ("signature", lambda it: with_preview(it, refusals=(), warnings=())),
    "by a rule": ("rules",
                  lambda it: msgspec.structs.replace(it, asker=CommandActor("rule", "idle"))),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_command_that_is_not_as_it_should_be(bed: Bed, forgery: str) -> None:
    code, forge = FORGERIES[forgery]
    child = bed.children.start()
    preview = bed.preview(child)
    assert refusal_code(bed, forge(bed.hub.order(preview))) == code
    assert child.is_alive()
    # A control: the same, as it should be, is obeyed.
    reply = bed.hub.reply(bed.hub.send(bed.hub.order(bed.preview(child))))
    assert reply.state == "done"
    bed.check()


def test_signed_by_somebody_else(bed: Bed) -> None:
    child = bed.children.start()
    command = bed.hub.order(bed.preview(child))
    body = encode_command(command)
    bed.hub.tell(SignedCommand(body,
                               SigningKey(secrets.token_bytes(32)).sign(command_statement(body))))
    reply = bed.hub.reply(command.command_id)
    assert reply.refusal is not None
    assert reply.refusal.code == "signature"
    assert child.is_alive()
    # It did not use up the id of the true one.
    bed.hub.replies.clear()
    assert bed.hub.reply(bed.hub.send(command)).state == "done"
    bed.check()


def test_another_command_under_a_used_id(bed: Bed) -> None:
    child, other = bed.children.start(), bed.children.start()
    command = bed.hub.order(bed.preview(child))
    assert bed.hub.reply(bed.hub.send(command)).state == "done"
    bed.hub.replies.clear()
    second_command = bed.hub.order(bed.preview(other), command_id=command.command_id)
    assert refusal_code(bed, second_command) == "duplicate"
    assert other.is_alive()
    bed.check()


def test_clocks_that_are_apart(bed: Bed) -> None:
    child = bed.children.start()
    preview = bed.preview(child)
    bed.hub.ahead_s = random.choice((-1, 1)) * random.uniform(20, 4_000)
    bed.hub.drop_all()
    wait_for(lambda: len(bed.hub.hellos) > 1 and bed.hub._streams)
    wait_for(lambda: refusal_code(bed, bed.hub.order(preview)) == "skew")
    bed.hub.tells_time = False
    bed.hub.drop_all()
    wait_for(lambda: len(bed.hub.hellos) > 2 and bed.hub._streams)
    assert refusal_code(bed, bed.hub.order(preview)) == "skew"
    assert child.is_alive()
    bed.check()


def test_an_old_hub_is_fenced_after_our_restart_too(bed: Bed) -> None:
    child = bed.children.start()
    preview = bed.preview(child)
    # One word of a newer hub is enough.
    newer = bed.hub.order(None, action="release", epoch=random.randint(2, 10**6))
    assert bed.hub.reply(bed.hub.send(newer)).state == "done"
    assert refusal_code(bed, bed.hub.order(preview)) == "epoch"
    with a_running_node(bed.hub, bed.children, bed.data):
        assert bed.hub.hellos[-1].epoch_seen == newer.epoch
    assert child.is_alive()
    bed.check()


@pytest.mark.parametrize(("keys", "action", "code"), [
    ({"actions": ["notify", "pause", "resume"]}, "end", "type"),
    ({"kills_per_hour": 0}, "end", "budget"), ({"pauses_per_hour": 0}, "pause", "budget"),
    ({"root_tasks": False}, "end", "protected"),
    ({"protected_executables": [os.path.realpath("/proc/self/exe")]}, "pause", "protected"),
    ({"nonsense": 1}, "notify", "type"),
])
def test_the_ceiling_counts_at_once(
    bed: Bed, keys: dict[str, object], action: TaskAction, code: str
) -> None:
    if keys == {"root_tasks": False} and os.geteuid() != 0:
        pytest.skip("the tests' own tasks are root's only where the tests are")
    child = bed.children.start()
    preview = bed.preview(child, action)
    a_ceiling(bed.data, **keys)
    assert refusal_code(bed, bed.hub.order(preview)) == code
    assert code in [refusal.code for refusal in bed.hub.look(child.task_id, action).refusals]
    assert child.is_alive()
    bed.check()


def test_the_budget_is_spent_by_ends_alone(bed: Bed) -> None:
    a_ceiling(bed.data, kills_per_hour=2)
    for _ in range(2):
        assert bed.act(bed.children.start()).state == "done"
    child = bed.children.start()
    assert bed.act(child, "pause").state == "done"
    assert [refusal.code for refusal in bed.hub.look(child.task_id).refusals] == ["budget"]
    bed.check()


def test_a_driver_that_does_not_answer(bed: Bed) -> None:
    child = bed.children.start()
    preview = bed.preview(child)
    bed.children.hangs = True
    assert refusal_code(bed, bed.hub.order(preview)) == "unreadable"
    assert [refusal.code for refusal in bed.hub.look(child.task_id).refusals] == ["unreadable"]
    bed.children.hangs = False
    assert child.is_alive()
    bed.check()


def test_one_that_has_left_its_gpu(bed: Bed) -> None:
    child = bed.children.start()
    preview = bed.preview(child)
    child.gpu = ""
    assert refusal_code(bed, bed.hub.order(preview)) == "condition"
    assert child.is_alive()
    bed.check()


def test_mps_clients(bed: Bed) -> None:
    child = bed.children.start(kind="mps_client")
    refusing: tuple[TaskAction, ...] = ("pause", "end")
    for action in refusing:
        [refusal] = bed.hub.look(child.task_id, action).refusals
        assert refusal.code == "mps"
    assert "nvidia-cuda-mps-control" in refusal.sentence
    bed.check()


def test_a_foreign_pid_namespace(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    child = bed.children.start()
    first = bed.hub.look(child.task_id)
    assert first.refusals == ()
    monkeypatch.setattr(node_context, "in_host_namespace", lambda: False)
    assert bed.hub.look(child.task_id).refusals == ()  # a simulator's pids are our own
    for own, codes in ((False, ["pidns"]), (True, [])):
        ceiling = a_ceiling(bed.data, own_pid_namespace=own)
        journal = ActionJournal(ActionStore(bed.data / "acts.db"))
        context = a_context(bed.children, journal, ceiling, has_host_pids=True)
        answer = make_preview(context, Look("a", bytes(32), "end", ActionParams(),
                                            child.task_id))
        assert [refusal.code for refusal in answer.refusals] == codes


def test_we_and_ours_are_protected(bed: Bed) -> None:
    """A driver that lists the agent itself, as a task: the tests run inside it here."""
    child = bed.children.start()
    bed.children.pids = frozenset((child.pid,))
    assert [refusal.code for refusal in bed.hub.look(child.task_id).refusals] == ["protected"]
    assert os.getpid() in ourselves()
    bed.check()


def test_no_disk_no_act(bed: Bed) -> None:
    child = bed.children.start()
    preview = bed.preview(child)
    # Another holds the file for writing for longer than anybody waits.
    blocker = sqlite3.connect(bed.data / "acts.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        command = bed.hub.order(preview)
        bed.hub.send(command)
        reply = bed.hub.reply(command.command_id, 20)
        assert reply.refusal is not None
        assert reply.refusal.code == "journal"
    finally:
        blocker.execute("ROLLBACK")
        blocker.close()
    assert child.is_alive()
    bed.check()


def test_a_made_up_task_has_no_process(bed: Bed) -> None:
    pid = random.randint(2**22 + 1, 2**31 - 1)
    bed.children.more.append(ProcessReading(
        pid, "GPU-1", 1.0, None, user="alice", command="train.py", started_at=time.time() - 60,
        start_ticks=5))
    task_id = f"{bed.neighbour.task_id[:8]}-{pid}-5"
    preview = bed.hub.look(task_id)
    assert [refusal.code for refusal in preview.refusals] == ["made_up"]
    assert (preview.owner, preview.victims) == ("alice", ())


def test_two_acts_at_once_are_one_after_the_other(bed: Bed) -> None:
    first, second = bed.children.start(STUBBORN), bed.children.start()
    one = bed.hub.send(bed.hub.order(bed.preview(first, grace_s=4.0)))
    bed.hub.acting(one, "SIGTERM sent")
    two = bed.hub.send(bed.hub.order(bed.preview(second)))
    wait_for(lambda: bed.hub.replies[two])
    assert [reply.state for reply in bed.hub.replies[two]] == ["accepted"]
    assert second.is_alive()
    assert bed.hub.reply(one).state == "done"
    assert bed.hub.reply(two).state == "done"
    bed.check()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_another_users_task_without_the_right_to_signal() -> None:
    """The victim is root's and the caller is nobody, who may look and nothing more."""
    victim = subprocess.Popen(["sleep", "60"])
    try:
        nobody = os.fork()
        if nobody == 0:
            os._exit(_as_nobody(victim.pid))
        assert os.waitstatus_to_exitcode(os.waitpid(nobody, 0)[1]) == 0
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def _as_nobody(pid: int) -> int:
    os.setgroups([])
    os.setgid(65_534)
    os.setuid(65_534)
    handle = ProcessHandle.open(pid)
    if handle is None or handle.may_signal():
        return 1
    facts = handle.facts()
    if facts is None:
        return 4
    subject = GuardedProcess(facts, "root", "compute", may_signal=False, is_ours=False,
                             is_frozen=False, is_suspended=False)
    case = GuardInput("end", Ceiling(root_tasks=True), (subject,), age_s=60.0,
                      protected=ProtectedExecutables(frozenset(), frozenset()),
                      protected_by_ceiling=frozenset(), holds=(), asker=None,
                      sees_host_pids=True, kills_last_hour=0, pauses_last_hour=0,
                      manager=None, mps="")
    codes = [refusal.code for refusal in refusals(case)]
    try:
        handle.send(signal.SIGTERM)
    except PermissionError:
        return 0 if codes == ["permission"] else 2
    return 3
