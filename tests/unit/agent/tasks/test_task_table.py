import os
import pwd
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from agent.limits.mps import LocalMpsDaemons, MpsClientCache
from agent.readings import ProcessReading, Reading
from agent.tasks import processes
from agent.tasks.boot_id import boot_id
from agent.tasks.managers import manager_of
from agent.tasks.name_cache import WorkloadNameCache
from agent.tasks.owners import WorkloadNames
from agent.tasks.privileges import HOST_PID_NAMESPACE
from agent.tasks.processes import COMMAND_MAX, namespace_trouble, read_stat
from agent.tasks.redact import HIDDEN
from agent.tasks.seen import SuspendedUse
from agent.tasks.task_table import TaskTable
from agent.telemetry.sampler import SamplerState, sample
from gpudeck.contract.wire import Task, decode_from_agent, encode

BOOT = "0b1c2d3e-0000-0000-0000-000000000000"
ID = "3fa9" + "c" * 60


def a_proc(root: Path, pid: int, stat: str = "S", ticks: int = 777, **files: bytes) -> None:
    folder = root / str(pid)
    folder.mkdir(exist_ok=True)
    zeros = " ".join(["0"] * 18)
    (folder / "stat").write_text(f"{pid} (a ) (b) name) {stat} {zeros} {ticks} 0 0\n")
    for name, content in files.items():
        (folder / name).write_bytes(content)


def test_a_real_process() -> None:
    word = f"word-{random.random()}"
    child = subprocess.Popen([sys.executable, "-c", "input()", word, "--token=abc"],
                             stdin=subprocess.PIPE)
    try:
        time.sleep(0.05)
        [gpu_task] = TaskTable(BOOT).describe([ProcessReading(child.pid, "GPU-1", 12.0, None)])
    finally:
        child.communicate(b"\n")
    task = gpu_task.task
    assert task.id == f"0b1c2d3e-{child.pid}-{task.start_ticks}"
    assert task.user == pwd.getpwuid(os.getuid()).pw_name
    assert task.command is not None
    assert task.command.endswith(f"{word} --token={HIDDEN}")
    assert task.started_at is not None
    assert abs(task.started_at - time.time()) < 5
    # It may have been at its disk in that moment.
    assert gpu_task.state in ("running", "uninterruptible")
    assert (gpu_task.gpu_uuid, gpu_task.mem_used_bytes) == ("GPU-1", 12.0)


def test_a_name_with_brackets_does_not_move_the_fields(tmp_path: Path) -> None:
    a_proc(tmp_path, 5, "T", ticks=123456)
    stat = read_stat(tmp_path, 5)
    assert stat is not None
    assert (stat.state, stat.start_ticks) == ("paused", 123456)
    assert read_stat(tmp_path, 6) is None
    (tmp_path / "5" / "stat").write_text("garbage")
    assert read_stat(tmp_path, 5) is None


@pytest.mark.parametrize(("letter", "state"), [
    ("R", "running"), ("S", "running"), ("I", "running"), ("D", "uninterruptible"),
    ("T", "paused"), ("t", "paused"), ("Z", "zombie"), ("X", "zombie"),
])
def test_states(tmp_path: Path, letter: str, state: str) -> None:
    a_proc(tmp_path, 5, letter)
    stat = read_stat(tmp_path, 5)
    assert stat is not None
    assert stat.state == state


def test_a_reused_pid_is_another_task(tmp_path: Path) -> None:
    table, on_gpu = TaskTable(BOOT, tmp_path), [ProcessReading(5, "GPU-1", 1.0, None)]
    a_proc(tmp_path, 5, ticks=100, cmdline=b"first\0")
    [first] = table.describe(on_gpu)
    a_proc(tmp_path, 5, ticks=200, cmdline=b"second\0")
    [second] = table.describe(on_gpu)
    assert (first.task.command, second.task.command) == ("first", "second")
    assert first.task.id != second.task.id


def test_a_process_the_driver_still_lists_after_its_end_keeps_its_name(tmp_path: Path) -> None:
    table, on_gpu = TaskTable(BOOT, tmp_path), [ProcessReading(5, "GPU-1", 1.0, None)]
    a_proc(tmp_path, 5, cmdline=b"python\0train.py\0")
    [alive] = table.describe(on_gpu)
    for file in (tmp_path / "5").iterdir():
        file.unlink()
    [dead] = table.describe(on_gpu)
    assert dead.task == alive.task
    assert dead.state is None


def test_a_process_of_another_namespace_is_listed_as_unknown(tmp_path: Path) -> None:
    [row] = TaskTable(BOOT, tmp_path).describe([ProcessReading(5, "GPU-1", None, None)])
    assert (row.task.user, row.task.command, row.task.started_at) == (None, None, None)
    assert row.mem_used_bytes is None


def test_what_the_backend_knows_is_taken_from_it(tmp_path: Path) -> None:
    a_proc(tmp_path, 5, cmdline=b"somebody else\0")
    process = ProcessReading(5, "GPU-1", 1.0, 50.0, user="bob", command="train --password=x",
                             started_at=12.0, start_ticks=34, state="paused")
    [gpu_task] = TaskTable(BOOT, tmp_path).describe([process])
    assert (gpu_task.task.user, gpu_task.task.start_ticks, gpu_task.state) == ("bob", 34, "paused")
    assert gpu_task.task.command == f"train --password={HIDDEN}"


def test_mps_server_is_told_from_its_clients(tmp_path: Path) -> None:
    a_proc(tmp_path, 5, cmdline=b"/usr/bin/nvidia-cuda-mps-server\0")
    a_proc(tmp_path, 6, cmdline=b"python\0nvidia-cuda-mps-server\0")
    server, client = TaskTable(BOOT, tmp_path).describe([
        ProcessReading(5, "GPU-1", 1.0, None), ProcessReading(6, "GPU-1", 1.0, None, "mps_client")
    ])
    assert (server.task.kind, client.task.kind) == ("mps_server", "mps_client")


def test_hostile_command_lines(tmp_path: Path) -> None:
    a_proc(tmp_path, 5, cmdline=b"\xff\xfe\0" + b"x" * 100_000)
    a_proc(tmp_path, 6, cmdline=b"")
    long, none = TaskTable(BOOT, tmp_path).describe(
        [ProcessReading(pid, "GPU-1", 1.0, None) for pid in (5, 6)])
    assert long.task.command is not None
    assert len(long.task.command) == COMMAND_MAX
    assert none.task.command is None


@pytest.mark.parametrize(("cgroup", "manager"), [
    (f"/system.slice/docker-{ID}.scope", "container 3fa9cccccccc"),
    (f"/docker/{ID}", "container 3fa9cccccccc"),
    (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b2c3d4e_0001_0002_0003_"
     f"0123456789ab.slice/cri-containerd-{ID}.scope", "pod 1b2c3d4e-0001-0002-0003-0123456789ab"),
    (f"/kubepods/burstable/pod1b2c3d4e-0001-0002-0003-0123456789ab/{ID}",
     "pod 1b2c3d4e-0001-0002-0003-0123456789ab"),
    ("/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "slurm job 4711"),
    ("/system.slice/n1_slurmstepd.scope/job_12/step_batch/user/task_0", "slurm job 12"),
    ("/slurm/uid_1000/job_99/step_0/task_0", "slurm job 99"),
    ("/system.slice/my_training.service", "unit my_training.service"),
    ("/user.slice/user-1000.slice/session-3.scope", None),
    ("/user.slice/user-1000.slice/user@1000.service/app.slice/app.scope", None),
    ("/", None),
])
def test_managers(cgroup: str, manager: str | None) -> None:
    assert manager_of(cgroup) == manager


def test_boot_id_is_of_this_boot() -> None:
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def env_of(**variables: str) -> bytes:
    return b"".join(f"{name}={value}\0".encode(errors="surrogateescape")
                    for name, value in variables.items())


def start_child(*words: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a real child that waits, with this environment and no more."""
    return subprocess.Popen([sys.executable, "-c", "print(flush=True); input()", *words],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)


def test_real_ranks_of_a_launch_and_a_real_kernel() -> None:
    port, secret = random.randrange(1_024, 65_536), f"s3cr3t{random.getrandbits(64):x}"
    rank = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "16",
            "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x", "AWS_SECRET_ACCESS_KEY": secret}
    book = f"/home/alice/{port}.ipynb"
    children = [start_child(env=rank | {"RANK": "8"}), start_child(env=rank | {"RANK": "9"}),
                start_child("ipykernel_launcher", "-f", f"/run/kernel-{port}.json",
                            env={"JPY_SESSION_NAME": book})]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        tasks = [gpu_task.task for gpu_task in TaskTable(BOOT).describe(
            [ProcessReading(child.pid, "GPU-1", None, None) for child in children])]
    finally:
        for child in children:
            child.communicate(b"\n")
    assert [task.rank for task in tasks] == [8, 9, None]
    assert [task.launch for task in tasks] == [f"torchrun 10.0.0.1:{port}/x"] * 2 + [None]
    assert [task.notebook for task in tasks] == [None, None, book]
    assert {(task.uid, task.parent_pid) for task in tasks} == {(os.getuid(), os.getpid())}
    assert secret not in repr(tasks)


def test_a_pod_by_its_cgroup_its_environment_and_its_names(tmp_path: Path) -> None:
    uid = "1b2c3d4e-0001-0002-0003-0123456789ab"
    a_proc(tmp_path, 5, cmdline=b"python\0", environ=env_of(POD_NAMESPACE="team", HOME="/root"),
           cgroup=f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/"
                  f"cri-containerd-{ID}.scope\n".encode())
    names = [WorkloadNames("trainer", "bert-0")]
    table = TaskTable(BOOT, tmp_path, WorkloadNameCache(lambda place, uid: names[0]))
    [gpu_task] = table.describe([ProcessReading(5, "GPU-1", None, None)])
    task = gpu_task.task
    assert (task.pod, task.namespace, task.container, task.container_name) == (
        "bert-0", "team", ID, "trainer")
    assert task.manager == task.job_id == f"pod {uid}"


def test_names_that_come_later_are_taken_over(tmp_path: Path) -> None:
    a_proc(tmp_path, 5, cmdline=b"python\0", cgroup=f"0::/docker/{ID}\n".encode())
    names, clock = [WorkloadNames()], [0.0]
    table = TaskTable(BOOT, tmp_path,
                      WorkloadNameCache(lambda place, uid: names[0], lambda: clock[0]))
    on_gpu = [ProcessReading(5, "GPU-1", None, None)]
    assert table.describe(on_gpu)[0].task.container_name is None
    names[0], clock[0] = WorkloadNames("trainer"), 6.0
    for _ in range(2):
        assert table.describe(on_gpu)[0].task.container_name == "trainer"


def test_one_bad_process_loses_no_other(tmp_path: Path) -> None:
    """Files of a process may hold anything, or refuse to be read."""
    evil = [b"\xff" * 9_000, b"\0" * 9_000, b"", b"\xed\xa0\x80=\xff\0RANK=\xff\xfe\0",
            b"::::\n\xff", b"0::/docker/" + b"\xff" * 5_000, b"RANK=1" + b"9" * 2_000_000]
    for pid in range(10, 60):
        cmdline, environ, cgroup, status = random.choices(evil, k=4)
        a_proc(tmp_path, pid, cmdline=cmdline, environ=environ, cgroup=cgroup, status=status)
    a_proc(tmp_path, 9, status=b"Uid:\tnobody\n")
    for pid in range(60, 64):
        a_proc(tmp_path, pid)
        for name in ("cmdline", "environ", "cgroup", "status"):
            (tmp_path / str(pid) / name).mkdir()
    good = f"python {random.random()}"
    a_proc(tmp_path, 5, cmdline=good.replace(" ", "\0").encode())
    pids = [*range(9, 64), 5]
    gpu_tasks = TaskTable(BOOT, tmp_path).describe([ProcessReading(pid, "GPU-1", 1.0, None)
                                                    for pid in pids])
    assert [gpu_task.task.pid for gpu_task in gpu_tasks] == pids
    assert gpu_tasks[-1].task.command == good
    frame = sample(SamplerState(), Reading(1.0, 1.0, (), (), ()), gpu_tasks, 1, 0.0)
    for message in frame.messages:
        decode_from_agent(encode(message))
    decoder = msgspec.msgpack.Decoder(Task)
    assert [decoder.decode(msgspec.msgpack.encode(gpu_task.task)) for gpu_task in gpu_tasks] == [
        gpu_task.task for gpu_task in gpu_tasks]


def test_a_process_that_has_no_account(tmp_path: Path) -> None:
    uid = random.randrange(3_000_000_000, 4_000_000_000)
    a_proc(tmp_path, 5, cmdline=b"python\0", status=f"Name:\tx\nUid:\t{uid}\t0\t0\t0\n".encode())
    [gpu_task] = TaskTable(BOOT, tmp_path).describe([ProcessReading(5, "GPU-1", None, None)])
    assert (gpu_task.task.user, gpu_task.task.uid) == (f"uid {uid}", uid)


def test_clients_of_mps_are_known_by_its_daemon(tmp_path: Path) -> None:
    """Pitfall 16: the driver lists the server alone, or clients as if they were none."""
    server, listed, unlisted, other, dead = random.sample(range(1_000, 9_000), 5)
    a_proc(tmp_path, server, cmdline=b"/usr/bin/nvidia-cuda-mps-server\0")
    for pid in (listed, unlisted, other):
        a_proc(tmp_path, pid, cmdline=b"python\0")
    by_server = {server: (listed, unlisted, dead), 1: (other,)}
    table = TaskTable(BOOT, tmp_path, clients=lambda: by_server)
    on_gpu = [ProcessReading(pid, "GPU-1", 1.0, None) for pid in (server, listed, other)]
    for _ in range(2):
        by_pid = {row.task.pid: row for row in table.describe(on_gpu)}
        assert {pid: row.task.kind for pid, row in by_pid.items()} == {
            server: "mps_server", listed: "mps_client", unlisted: "mps_client", other: "compute"}
        assert (by_pid[unlisted].gpu_uuid, by_pid[unlisted].mem_used_bytes) == ("GPU-1", None)
    on_two = [*on_gpu, ProcessReading(server, "GPU-2", 1.0, None)]
    assert unlisted not in {row.task.pid for row in table.describe(on_two)}, "on which of the two"


def test_the_daemon_is_asked_beside_the_readings() -> None:
    """A control program that hangs holds up no reading."""
    stuck = threading.Event()

    class Hung(LocalMpsDaemons):
        def clients(self) -> dict[int, tuple[int, ...]]:
            stuck.wait(60)
            return {5: (6,)}

    clients = MpsClientCache(Hung(), every_s=0.0)
    began = time.monotonic()
    assert [clients() for _ in range(50)] == [{}] * 50
    assert time.monotonic() - began < 5
    stuck.set()
    until = time.monotonic() + 10
    while clients() != {5: (6,)} and time.monotonic() < until:
        pass
    assert clients() == {5: (6,)}


def test_a_namespace_of_our_own_is_said(tmp_path: Path) -> None:
    """Pitfall 8."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").touch()
    assert "hostPID" in namespace_trouble(tmp_path)
    if os.stat("/proc/self/ns/pid").st_ino == HOST_PID_NAMESPACE:
        assert namespace_trouble() == ""


def test_a_proc_that_hides_others_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "in_host_namespace", lambda proc: True)
    assert "hidepid" in namespace_trouble(tmp_path)
    a_proc(tmp_path, 1)
    assert namespace_trouble(tmp_path) == ""


def test_a_suspended_task_is_listed_once_and_by_its_start(tmp_path: Path) -> None:
    """The driver does not list it: a process that took its number over is not it, and one that the
    driver lists again is not listed twice."""
    a_proc(tmp_path, 40, ticks=777)
    a_proc(tmp_path, 41, stat="Z", ticks=5)
    uses = [SuspendedUse(40, 777, "GPU-1"), SuspendedUse(40, 776, "GPU-2"),
            SuspendedUse(41, 5, "GPU-1"), SuspendedUse(42, 5, "GPU-1")]
    table = TaskTable(BOOT, proc=tmp_path, suspended=lambda: uses)
    [gpu_task] = table.describe([])
    assert (gpu_task.gpu_uuid, gpu_task.mem_used_bytes, gpu_task.is_suspended) == (
        "GPU-1", 0.0, True)
    assert gpu_task.task.start_ticks == 777
    [second] = table.describe([ProcessReading(40, "GPU-1", 12.0, None)])
    assert (second.task.id, second.mem_used_bytes, second.is_suspended) == (
        gpu_task.task.id, 12.0, False)
