import os
import pwd
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.backends import ProcessReading
from agent.managers import manager_of
from agent.redact import HIDDEN, redact
from agent.tasks import COMMAND_MAX, TaskTable, boot_id, read_stat

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
        [seen] = TaskTable(BOOT).describe([ProcessReading(child.pid, "GPU-1", 12.0, None)])
    finally:
        child.communicate(b"\n")
    task = seen.task
    assert task.id == f"0b1c2d3e-{child.pid}-{task.start_ticks}"
    assert task.user == pwd.getpwuid(os.getuid()).pw_name
    assert task.command is not None
    assert task.command.endswith(f"{word} --token={HIDDEN}")
    assert task.started_at is not None
    assert abs(task.started_at - time.time()) < 5
    assert (seen.state, seen.gpu_uuid, seen.mem_used_bytes) == ("running", "GPU-1", 12.0)


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
    [gone] = table.describe(on_gpu)
    assert gone.task == alive.task
    assert gone.state is None


def test_a_process_of_another_namespace_is_listed_as_unknown(tmp_path: Path) -> None:
    [seen] = TaskTable(BOOT, tmp_path).describe([ProcessReading(5, "GPU-1", None, None)])
    assert (seen.task.user, seen.task.command, seen.task.started_at) == (None, None, None)
    assert seen.mem_used_bytes is None


def test_what_the_backend_knows_is_taken_from_it(tmp_path: Path) -> None:
    a_proc(tmp_path, 5, cmdline=b"somebody else\0")
    told = ProcessReading(5, "GPU-1", 1.0, 50.0, user="bob", command="train --password=x",
                          started_at=12.0, start_ticks=34, state="paused")
    [seen] = TaskTable(BOOT, tmp_path).describe([told])
    assert (seen.task.user, seen.task.start_ticks, seen.state) == ("bob", 34, "paused")
    assert seen.task.command == f"train --password={HIDDEN}"


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


@pytest.mark.parametrize("text", [
    "train --token=<> --epochs 3",
    "train --token <>",
    "train --api-key '<> with blanks'",
    "train --api_key=\"<>\" x",
    "env HF_TOKEN=<> python",
    "AWS_SECRET_ACCESS_KEY=<>",
    "--db-password=<>",
    "curl -H Authorization: Bearer <>",
    "postgres://user:<>@db/x",
    "https://host/x?access_token=<>&y=1",
    '{"password": "<>"}',
    "hf_<>aaaaaaaaaaaaaaaa",
    "sk-proj-<>aaaaaaaa",
    "ghp_<>aaaaaaaaaaaaa",
    "--wandb-api-key=<>,x",
])
def test_secrets_do_not_leave(text: str) -> None:
    secret = f"s3cr3t{random.getrandbits(64):x}"
    redacted = redact(text.replace("<>", secret))
    assert secret not in redacted
    assert HIDDEN in redacted


@pytest.mark.parametrize("text", [
    "python train.py --epochs 3 --lr=1e-4 --tokenizer gpt2 --max-tokens-per-batch 4096",
    "torchrun --nproc_per_node=8 finetune.py --data /data/secretaries.csv",
    "vllm serve --model meta/llama --port 8000",
])
def test_plain_command_lines_stay(text: str) -> None:
    assert redact(text).replace(HIDDEN, "") == text


def test_boot_id_is_of_this_boot() -> None:
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
