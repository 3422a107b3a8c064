"""`gpudeck run` of a user whose own systemd runs, on a machine whose GPUs a service leases: the
scope of a command, and what is left of a detached run after a log-out."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.booted import BootedMachine, a_booted_machine
from tests.fakes.hub import wait_for
from tests.fakes.nvml import FakeNvml
from tests.integration.test_service_used import install_gpus

GPUDECK = "/opt/gpudeck/bin/gpudeck"
KILLS = "[Login]\nKillUserProcesses=yes\n"
ESCAPES = "env -i setsid sleep 4321 > /dev/null 2>&1 & exec sleep 4322"


class Lab:
    """A machine with two free GPUs and with alice, whose systemd lingers."""

    def __init__(self, machine: BootedMachine, folder: Path) -> None:
        self.machine = machine
        machine.run("useradd --create-home alice; mkdir -p /etc/systemd/logind.conf.d; "
                    f"printf {shlex.quote(KILLS)} > /etc/systemd/logind.conf.d/kills.conf; "
                    "loginctl enable-linger alice")
        self.runtime = f"/run/user/{machine.run('id -u alice').strip()}"
        wait_for(lambda: machine.try_to(f"test -S {self.runtime}/bus").returncode == 0)
        nvml = FakeNvml(folder, gpus=2)
        for gpu in nvml.gpus:
            gpu.update(util=0, mem_used=0)
        nvml.save()
        install_gpus(machine, nvml)
        machine.run("gpudeck service install agent --alone")
        wait_for(lambda: machine.try_to("gpudeck pool").stdout.count("free") > 1)

    def words(self, script: str) -> list[str]:
        return ["runuser", "-u", "alice", "--", "env", f"XDG_RUNTIME_DIR={self.runtime}",
                "HOME=/home/alice", "sh", "-euc", f"cd; {script}"]

    def alice(self, script: str) -> "subprocess.CompletedProcess[str]":
        return self.machine.try_to(shlex.join(self.words(script)))

    def leases(self) -> list[dict[str, Any]]:
        held: list[dict[str, Any]] = json.loads(self.machine.run("gpudeck pool --json"))["held"]
        return held

    def scopes(self) -> str:
        return self.alice("systemctl --user list-units --plain --no-legend 'gpudeck-*.scope'"
                          ).stdout

    def pids(self, line: str) -> str:
        return self.machine.try_to(f"pgrep -u alice -f {shlex.quote(line)}").stdout.strip()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with a_booted_machine(tmp_path_factory.mktemp("booted"), is_unified=True) as machine:
        yield Lab(machine, tmp_path_factory.mktemp("fake"))


def test_what_cleared_its_environment_and_left_everybody_keeps_the_lease(lab: Lab) -> None:
    """The service may not read environments of others; the kernel shows it the scope."""
    lab.machine.start(*lab.words(f"gpudeck run -- sh -c {shlex.quote(ESCAPES)}"))
    wait_for(lambda: lab.pids("^sleep 4321"))
    [lease] = lab.leases()
    scope = f"gpudeck-{lease['lease_id']}.scope"
    assert scope in lab.scopes()
    lab.machine.run("kill -KILL $(pgrep -u alice -f 'gpudeck run') $(pgrep -xf 'sleep 4322')")
    wait_for(lambda: not lab.pids("gpudeck run"))
    lab.machine.run("sleep 4")  # the agent looks each second
    assert [held["lease_id"] for held in lab.leases()] == [lease["lease_id"]]
    lab.machine.run(f"kill -KILL {lab.pids('^sleep 4321')}")
    wait_for(lambda: not lab.leases())
    wait_for(lambda: scope not in lab.scopes())


def test_memory_is_limited_in_the_scope_or_said_to_be_counted(lab: Lab) -> None:
    run = lab.alice("gpudeck run --ram 512M -- sh -c 'group=$(sed -n s/^0:://p /proc/self/cgroup); "
                    "echo $group; cat /sys/fs/cgroup$group/memory.max || true'")
    assert run.returncode == 0, run.stderr
    group, *limit = run.stdout.split()
    assert group.rpartition("/")[2].startswith("gpudeck-")
    assert limit in ([], [str(512 * 2**20)])
    assert ("nothing limits what runs here" in run.stderr) is (not limit), run.stderr


def test_a_detached_run_outlives_a_log_out_that_ends_everything_else(lab: Lab) -> None:
    line = (f"{GPUDECK} run --detach -- sh -c 'sleep 6; exit 7'; "
            "nohup setsid sleep 4323 > /dev/null 2>&1 &")
    lab.machine.run("systemctl restart systemd-logind")
    login = lab.machine.try_to(f"su -l alice -c {shlex.quote(line)}")
    assert "it continues when you log out" in login.stdout, login.stdout + login.stderr
    assert "gpudeck-run-1-" in lab.scopes()
    wait_for(lambda: not lab.pids("^sleep 4323"))  # the log-out is over

    def part() -> dict[str, Any]:
        [run] = json.loads(lab.alice(f"{GPUDECK} runs --json").stdout)["items"]
        return dict(run["parts"][0])

    wait_for(lambda: part()["state"] == "ended")
    assert part()["status"] == 7
    wait_for(lambda: not lab.leases())


def test_a_newcomer_queues_fifty_runs_and_goes_home(lab: Lab) -> None:
    """Two commands of docs/workstation.md: no hub, no file to write, nothing to ask root for."""
    script = 'test -n "$CUDA_VISIBLE_DEVICES" && echo "$GPUDECK_ARRAY_INDEX" >> done.txt'
    line = f"{GPUDECK} run --detach --array 0-49%4 -- sh -c {shlex.quote(script)}"
    login = lab.machine.try_to(f"su -l alice -c {shlex.quote(line)}")
    assert "gpudeck runs" in login.stdout, login.stdout + login.stderr

    def runs() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(lab.alice(f"{GPUDECK} runs --json").stdout)[
            "items"]
        return items

    wait_for(lambda: {part["state"] for part in runs()[-1]["parts"]} == {"ended"}, 240)
    assert [part["status"] for part in runs()[-1]["parts"]] == [0] * 50
    assert sorted(map(int, lab.alice("cat done.txt").stdout.split())) == [*range(50)]
    wait_for(lambda: not lab.leases())
    assert lab.alice("rm done.txt").returncode == 0
