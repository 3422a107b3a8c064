"""Settings of MPS as acts on this very machine, on the fake control program: shown, done, read
back, refused, and known to be gone."""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from agent.actions import guard
from agent.actions.context import TaskLookup, TaskSnapshot
from agent.limits.mps import CALL_S, LocalMpsDaemons, found_pipes, path_trouble
from agent.limits.mps_doctor import findings
from agent.limits.mps_store import as_it_is
from agent.limits.mps_view import daemons
from gpudeck.contract.limits import (
    ComputeMode,
    LimitsNow,
    MpsMemory,
    MpsPercent,
    MpsPreset,
    MpsPriority,
    MpsRestart,
    MpsStart,
    MpsStop,
    PowerCap,
    Setting,
)
from gpudeck.contract.wire import encode
from tests.fakes.children import Child, Children
from tests.fakes.hub import wait_for
from tests.fakes.mps_control import FakeMps
from tests.integration.limits_bench import Bench, codes, done, shown


@pytest.fixture
def mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    control = FakeMps(tmp_path / "mps")
    for name, value in control.env().items():
        monkeypatch.setenv(name, value)
    control.start()
    yield control
    control.close()


@pytest.fixture
def bench(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    children.start()
    return Bench(tmp_path, children)


def start_clients(bench: Bench, mps: FakeMps, clients: int = 2) -> tuple[Child, list[Child]]:
    server = bench.children.start(listed=False)
    client_tasks = [bench.children.start(kind="mps_client") for _ in range(clients)]
    mps.server(server.pid, *(child.pid for child in client_tasks))
    return server, client_tasks


def test_new_clients_only_and_which_keep_the_old_value(bench: Bench, mps: FakeMps) -> None:
    server, clients = start_clients(bench, mps)
    pipes = str(mps.pipes)
    with bench.here() as here:
        pct = random.randint(1, 99)
        look = shown(here, MpsPercent(pipes, pct, server.pid))
        assert look.refusals == ()
        assert {task.task_id for task in look.bystanders} == {task.task_id for task in clients}
        assert any("2 running clients keep the old value" in words for words in look.warnings)
        assert mps.changed() == ["-d"]
        reply = here.act(look, "", "ada")
        assert reply.state == "done", reply
        assert reply.verified is not None
        assert reply.verified.in_force is True
        assert reply.verified.bystanders_alive is True
        assert mps.changed() == ["-d", f"set_active_thread_percentage {server.pid} {pct}"]
        new = bench.children.start(kind="mps_client")
        mps.server(server.pid, *(child.pid for child in (*clients, new)))
        with bench.keeper() as run:
            run.round()
        [daemon] = [daemon for daemon in run.said[-1].daemons if daemon.pipes == pipes]
        assert {client.pid: client.pct for client in daemon.clients} == {
            **{child.pid: 100.0 for child in clients}, new.pid: float(pct)}
        for setting, line in (
            (MpsMemory(pipes, 3, 1_536), "set_default_device_pinned_mem_limit 3 1536M"),
            (MpsMemory(pipes, 3, None, server.pid),
             f"set_device_pinned_mem_limit {server.pid} 3 0M"),
            (MpsPriority(pipes, 1), "set_default_client_priority 1"),
        ):
            assert done(here, setting).state == "done"
            assert mps.changed()[-1] == line
        assert done(here, MpsPreset(pipes, "low", server.pid)).state == "done"
        assert mps.changed()[-2:] == [f"set_active_thread_percentage {server.pid} 10",
                                      "set_default_client_priority 1"]
    assert all(child.is_alive() for child in bench.children.all)


def test_applied_and_not_in_force(bench: Bench, mps: FakeMps) -> None:
    """The daemon takes the setting without a word, and ignores it."""
    mps.save(ignores=True)
    with bench.here() as here:
        for setting in (MpsPercent(str(mps.pipes), 50), MpsMemory(str(mps.pipes), 0, 900),
                        MpsPriority(str(mps.pipes), 1)):
            reply = done(here, setting)
            assert reply.state == "not_effective"
            assert reply.verified is not None
            assert (reply.verified.applied, reply.verified.in_force) == (True, False)
            assert "applied, not in force" in reply.step


@pytest.mark.parametrize("how", ["keeps", "refuses"])
def test_a_silent_refusal_is_reported_as_refused(bench: Bench, mps: FakeMps, how: str) -> None:
    """Status 0 each time: the old value is printed, or a sentence."""
    server, _ = start_clients(bench, mps)
    pipes = str(mps.pipes)
    mps.save(**{how: True})
    settings: list[Setting] = [MpsPercent(pipes, 50), MpsPercent(pipes, 50, server.pid),
                               MpsPreset(pipes, "low", server.pid)]
    if how == "refuses":
        settings += [MpsMemory(pipes, 0, 900), MpsPriority(pipes, 1), MpsStop(pipes)]
    with bench.here(kills_per_hour=99) as here:
        for setting in settings:
            reply = done(here, setting)
            assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "setting")
            assert "nothing was changed" in reply.step
        assert here.preview("terminate_client", bench.children.all[-1].task_id).refusals == ()
        if how == "refuses":
            reply = here.act(here.preview("terminate_client", bench.children.all[-1].task_id),
                             "it leaks", "ada")
            assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "mps")
    assert mps.ask("get_default_active_thread_percentage") == "100.0\n"
    assert server.is_alive()
    with bench.keeper() as run:
        run.round()
        assert "lost" not in [finding.code for finding in run.said[-1].findings], "not wanted"


def test_a_preset_of_which_half_is_taken(bench: Bench, mps: FakeMps) -> None:
    mps.save(refuses_priority=True)
    with bench.here() as here:
        reply = done(here, MpsPreset(str(mps.pipes), "low"))
    assert (reply.state, reply.verified and reply.verified.applied) == ("not_effective", True)
    assert "set_default_client_priority" in reply.step
    assert mps.ask("get_default_active_thread_percentage") == "10.0\n"


def test_what_was_set_is_known_to_be_gone(bench: Bench, mps: FakeMps) -> None:
    """A restarted daemon has forgotten it, and says nothing; the agent was restarted too."""
    pipes, pct = str(mps.pipes), random.randint(1, 99)
    bench.children.start(gpu=bench.gpu)
    with bench.here() as here:
        for setting in (MpsPercent(pipes, 77), MpsPercent(pipes, pct), MpsMemory(pipes, 1, 900),
                        MpsPriority(pipes, 1)):
            assert done(here, setting).state == "done"
        with bench.keeper() as run:
            run.round()
            assert [finding.code for finding in run.said[-1].findings] == ["exclusive"]
        mps.kill()
        assert mps.start() == 0
        with bench.keeper() as run:
            run.round()
            finding = run.said[-1].findings[0]
            assert (finding.code, finding.weight) == ("lost", "fault")
            assert f"100 %, not {pct} %" in finding.cause
            assert "no limit, not 900M" in finding.cause
            assert finding.fixes == (MpsPercent(pipes, pct), MpsMemory(pipes, 1, 900),
                                     MpsPriority(pipes, 1))
            for fix in finding.fixes:
                assert done(here, fix).state == "done"
            run.round()
            assert [finding.code for finding in run.said[-1].findings] == ["exclusive"]
            [exclusive] = run.said[-1].findings
            assert exclusive.fixes == (ComputeMode(bench.gpu, "exclusive_process"),)
            assert done(here, exclusive.fixes[0]).state == "done"
            run.round()
            assert run.said[-1].findings == ()
        assert any("stays in exclusive mode" in words
                   for words in shown(here, MpsStop(pipes)).warnings)
        assert done(here, MpsStop(pipes)).state == "done"
        assert mps.start() == 0
        with bench.keeper() as run:
            run.round()
            assert run.said[-1].findings == (), "it was stopped by us: nothing is wanted"


def test_a_daemon_that_somebody_stopped_is_missed(bench: Bench, mps: FakeMps) -> None:
    """The same goes for an interrupted restart: nothing else would offer to start the daemon."""
    pipes = str(mps.pipes)
    with bench.here() as here:
        assert done(here, MpsPercent(pipes, 33)).state == "done"
        mps.ask("quit")
        wait_for(lambda: not (mps.pipes / "control").exists())
        with bench.keeper() as run:
            run.round()
            assert run.said[-1].daemons == ()
            [finding] = run.said[-1].findings
            assert (finding.code, finding.fixes) == ("gone", (MpsStart(pipes),))
            assert done(here, finding.fixes[0]).state == "done"
            run.round()
            assert run.said[-1].findings[0].code == "lost"
        assert done(here, MpsStop(pipes)).state == "done"
        with bench.keeper() as run:
            run.round()
            assert run.said[-1].findings == (), "it was stopped by us"


def test_looking_does_not_fill_the_log_of_the_daemon(bench: Bench, mps: FakeMps) -> None:
    """A question adds some five lines; all questions are asked when the clients have changed."""
    server, clients = start_clients(bench, mps)
    with bench.keeper() as run:
        run.round()
        command_count = len(mps.commands())
        for _ in range(3):
            run.keeper.connected()
            run.keeper.step(time.monotonic(), True)
            wait_for(lambda: run.keeper.is_idle)
        assert len(mps.commands()) - command_count <= 3 * 2, "servers, and the clients of one"
        late = bench.children.start(kind="mps_client")
        mps.server(server.pid, *(child.pid for child in (*clients, late)))
        run.keeper.connected()
        run.keeper.step(time.monotonic(), True)
        wait_for(lambda: run.keeper.is_idle)
        run.said += run.keeper.poll()
        assert [len(daemon.clients) for daemon in run.said[-1].daemons
                if daemon.pipes == str(mps.pipes)] == [3]


def test_what_mps_cannot_do_is_refused_before(bench: Bench, mps: FakeMps) -> None:
    pipes = str(mps.pipes)
    with bench.here() as here:
        absent = 2**22 + 7
        [refusal] = shown(here, MpsPercent(pipes, 50, absent)).refusals
        assert str(absent) in refusal.sentence
        assert codes(here, MpsStart(pipes)) == ["setting"]
        assert codes(here, MpsPercent(str(mps.folder / "none"), 50)) == ["setting"]
        assert codes(here, MpsStart("/proc/nowhere")) == ["setting"]
        look = shown(here, MpsPercent(pipes, 50))
        mps.ask("set_default_active_thread_percentage 40")  # meanwhile
        reply = here.act(look, "", "ada")
        assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "changed")
        assert mps.ask("get_default_active_thread_percentage") == "40.0\n"


def test_a_stop_names_its_victims_and_a_restart_keeps_the_defaults(
    bench: Bench, mps: FakeMps
) -> None:
    server, [client] = start_clients(bench, mps, 1)
    pipes = str(mps.pipes)
    with bench.here() as here:
        look = shown(here, MpsStop(pipes))
        assert [victim.process.pid for victim in look.victims] == [client.pid]
        assert any(str(client.pid) in words for words in look.warnings)
        late = bench.children.start(kind="mps_client")
        mps.server(server.pid, client.pid, late.pid)
        reply = here.act(look, "", "ada")
        assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "changed")
        assert server.is_alive()
        assert done(here, MpsPercent(pipes, 33)).state == "done"
        assert done(here, MpsMemory(pipes, 0, 2_048)).state == "done"
        assert done(here, MpsMemory(pipes, 1, 1_536)).state == "done"
        mps.ask("set_default_device_pinned_mem_limit 0 3584M")  # somebody else, since
        assert done(here, MpsRestart(pipes)).state == "done"
        wait_for(lambda: not server.is_alive())
        assert mps.ask("get_default_active_thread_percentage") == "33.0\n"
        assert mps.ask("get_default_device_pinned_mem_limit 0") == "3G\n"
        assert [line for line in mps.changed() if "limit 1 " in line] == [
            "set_default_device_pinned_mem_limit 1 1536M"] * 2, "not the 1G that MPS shows"
        assert done(here, MpsStop(pipes)).state == "done"
        assert not (mps.pipes / "control").exists()
        assert done(here, MpsStart(pipes)).state == "done"
        assert mps.ask("get_default_active_thread_percentage") == "100.0\n"
    with bench.here(kills_per_hour=0) as here:
        assert codes(here, MpsStop(pipes)) == ["budget"]
    with bench.here(protected_users=["root"]) as here:
        start_clients(bench, mps, 1)
        assert "protected" in codes(here, MpsStop(pipes))


def test_a_restart_keeps_the_defaults_without_a_list_of_processes(
    bench: Bench, mps: FakeMps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defaults of others are kept too, and those of devices that no driver lists; one that is
    refused keeps none of the others from being set."""
    pipes, mib = str(mps.pipes), random.randint(1_025, 2_047)
    with bench.here() as here:
        assert done(here, MpsMemory(pipes, 1, mib)).state == "done"
        mps.ask("set_default_device_pinned_mem_limit 31 700M")  # somebody else
        monkeypatch.setattr(Children, "fresh", lambda *_: None)
        [change] = shown(here, MpsMemory(pipes, 31, None)).changes
        assert (change.before, change.after) == ("700M", "no limit")
        assert done(here, MpsRestart(pipes)).state == "done"
        assert mps.changed()[-2:] == [f"set_default_device_pinned_mem_limit 1 {mib}M",
                                      "set_default_device_pinned_mem_limit 31 700M"]
        mps.save(refuses_priority=True)
        mps.ask("set_default_device_pinned_mem_limit 30 -1G")  # which wraps: no limit at all
        reply = done(here, MpsRestart(pipes))
        assert reply.state == "not_effective"
        assert "set_default_client_priority" in reply.step
        assert "a memory limit in MiB is a whole number" in reply.step
        assert mps.ask("get_default_device_pinned_mem_limit 31") == "700M\n"


def test_a_folder_has_one_name(bench: Bench, mps: FakeMps) -> None:
    """However it is written, what was set in it is missed when it is gone."""
    with bench.here() as here:
        assert done(here, MpsPercent(f"{mps.pipes}/", 41)).state == "done"
        assert done(here, MpsPercent(f"{mps.pipes.parent}//{mps.pipes.name}", 42)).state == "done"
    mps.kill()
    assert mps.start() == 0
    with bench.keeper() as run:
        run.round()
        [finding] = [finding for finding in run.said[-1].findings if finding.code == "lost"]
        assert finding.fixes == (MpsPercent(str(mps.pipes), 42),)


def test_a_device_that_is_not_there_is_said_and_no_refusal(bench: Bench, mps: FakeMps) -> None:
    count = len({bench.children.start(gpu=bench.gpu).gpu, *(c.gpu for c in bench.children.all)})
    with bench.here() as here:
        for ordinal, mem_mib, is_said in ((count - 1, 900, False), (count, 900, True),
                                          (count, None, False)):
            look = shown(here, MpsMemory(str(mps.pipes), ordinal, mem_mib))
            assert look.refusals == ()
            assert any(f"has the number {count}" in words for words in look.warnings) == is_said


def test_clients_are_named_as_their_tasks_are(bench: Bench, mps: FakeMps) -> None:
    """The names protect them too."""
    _, [client] = start_clients(bench, mps, 1)
    name = f"user-{random.randrange(10**6)}"
    tasks = TaskLookup.find

    def renamed(lookup: TaskLookup) -> TaskSnapshot | None:
        snapshot = tasks(lookup)
        return None if snapshot is None else replace(snapshot, gpu_tasks=tuple(
            structs.replace(gpu_task, task=structs.replace(gpu_task.task, user=name))
            for gpu_task in snapshot.gpu_tasks))

    with pytest.MonkeyPatch.context() as patch, bench.here(protected_users=[name]) as here:
        patch.setattr(TaskLookup, "find", renamed)
        look = shown(here, MpsStop(str(mps.pipes)))
    assert [(victim.process.pid, victim.user) for victim in look.victims] == [(client.pid, name)]
    assert any(f"{name} ({client.pid})" in words for words in look.warnings)
    assert "protected" in [refusal.code for refusal in look.refusals]


def test_what_a_daemon_does_not_say_is_as_it_was_set(mps: FakeMps) -> None:
    """A daemon that says nothing is not asked 32 times."""
    daemon, settings = LocalMpsDaemons(is_alone=True).daemons()[0], (
        MpsMemory("/p", 3, 1_536), MpsPercent("/p", 40), MpsMemory("/p", 4, None),
        MpsPriority("/p", 1))
    mps.kill()
    command_count = len(mps.commands())
    in_force, left_out = as_it_is(daemon, "/p", settings)
    assert (set(in_force), left_out) == ({settings[0], settings[1], settings[3]}, [])
    assert len(mps.commands()) - command_count == 2


def test_a_client_is_taken_out_and_lives(bench: Bench, mps: FakeMps) -> None:
    server, [client, other] = start_clients(bench, mps)
    with bench.here() as here:
        look = here.preview("terminate_client", client.task_id)
        assert [victim.process.pid for victim in look.victims] == [client.pid]
        assert look.refusals == ()
        reply = here.act(look, "it leaks", "ada")
        assert reply.state == "done", reply
        assert reply.verified is not None
        assert reply.verified.in_force is True
        assert mps.ask(f"get_client_list {server.pid}") == f"{other.pid}\n"
        mps.save(ignores=True)
        reply = here.act(here.preview("terminate_client", other.task_id), "it leaks", "ada")
        assert (reply.state, reply.verified and reply.verified.in_force) == ("not_effective", False)
        plain = bench.children.all[0]
        assert [refusal.code for refusal in here.preview("terminate_client", plain.task_id).refusals
                ] == ["mps"]
    assert client.is_alive()
    assert other.is_alive()


def test_a_daemon_that_hangs_delays_no_lease(bench: Bench, mps: FakeMps) -> None:
    """A daemon that takes each question and does not answer can be run by anybody."""
    before = bench.power_w()
    with bench.here() as here:
        assert done(here, PowerCap(bench.gpu, int(bench.facts.power_limit_min_w or 0), 1.0)
                    ).state == "done"
    mps.save(stuck=True)
    with bench.keeper() as run:
        def is_taken_back() -> bool:
            run.keeper.step(time.monotonic(), True)
            return bench.power_w() == before

        wait_for(is_taken_back, CALL_S - 1.0)  # before a single answer
        mps.save(stuck=False)
        wait_for(lambda: bench.book().all() == ())  # noted a moment later


def test_a_folder_that_no_message_can_name_is_left_out(bench: Bench, tmp_path: Path) -> None:
    """A user can run a program of that name with it, and the agent must live."""
    wild = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    wild.mkdir()
    (wild / "control").write_text("")
    assert "UTF-8" in path_trouble(wild)
    assert [daemon.pipes for daemon in daemons(LocalMpsDaemons(pipes=wild, is_alone=True))] == []
    [finding] = findings(LocalMpsDaemons(pipes=wild, is_alone=True))
    assert encode(LimitsNow(0.0, findings=(finding,)))
    program = tmp_path / "nvidia-cuda-mps-control"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "30"], env={
            b"CUDA_MPS_PIPE_DIRECTORY": os.fsencode(wild)}) as process:
        try:
            wait_for(lambda: Path(f"/proc/{process.pid}/environ").read_bytes())
            assert wild not in found_pipes()
        finally:
            process.kill()
