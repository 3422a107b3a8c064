"""Hub and agent as services of a systemd whose control groups are of version 2 alone, as newer
distributions have them: what it enforces, and who manages a process there."""

import json
import random
import re
from collections.abc import Iterator
from uuid import UUID

import pytest

from gpudeck.contract.actions import YOUNGEST_S
from gpudeck.errors import ExitCode
from tests.booted import a_booted_machine
from tests.fakes.hub import wait_for
from tests.integration.test_service_used import FAKE, Site, made_site

ROOT = "/sys/fs/cgroup"
ID, UID = f"{random.getrandbits(256):064x}", str(UUID(int=random.getrandbits(128)))
POD = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
# Groups as Docker, containerd and Slurm make them, and what the refusal names.
MANAGERS = {
    f"/system.slice/docker-{ID}.scope": f"container {ID[:12]}",
    f"{POD}/cri-containerd-{ID}.scope": f"pod {UID}",
    "/system.slice/slurmstepd.scope/job_12/step_0/user/task_0": "slurm job 12",
}
CAP_KILL = 5
SESSION = "/user.slice/user-1000.slice/session-7.scope"  # of a login, which manages nothing


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with a_booted_machine(tmp_path_factory.mktemp("booted"), is_unified=True) as machine:
        yield made_site(machine, tmp_path_factory.mktemp("fake"))


@pytest.fixture
def task(site: Site, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A process of alice in the group that is the parameter, with memory of the GPU."""
    machine, group = site.machine, f"{ROOT}{request.param}"
    line = f"sleep {random.randrange(10**6, 10**7)}"
    machine.start("sh", "-c", f"mkdir -p {group}; echo $$ > {group}/cgroup.procs; "
                  f"exec setpriv --reuid alice --regid alice --clear-groups {line}")
    yield from on_gpu(site, int(wait_for(
        lambda: machine.try_to(f"pgrep -xf '{line}'").stdout.strip())))


def on_gpu(site: Site, pid: int) -> Iterator[Site]:
    machine = site.machine
    ticks = machine.run(f"cut -d ' ' -f 22 /proc/{pid}/stat").strip()
    machine.run(f"echo 'process 0 compute {pid} {2**30} started={ticks}' >> {FAKE}/nvml.txt")
    try:
        yield Site(machine, site.url, site.secret, pid)
    finally:
        machine.run(f"sed -i '/compute {pid} /d' {FAKE}/nvml.txt; kill -KILL {pid} || true")


def assert_refused(task: Site, verb: str, sentence: str) -> None:
    attempt = task.machine.try_to(
        f"export GPUDECK_TOKEN={task.secret}; rm -f /tmp/plan; "
        f"gpudeck {verb} {task.task()} --plan-out /tmp/plan --hub {task.url}")
    output = attempt.stdout + attempt.stderr
    assert attempt.returncode == ExitCode.REFUSED, output
    assert sentence in output
    assert task.machine.try_to(f"kill -0 {task.pid}").returncode == 0


def test_this_machine_has_version_2_alone(site: Site) -> None:
    machine = site.machine
    assert machine.run("stat -f -c %T /sys/fs/cgroup") == "cgroup2fs\n"
    for unit in ("gpudeck-hub", "gpudeck-agent"):
        assert machine.run(f"cat /proc/{site.main_pid(unit)}/cgroup").splitlines()[-1] == (
            f"0::/system.slice/{unit}.service")
    report = json.loads(machine.try_to("gpudeck doctor --json").stdout)
    [check] = [check for check in report["checks"] if check["key"] == "cgroups"]
    assert (check["verdict"], check["says"]) == ("ok", "version 2")


def test_an_owner_is_told_while_other_devices_are_closed(site: Site) -> None:
    """The kernel's filter of devices is a program of the group in version 2; in it, a terminal can
    be written to, and the kernel's log, which root reads elsewhere, cannot be opened."""
    assert "told alice at 1 terminal" in site.notify("the node is needed")
    machine, command = site.machine, ": < /tmp/kmsg"
    group = f"{ROOT}/system.slice/gpudeck-agent.service"
    machine.run(f"mknod -m 666 /tmp/kmsg c 1 11; {command}")
    attempt = machine.try_to(f"echo $$ > {group}/cgroup.procs; {command}")
    assert attempt.returncode != 0
    assert "Operation not permitted" in attempt.stderr


def test_neither_dumps_its_memory_or_gains_a_privilege(site: Site) -> None:
    machine = site.machine
    for unit, capabilities in (("gpudeck-hub", 0), ("gpudeck-agent", 1 << CAP_KILL)):
        pid = site.main_pid(unit)
        assert "Max core file size        0 " in machine.run(f"cat /proc/{pid}/limits")
        status = dict(re.findall(r"^(\w+):\t(\S+)$", machine.run(f"cat /proc/{pid}/status"), re.M))
        assert status["NoNewPrivs"] == "1"
        assert [int(status[kind], 16) for kind in ("CapEff", "CapBnd")] == [capabilities] * 2


@pytest.mark.parametrize(("task", "manager"), MANAGERS.items(), indirect=["task"])
def test_what_a_scheduler_or_a_runtime_started_is_refused_in_words(task: Site, manager: str
                                                                   ) -> None:
    for verb in ("pause", "end"):
        assert_refused(task, verb, f"it belongs to {manager}")


def test_a_unit_of_this_systemd_is_refused_in_words(site: Site) -> None:
    machine = site.machine
    machine.run("systemd-run --quiet --unit train -p User=alice sleep 6001")
    pid = int(site.main_pid("train"))
    for task in on_gpu(site, pid):
        assert_refused(task, "end", "it belongs to unit train.service")


@pytest.mark.parametrize("task", [SESSION], indirect=True)
def test_a_frozen_group_is_refused_until_it_is_thawed(task: Site) -> None:
    machine, freeze = task.machine, f"{ROOT}{SESSION}/cgroup.freeze"
    wait_for(lambda: int(machine.run(f"ps -o etimes= -p {task.pid}")) > YOUNGEST_S)
    machine.run(f"echo 1 > {freeze}")
    wait_for(lambda: "frozen 1" in machine.run(f"cat {ROOT}{SESSION}/cgroup.events"))
    assert_refused(task, "end", f"process {task.pid} is frozen with its cgroup")
    machine.run(f"echo 0 > {freeze}")
    output = task.act("end", "--grace 5")
    assert machine.try_to(f"kill -0 {task.pid}").returncode != 0, output


def test_when_it_is_uninstalled_no_group_is_left(site: Site) -> None:
    machine = site.machine
    machine.run("gpudeck service uninstall agent --purge; gpudeck service uninstall hub --purge")
    assert machine.run(f"find {ROOT} -name '*gpudeck*'") == ""
