"""Hub and agent as services of a real systemd, installed by gpudeck itself, and then used."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.booted import BootedMachine, a_booted_machine
from tests.fakes.hub import wait_for
from tests.fakes.nvml import FakeNvml
from tests.integration.hubs import free_port

FAKE = "/opt/fake"
AS_HUB = "runuser -u gpudeck-hub -- gpudeck"
HUB_DATA = "--data /var/lib/gpudeck-hub"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedMachine]:
    with a_booted_machine(tmp_path_factory.mktemp("booted")) as made:
        yield made


class Site:
    """A hub and an agent of one machine, and alice, who has a terminal and a task on GPU 0."""

    def __init__(self, machine: BootedMachine, folder: Path) -> None:
        self.machine = machine
        self.url = f"http://127.0.0.1:{free_port()}"
        machine.run(f"gpudeck service install hub --bind {self.url.removeprefix('http://')}")
        made = json.loads(machine.run(
            f"{AS_HUB} token create api test --role operator --json {HUB_DATA}"))
        self._secret = made["secret"]
        machine.run("useradd --create-home alice; install -d -o alice -m 755 /opt/alice")
        machine.start("runuser", "-u", "alice", "--", "script", "-qfc", "exec sleep 6000",
                      "/opt/alice/screen")
        self.pid = int(wait_for(lambda: machine.try_to(
            "pgrep -u alice -x sleep").stdout.strip()))
        nvml = FakeNvml(folder, gpus=1)
        nvml.gpus[0].process(self.pid, 2**30)
        nvml.save()
        machine.run(f"mkdir {FAKE}; echo 'own_pid_namespace = true' > /etc/gpudeck/ceiling.toml")
        shutil.copy(nvml.library, machine.path(FAKE))
        shutil.copy(nvml.path, machine.path(f"{FAKE}/nvml.txt"))
        drop_ins = "/etc/systemd/system/gpudeck-agent.service.d"
        machine.run(f"mkdir {drop_ins}; printf '[Service]\nEnvironment=LD_LIBRARY_PATH={FAKE} "
                    f"FAKE_NVML={FAKE}/nvml.txt\n' > {drop_ins}/fake.conf")
        token = json.loads(machine.run(f"{AS_HUB} token create agent --json {HUB_DATA}"))["token"]
        machine.run(f"echo {token} | gpudeck service install agent --hub {self.url} "
                    "--token-file -")

    def gpudeck(self, words: str) -> str:
        return self.machine.run(
            f"export GPUDECK_TOKEN={self._secret}; gpudeck {words} --hub {self.url}")

    def task(self) -> str:
        """Hers, once the hub has it."""
        def found() -> Any:
            tasks = json.loads(self.gpudeck("tasks --json"))["items"]
            return next((each["id"] for each in tasks if each["pid"] == self.pid), None)
        return str(wait_for(found))

    def notify(self, text: str) -> str:
        """What came of it."""
        self.machine.run("rm -f /tmp/plan")
        self.gpudeck(f"notify {self.task()} --text '{text}' --plan-out /tmp/plan")
        done = self.machine.try_to(
            f"export GPUDECK_TOKEN={self._secret}; gpudeck notify --plan /tmp/plan --reason test "
            f"--yes --hub {self.url}")
        return done.stdout + done.stderr

    def screen(self) -> str:
        return self.machine.path("/opt/alice/screen").read_text()


@pytest.fixture(scope="module")
def site(machine: BootedMachine, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(machine, tmp_path_factory.mktemp("fake"))


def test_an_owner_is_told_at_her_terminal(site: Site) -> None:
    assert "told alice at 1 terminal" in site.notify("the node is needed at six")
    assert "the node is needed at six" in site.screen()


def test_without_the_grant_it_says_that_it_may_not(site: Site) -> None:
    site.machine.run("gpudeck service install agent --grant act")
    said = site.notify("nobody reads this")
    assert "alice has 1 terminal open on this node, but the agent may not write there" in said
    assert "nobody reads this" not in site.screen()
    site.machine.run("gpudeck service install agent")
    assert "told alice" in site.notify("again")


def test_the_folder_of_mps_is_seen_from_inside_the_unit(site: Site) -> None:
    """Also such as is made while the agent runs."""
    site.machine.run("rm -rf /tmp/nvidia-mps; mkdir -m 755 /tmp/nvidia-mps; "
                     "touch /tmp/nvidia-mps/control")
    pid = site.machine.run("systemctl show --value -p MainPID gpudeck-agent").strip()
    assert site.machine.run(f"ls /proc/{pid}/root/tmp/nvidia-mps") == "control\n"


def test_no_code_that_makes_an_admin_is_in_the_journal(site: Site) -> None:
    shown = site.machine.run("journalctl --no-pager -u gpudeck-hub")
    assert "As gpudeck-hub, run: gpudeck link --data /var/lib/gpudeck-hub" in shown
    assert "code=" not in shown
    assert "/sign-in?code=" in site.machine.run(f"{AS_HUB} link {HUB_DATA}")


@pytest.mark.parametrize("unit", ["gpudeck-hub", "gpudeck-agent"])
def test_one_that_hangs_is_started_again(site: Site, unit: str) -> None:
    machine = site.machine
    machine.run(f"mkdir -p /run/systemd/system/{unit}.service.d; printf '[Service]\n"
                f"WatchdogSec=8\n' > /run/systemd/system/{unit}.service.d/watched.conf; "
                f"systemctl daemon-reload; systemctl restart {unit}")
    asked = f"systemctl show --value -p MainPID {unit}"
    pid = machine.run(asked).strip()
    machine.run(f"kill -STOP {pid}")
    wait_for(lambda: machine.run(asked).strip() not in (pid, "0")
             and machine.run(f"systemctl is-active {unit} || true").strip() == "active")
    assert "watchdog" in machine.run(f"journalctl --no-pager -u {unit}").lower()


def test_one_that_cannot_start_is_not_called_started(machine: BootedMachine) -> None:
    machine.run("mkdir -p /etc/gpudeck; echo nonsense > /etc/gpudeck/other.pem; cd /etc/gpudeck; "
                "mv agent.toml kept.toml 2>/dev/null || true")
    try:
        done = machine.try_to("cd /etc/gpudeck; gpudeck service install agent "
                              "--hub https://127.0.0.1:1 --ca-file other.pem")
        assert done.returncode == 3, done.stdout
        assert "gpudeck-agent does not start" in done.stderr
        assert "the CA file /etc/gpudeck/other.pem" in done.stderr, "absolute, and why"
    finally:
        machine.run("cd /etc/gpudeck; systemctl stop gpudeck-agent; rm -f other.pem agent.toml; "
                    "mv kept.toml agent.toml 2>/dev/null && systemctl start gpudeck-agent || true")


@pytest.mark.parametrize(("words", "says"), [
    ("agent --hub https://h:1 --ca-file /root/ca.pem", "a folder that services cannot see"),
    ("agent --hub https://h:1 --ca-file ca.pem", "there is no /etc/gpudeck/ca.pem"),
    ("hub --tls-cert /etc/gpudeck/secret.key", "the user gpudeck-hub, as which the service runs")])
def test_files_that_the_service_cannot_read_are_refused(
    machine: BootedMachine, words: str, says: str
) -> None:
    machine.run("touch /root/ca.pem; mkdir -p /etc/gpudeck; install -m 600 /dev/null "
                "/etc/gpudeck/secret.key")
    done = machine.try_to(f"cd /etc/gpudeck; gpudeck service install {words}")
    assert done.returncode == 2, done.stdout
    assert says in done.stderr


def test_doctor_and_audit_look_at_the_service(site: Site) -> None:
    site.notify("for the record")
    report = json.loads(site.machine.try_to("gpudeck doctor --json").stdout)
    found = {each["key"]: each for each in report["checks"]}
    assert "/var/lib/gpudeck-agent" in found["data"]["says"]
    assert "runs as process" in found["agent"]["says"]
    assert found["hub"]["says"].startswith(site.url)
    assert (found["hub_key"]["verdict"], found["data"]["verdict"]) == ("ok", "ok"), found
    shown = site.machine.run("gpudeck audit tail --data /var/lib/gpudeck-agent")
    assert "notify" in shown
    # On this machine the hub's comes first, as documented.
    assert site.machine.run("gpudeck audit tail") == site.machine.run(
        "gpudeck audit tail --data /var/lib/gpudeck-hub")


def test_doctor_of_somebody_else_does_not_call_it_missing(site: Site) -> None:
    report = json.loads(site.machine.try_to(
        "runuser -u alice -- gpudeck doctor --json").stdout)
    found = {each["key"]: each for each in report["checks"]}
    for key in ("agent", "data", "hub_key"):
        assert found[key]["verdict"] == "not checked", found[key]
        assert "run this as root" in found[key]["says"]
    done = site.machine.try_to("runuser -u alice -- gpudeck audit tail")
    assert done.returncode == 3
    assert "/var/lib/gpudeck-agent is closed to this user; run this as root" in done.stderr


def test_a_release_says_that_it_released(site: Site) -> None:
    assert "held: " in site.machine.run("gpudeck hold --reason maintenance")
    assert site.machine.run("gpudeck release").startswith("released: no hold file is left here")
    assert site.machine.run("gpudeck release").startswith("there is no hold file here")
