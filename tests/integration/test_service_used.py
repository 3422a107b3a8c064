"""Hub and agent as services of a real systemd, installed by gpudeck itself, and then used."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudeck.contract.actions import YOUNGEST_S
from gpudeck.errors import ExitCode
from tests.booted import BootedMachine, a_booted_machine
from tests.fakes.hub import wait_for
from tests.fakes.nvml import FakeNvml
from tests.ports import free_port

FAKE = "/opt/fake"
AS_HUB = "runuser -u gpudeck-hub -- gpudeck"
HUB_DATA = "--data /var/lib/gpudeck-hub"
# `script` would stop together with what it shows, and not see its end.
TERMINAL = """
import os, pty
pid, screen = pty.fork()
if pid == 0:
    os.execvp("sleep", ["sleep", "6000"])
with open("/opt/alice/screen", "wb", 0) as shown:
    while True:
        shown.write(os.read(screen, 4096))
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedMachine]:
    with a_booted_machine(tmp_path_factory.mktemp("booted")) as booted:
        yield booted


def alice_at_a_terminal(machine: BootedMachine) -> int:
    """Return the pid of what runs at her terminal."""
    machine.run("useradd --create-home alice; install -d -o alice -m 755 /opt/alice")
    machine.start("runuser", "-u", "alice", "--", "python3", "-c", TERMINAL)
    return int(wait_for(lambda: machine.try_to("pgrep -u alice -x sleep").stdout.strip()))


def a_gpu_with(machine: BootedMachine, pid: int, folder: Path) -> None:
    """Give the machine a GPU with this process, for the agent that is installed next."""
    nvml = FakeNvml(folder, gpus=1)
    started = machine.run(f"cut -d ' ' -f 22 /proc/{pid}/stat").strip()
    nvml.gpus[0].lines.append(f"process 0 compute {pid} {2**30} started={started}")
    nvml.save()
    install_gpus(machine, nvml)


def install_gpus(machine: BootedMachine, nvml: FakeNvml) -> None:
    machine.run(f"mkdir -p {FAKE} /etc/gpudeck; "
                "echo 'own_pid_namespace = true' > /etc/gpudeck/ceiling.toml")
    shutil.copy(nvml.library, machine.path(FAKE))
    shutil.copy(nvml.path, machine.path(f"{FAKE}/nvml.txt"))
    drop_ins = "/etc/systemd/system/gpudeck-agent.service.d"
    machine.run(f"mkdir -p {drop_ins}; printf '[Service]\nEnvironment=LD_LIBRARY_PATH={FAKE} "
                f"FAKE_NVML={FAKE}/nvml.txt\n' > {drop_ins}/fake.conf")


def made_site(machine: BootedMachine, folder: Path) -> "Site":
    """Install a hub and an agent on a machine, and alice, with a terminal and a task on GPU 0."""
    url = f"http://127.0.0.1:{free_port()}"
    machine.run(f"gpudeck service install hub --bind {url.removeprefix('http://')}")
    secret = json.loads(machine.run(
        f"{AS_HUB} token create api test --role operator --json {HUB_DATA}"))["token"]
    pid = alice_at_a_terminal(machine)
    a_gpu_with(machine, pid, folder)
    token = json.loads(machine.run(f"{AS_HUB} token create agent --json {HUB_DATA}"))["token"]
    machine.run(f"echo {token} | gpudeck service install agent --hub {url} --token-file -")
    return Site(machine, url, secret, pid)


class Site:
    """Requests to a hub with this token, about alice's task on its machine."""

    def __init__(self, machine: BootedMachine, url: str, secret: str, pid: int) -> None:
        self.machine, self.url, self.pid = machine, url, pid
        self.secret = secret

    def gpudeck(self, words: str) -> str:
        return self.machine.run(
            f"export GPUDECK_TOKEN={self.secret}; gpudeck {words} --hub {self.url}")

    def task(self) -> str:
        """Return her task, once the hub has it."""
        def task_id() -> Any:
            tasks = json.loads(self.gpudeck("tasks --json"))["items"]
            return next((task["id"] for task in tasks if task["pid"] == self.pid), None)
        return str(wait_for(task_id))

    def act(self, verb: str, *words: str) -> str:
        """Return what came of an action on her task."""
        self.machine.run("rm -f /tmp/plan")
        self.gpudeck(f"{verb} {self.task()} {' '.join(words)} --plan-out /tmp/plan")
        run = self.machine.try_to(
            f"export GPUDECK_TOKEN={self.secret}; gpudeck {verb} --plan /tmp/plan --reason test "
            f"--yes --hub {self.url}")
        return run.stdout + run.stderr

    def notify(self, text: str) -> str:
        return self.act("notify", f"--text '{text}'")

    def is_live(self) -> bool:
        run = self.machine.try_to(
            f"export GPUDECK_TOKEN={self.secret}; gpudeck status --json --hub {self.url}")
        return run.returncode == 0 and {
            node["state"] for node in json.loads(run.stdout)["nodes"]} == {"live"}

    def main_pid(self, unit: str) -> str:
        return self.machine.run(f"systemctl show --value -p MainPID {unit}").strip()

    def screen(self) -> str:
        return self.machine.path("/opt/alice/screen").read_text()


@pytest.fixture(scope="module")
def site(machine: BootedMachine, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return made_site(machine, tmp_path_factory.mktemp("fake"))


def test_an_owner_is_told_at_her_terminal(site: Site) -> None:
    assert "told alice at 1 terminal" in site.notify("the node is needed at six")
    assert "the node is needed at six" in site.screen()


def test_without_the_grant_it_says_that_it_may_not(site: Site) -> None:
    site.machine.run("gpudeck service install agent --grant act")
    output = site.notify("nobody reads this")
    assert "alice has 1 terminal open on this node, but the agent may not write there" in output
    assert "nobody reads this" not in site.screen()
    site.machine.run("gpudeck service install agent --grant act,terminals")
    assert "told alice" in site.notify("again")


def test_the_folder_of_mps_is_seen_from_inside_the_unit(site: Site) -> None:
    """A folder that is made while the agent runs is seen, too."""
    site.machine.run("rm -rf /tmp/nvidia-mps; mkdir -m 755 /tmp/nvidia-mps; "
                     "touch /tmp/nvidia-mps/control")
    pid = site.main_pid("gpudeck-agent")
    assert site.machine.run(f"ls /proc/{pid}/root/tmp/nvidia-mps") == "control\n"


def test_no_code_that_makes_an_admin_is_in_the_journal(site: Site) -> None:
    log = site.machine.run("journalctl --no-pager -u gpudeck-hub")
    assert "As gpudeck-hub, run: gpudeck link --data /var/lib/gpudeck-hub" in log
    assert "code=" not in log
    assert "/sign-in?code=" in site.machine.run(f"{AS_HUB} link {HUB_DATA}")


@pytest.mark.parametrize("unit", ["gpudeck-hub", "gpudeck-agent"])
def test_one_that_hangs_is_started_again(site: Site, unit: str) -> None:
    machine, folder = site.machine, f"/run/systemd/system/{unit}.service.d"
    machine.run(f"mkdir -p {folder}; printf '[Service]\nWatchdogSec=8\n' > {folder}/watched.conf; "
                f"systemctl daemon-reload; systemctl restart {unit}")
    pid = site.main_pid(unit)
    machine.run(f"kill -STOP {pid}")
    wait_for(lambda: site.main_pid(unit) not in (pid, "0"))
    # Eight seconds are for this test; on a busy machine a service that works could miss them.
    machine.run(f"rm -r {folder}; systemctl daemon-reload; systemctl restart {unit}")
    assert "watchdog" in machine.run(f"journalctl --no-pager -u {unit}").lower()


def test_one_that_cannot_start_is_not_called_started(machine: BootedMachine) -> None:
    machine.run("mkdir -p /etc/gpudeck; echo nonsense > /etc/gpudeck/other.pem; cd /etc/gpudeck; "
                "mv agent.toml kept.toml 2>/dev/null || true")
    try:
        install = machine.try_to("cd /etc/gpudeck; gpudeck service install agent "
                                 "--hub https://127.0.0.1:1 --ca-file other.pem")
        assert install.returncode == 3, install.stdout
        assert "gpudeck-agent does not start" in install.stderr
        assert "the CA file /etc/gpudeck/other.pem" in install.stderr, "absolute, and why"
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
    install = machine.try_to(f"cd /etc/gpudeck; gpudeck service install {words}")
    assert install.returncode == 2, install.stdout
    assert says in install.stderr


def test_doctor_and_audit_look_at_the_service(site: Site) -> None:
    site.notify("for the record")
    report = json.loads(site.machine.try_to("gpudeck doctor --json").stdout)
    checks = {check["key"]: check for check in report["checks"]}
    assert "/var/lib/gpudeck-agent" in checks["data"]["says"]
    assert "runs as process" in checks["agent"]["says"]
    assert checks["hub"]["says"].startswith(site.url)
    assert (checks["hub_key"]["verdict"], checks["data"]["verdict"]) == ("ok", "ok"), checks
    records = site.machine.run("gpudeck audit tail --data /var/lib/gpudeck-agent")
    assert "notify" in records
    # On this machine the hub's comes first, as documented.
    assert site.machine.run("gpudeck audit tail") == site.machine.run(
        "gpudeck audit tail --data /var/lib/gpudeck-hub")


@pytest.mark.parametrize("own", ["", ".local/state/gpudeck/agent"])
def test_doctor_of_somebody_else_does_not_call_it_missing(site: Site, own: str) -> None:
    """Look at the service though a command of hers has made a folder of her own."""
    site.machine.run(f"runuser -u alice -- mkdir -p /home/alice/{own}")
    report = json.loads(site.machine.try_to(
        "runuser -u alice -- gpudeck doctor --json").stdout)
    checks = {check["key"]: check for check in report["checks"]}
    for key in ("agent", "data", "hub_key"):
        assert checks[key]["verdict"] == "not checked", checks[key]
        assert "run this as root" in checks[key]["says"]
    assert checks["hub"]["says"].startswith(site.url)
    # What she cannot look at does not hold.
    assert checks["holds"]["verdict"] == "ok", checks["holds"]
    status = site.machine.try_to("runuser -u alice -- gpudeck status --json")
    assert json.loads(status.stdout)["holds"] == {}
    tail = site.machine.try_to("runuser -u alice -- gpudeck audit tail")
    assert tail.returncode == 3
    assert "/var/lib/gpudeck-agent is closed to this user; run this as root" in tail.stderr


def test_roots_terminal_obeys_what_the_hub_has_stopped(site: Site) -> None:
    """Obey without --data too, and leave the lock of actions to the agent."""
    machine, plan = site.machine, "/root/plan"
    host, task = machine.run("hostname").strip(), site.task()
    at_terminal = (f"export LD_LIBRARY_PATH={FAKE} FAKE_NVML={FAKE}/nvml.txt; rm -f {plan}; "
                   f"gpudeck notify {task} --text hello --plan-out {plan}")
    site.gpudeck(f"hold --node {host} --reason exam")
    attempt = machine.try_to(at_terminal)
    assert "all actions on this node are stopped: the hub, by test: exam" in attempt.stdout
    assert attempt.returncode == ExitCode.REFUSED
    site.gpudeck(f"release --node {host}")
    machine.run("rm -f /var/lib/gpudeck-agent/act.lock; systemctl restart gpudeck-agent")
    wait_for(site.is_live)
    machine.run(f"{at_terminal}; gpudeck notify --plan {plan} --reason exam --yes; rm {plan}")
    assert "told alice" in site.notify("after root"), "its lock is the agent's"
    assert "terminal" in machine.run("gpudeck audit tail --data /var/lib/gpudeck-agent")


def test_who_cannot_look_is_not_told_that_there_is_nothing(site: Site) -> None:
    as_alice = "runuser -u alice -- gpudeck"
    # As an action of hers leaves it.
    site.machine.run("runuser -u alice -- mkdir -p /home/alice/.local/state/gpudeck/agent")
    node = site.machine.try_to(f"{as_alice} node show")
    assert node.returncode == ExitCode.CANNOT_START
    assert "is a service, and what it has set is closed to this user; run this as" in node.stderr
    limits = site.machine.run(f"{as_alice} gpu show")
    assert "closed to this user" in limits
    assert "gpudeck has set no limit" not in limits
    data = "--data /var/lib/gpudeck-agent"
    hold = site.machine.try_to(f"{as_alice} hold {data}")
    assert "is closed to this user, so nothing was stopped; run this as root" in hold.stderr
    shares = site.machine.try_to(f"{as_alice} gpu show {data}")
    assert "run this as root, or as the agent's user" in shares.stderr


def test_a_release_says_that_it_released(site: Site) -> None:
    assert "held: " in site.machine.run("gpudeck hold --reason maintenance")
    assert site.machine.run("gpudeck release").startswith("released: no hold file is left here")
    assert site.machine.run("gpudeck release").startswith("there is no hold file here")


@pytest.mark.parametrize("unit", ["gpudeck-hub", "gpudeck-agent"])
def test_one_that_is_killed_is_back_and_the_node_is_live(site: Site, unit: str) -> None:
    wait_for(site.is_live)
    pid = site.main_pid(unit)
    site.machine.run(f"kill -KILL {pid}")
    wait_for(lambda: site.main_pid(unit) not in (pid, "0"))
    wait_for(site.is_live)
    assert site.task()


def test_a_restored_hub_has_its_node(site: Site) -> None:
    machine, backup = site.machine, "/var/backups/deck"
    machine.run("install -m 640 -g gpudeck-hub /dev/null /etc/gpudeck/passphrase; "
                "echo correct horse battery > /etc/gpudeck/passphrase; "
                f"install -d -o gpudeck-hub -m 700 {backup}")
    keep = "--passphrase-file /etc/gpudeck/passphrase"
    machine.run(f"{AS_HUB} hub backup {backup}/1 {keep} {HUB_DATA}")
    machine.run("systemctl stop gpudeck-hub; rm -r /var/lib/gpudeck-hub; "
                "install -d -o gpudeck-hub -g gpudeck-hub -m 700 /var/lib/gpudeck-hub")
    machine.run(f"{AS_HUB} hub restore {backup}/1 {keep} {HUB_DATA}; systemctl start gpudeck-hub; "
                f"rm -r {backup} /etc/gpudeck/passphrase")
    wait_for(site.is_live)


def test_her_task_is_paused_and_ended(site: Site) -> None:
    state, age = (f"ps -o {what}= -p {site.pid}" for what in ("stat", "etimes"))
    wait_for(lambda: int(site.machine.run(age)) > YOUNGEST_S)
    assert "paused" in site.act("pause").lower()
    assert site.machine.run(state).startswith("T")
    site.act("resume")
    assert site.machine.run(state).startswith("S")
    site.act("end", "--grace 5")
    assert site.machine.try_to(state).stdout == ""


def test_when_it_is_uninstalled_nothing_is_left(site: Site) -> None:
    machine = site.machine
    machine.run("rm -r /etc/systemd/system/gpudeck-agent.service.d/fake.conf "
                "/etc/gpudeck/ceiling.toml; "
                "rm -f /etc/gpudeck/*.key /etc/gpudeck/*.pem")
    machine.run("gpudeck service uninstall agent --purge; gpudeck service uninstall hub --purge")
    assert machine.run("systemctl list-units --all --plain --no-legend 'gpudeck*'") == ""
    assert machine.run("find /etc /usr/lib /var/lib /run -xdev -name '*gpudeck*'") == ""
    assert "gpudeck" not in machine.run("cat /etc/passwd /etc/group")
