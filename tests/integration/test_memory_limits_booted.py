"""GPU memory of a share, limited by the driver for the scope that a user's own systemd makes: by
the installed service, over its restart, for whom it is refused, and until gpudeck is removed."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from agent.backends.nvml.limits import DENIED
from tests.booted import a_booted_machine
from tests.fakes.hub import wait_for
from tests.integration.test_runs_booted import Lab
from tests.integration.test_service_used import FAKE

SET, GIB = "nvmlDeviceSetMemoryLimits_v1", 2**30
FAKE_ENV = f"LD_LIBRARY_PATH={FAKE} FAKE_NVML={FAKE}/nvml.txt"


class LimitedLab(Lab):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        drop_in = "/etc/systemd/system/gpudeck-agent.service.d/fake-writes.conf"
        self.machine.run(
            f"chmod -R a+rwX {FAKE}; printf '[Service]\\nReadWritePaths={FAKE}\\n' > {drop_in}; "
            "mkdir -pm 777 /tmp/vgpulock; echo 'memory_limits = true' >> /etc/gpudeck/agent.toml; "
            f"echo 'gpu 0 memory_limits 1\ngpu 1 memory_limits 1' >> {FAKE}/nvml.txt")
        self.restart()

    def restart(self) -> None:
        self.machine.run("systemctl daemon-reload; systemctl restart gpudeck-agent")
        wait_for(lambda: "free" in self.machine.try_to("gpudeck pool").stdout)

    def share(self, seconds: int, size: str) -> None:
        """Start a command of alice on a share that HAMi-core would hold."""
        self.machine.start(*self.words(
            "export GPUDECK_HAMI_LIBRARY=$(echo /lib/*/libm.so.6); gpudeck run --share 30 "
            f"--mem {size} --ids index -- sleep {seconds} 2> ~/notices-{seconds}"))
        wait_for(lambda: self.pids(f"^sleep {seconds}"))

    def end(self, seconds: int) -> None:
        self.machine.run(f"kill -KILL {self.pids(f'^sleep {seconds}')}")
        wait_for(lambda: not self.leases())

    def notices(self, seconds: int) -> str:
        return self.machine.run(f"cat /home/alice/notices-{seconds}")

    def limits(self) -> list[dict[str, Any]]:
        answer = self.machine.run(f"{FAKE_ENV} gpudeck gpu show --json")
        limits: list[dict[str, Any]] = json.loads(answer)["items"][0]["memory"]
        return limits

    def at_driver(self) -> dict[str, int]:
        text = self.machine.try_to(f"cat {FAKE}/nvml.txt.set").stdout
        return {group: int(hard) for group, hard in re.findall(
            r"limit_of_/sys/fs/cgroup(\S+) 0 (\d+)$", text, re.MULTILINE)}

    def setter_calls(self) -> int:
        return self.machine.run(f"cat {FAKE}/nvml.txt.calls").count(SET)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedLab]:
    with a_booted_machine(tmp_path_factory.mktemp("booted"), is_unified=True) as machine:
        yield LimitedLab(machine, tmp_path_factory.mktemp("fake"))


def test_a_share_is_limited_over_a_restart_of_the_agent_until_it_ends(lab: LimitedLab) -> None:
    lab.share(4401, "2G")
    [(group, most)] = wait_for(lab.at_driver).items()
    [lease] = lab.leases()
    assert group.startswith("/user.slice/user-")
    assert group.endswith(f"/gpudeck-{lease['lease_id']}.scope")
    assert most == 2 * GIB
    wait_for(lambda: "the driver limits the GPU memory" in lab.notices(4401))
    wait_for(lambda: "2 GiB of GPU memory (at most, by the driver)" in lab.machine.run(
        "gpudeck pool"))
    [limit] = lab.limits()
    assert (limit["state"], limit["holder"]) == ("in_force", f"lease {lease['lease_id']}")
    calls = lab.setter_calls()
    lab.restart()
    wait_for(lambda: "(at most, by the driver)" in lab.machine.run("gpudeck pool"))
    assert lab.setter_calls() == calls, "what is there is not set again"
    lab.end(4401)
    wait_for(lambda: not lab.limits())


def test_an_agent_without_the_right_says_so_and_the_next_best_holds(lab: LimitedLab) -> None:
    lab.machine.run(f"echo 'error * {SET} 4' >> {FAKE}/nvml.txt; rm -f {FAKE}/nvml.txt.set")
    lab.share(4402, "2G")
    wait_for(lambda: "does not limit" in lab.notices(4402))
    assert DENIED in lab.notices(4402)
    assert "HAMi-core limits it" in lab.notices(4402)
    assert "by MPS or HAMi-core" in lab.machine.run("gpudeck pool")
    assert lab.at_driver() == {}
    lab.end(4402)
    lab.machine.run(f"sed -i '/^error/d' {FAKE}/nvml.txt")


def test_nothing_is_left_when_the_service_is_removed(lab: LimitedLab) -> None:
    lab.share(4403, "3G")
    wait_for(lab.at_driver)
    report = lab.machine.run(f"export {FAKE_ENV}; gpudeck service uninstall agent")
    assert "cleared 1 memory limit that gpudeck had set" in report
    assert lab.at_driver() == {}
    assert lab.pids("^sleep 4403"), "its task goes on"
