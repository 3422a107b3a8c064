"""docs/install.md as a script in a Debian that runs systemd, and then used: the hub behind nginx
with TLS, ten agents by one token, an owner who is notified and whose task is paused and ended, MPS,
and all of it killed, upgraded, restored elsewhere and uninstalled."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.limits.mps import PROGRAM
from gpudeck import __version__
from gpudeck.actions import YOUNGEST_S
from tests.booted import BootedMachine, a_booted_machine
from tests.demos import ROOT
from tests.fakes.hub import wait_for
from tests.fakes.mps_control import FRONT, NO_DAEMON
from tests.integration.test_install import BLOCKS, HOST, a_debian
from tests.integration.test_service_used import Site, a_gpu_with, alice_at_a_terminal
from tests.ports import free_port

pytestmark = pytest.mark.soak
OTHERS = 9
OLDER = "0.1.9"
FOLDER = "/srv"  # where the page is followed; of /tmp a machine that boots keeps nothing
UNINSTALL = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs/uninstall.md").read_text(), re.M | re.S)
ON_HUB, LINK, TOKEN, ON_NODE, BACK_UP, RESTORE, REMOVE = BLOCKS["sh"]


class Deck(Site):
    """The page's own lines, on ports that are free here."""

    def __init__(self, machine: BootedMachine) -> None:
        self._port, self._tls_port = free_port(), free_port()
        super().__init__(machine, f"https://{HOST}:{self._tls_port}", "", 0)

    def with_ports(self, text: str) -> str:
        return (text.replace("8050", str(self._port)).replace("listen 443",
                                                              f"listen {self._tls_port}")
                .replace(f"https://{HOST}", self.url))

    def follow(self, block: str) -> str:
        pip = "; ".join(f"export {name}={value}" for name, value in os.environ.items()
                        if name.startswith("PIP_"))
        return self.machine.run(f"{pip}\ncd {FOLDER}\n{self.with_ports(block)}")

    def live(self) -> int:
        process = self.machine.try_to(f"export GPUDECK_TOKEN={self.secret}; gpudeck status --json "
                                      f"--hub {self.url}")
        return 0 if process.returncode else sum(
            node["state"] == "live" for node in json.loads(process.stdout)["nodes"])

    def all_are_live(self) -> bool:
        return self.live() == OTHERS + 1

    def versions(self) -> set[str]:
        return {row["agent_version"] for row in json.loads(self.gpudeck("status --json"))["nodes"]
                if row["host"] == self.machine.run("hostname").strip()}


@pytest.fixture(scope="module")
def deck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deck]:
    root = tmp_path_factory.mktemp("root")
    a_debian(root)
    for wheel in (root / "tmp").glob("gpudeck-*.whl"):
        shutil.copy(wheel, root / FOLDER.lstrip("/"))
    with a_booted_machine(tmp_path_factory.mktemp("booted"), root) as machine:
        yield Deck(machine)


def test_the_hub_is_installed_behind_nginx(deck: Deck) -> None:
    deck.follow(ON_HUB)
    deck.machine.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={HOST} "
        f"-addext subjectAltName=DNS:{HOST} -addext basicConstraints=critical,CA:true "
        "-keyout /etc/gpudeck/deck.key -out /etc/gpudeck/deck.pem 2>&1; "
        "cp /etc/gpudeck/deck.pem /usr/local/share/ca-certificates/deck.crt; "
        "update-ca-certificates 2>&1; rm /etc/nginx/sites-enabled/default")
    deck.machine.path("/etc/nginx/conf.d/deck.conf").write_text(deck.with_ports(BLOCKS["nginx"][0]))
    deck.machine.run("nginx -t 2>&1; systemctl start nginx")
    assert f"{deck.url}/sign-in?code=" in deck.follow(LINK)


def test_ten_agents_come_by_one_token(deck: Deck, tmp_path: Path) -> None:
    """The page installs one; nine more run beside it, with names of other machines."""
    machine = deck.machine
    deck.follow(TOKEN)
    token = json.loads(machine.path(f"{FOLDER}/token.json").read_text())["token"]
    machine.path(f"{FOLDER}/token").write_text(token)
    deck.pid = alice_at_a_terminal(machine)
    a_gpu_with(machine, deck.pid, tmp_path)
    deck.follow(ON_NODE)
    for number in range(OTHERS):
        machine.run(
            f"systemd-run --quiet --unit other-{number} -p User=gpudeck-agent "
            f"-E GPUDECK_SIMULATE=gpus=2 /opt/gpudeck/bin/gpudeck agent --config "
            f"/etc/gpudeck/agent.toml --data /var/lib/gpudeck-agent/{number} "
            f"--host gpu{number:02} --backend simulated")
    deck.secret = json.loads(machine.run(
        "runuser -u gpudeck-hub -- gpudeck token create api test --role operator --json "
        "--data /var/lib/gpudeck-hub"))["token"]
    wait_for(deck.all_are_live)


def test_alice_is_told_and_her_task_is_paused_and_ended(deck: Deck) -> None:
    machine = deck.machine
    assert "told alice at 1 terminal" in deck.act("notify", "--text 'the node is needed'")
    assert "the node is needed" in deck.screen()
    stat = f"cut -d ' ' -f 3 /proc/{deck.pid}/stat"
    wait_for(lambda: int(machine.run(f"ps -o etimes= -p {deck.pid}")) > YOUNGEST_S)
    assert "paused" in deck.act("pause").lower()
    assert machine.run(stat) == "T\n"
    deck.act("resume")
    assert machine.run(stat) == "S\n"
    deck.act("end", "--grace 5")
    assert machine.try_to(stat).stdout == ""


def test_the_control_daemon_of_mps_is_found_from_inside_the_unit(deck: Deck) -> None:
    """Root started the daemon the usual way, after the agent."""
    machine, fakes = deck.machine, "/opt/mps/tests/fakes"
    simulation = "agent/backends/simulation"
    machine.run(f"mkdir -p {fakes} /opt/mps/{simulation}; install -d -m 777 /tmp/mps-world; "
                "echo '{\"version\": 550}' > /tmp/mps-world/world")
    shutil.copy(ROOT / "tests/fakes/mps_control.py", machine.path(fakes))
    shutil.copy(ROOT / simulation / "mps_answers.py", machine.path(f"/opt/mps/{simulation}"))
    machine.path("/opt/mps/front").write_text(FRONT.format(
        python="/usr/bin/python3", program=PROGRAM, fake=f"{fakes}/mps_control.py", none=NO_DAEMON))
    program = machine.path(f"/usr/bin/{PROGRAM}")
    program.write_text("#!/bin/sh\nFAKE_MPS=/tmp/mps-world/world exec /opt/mps/front \"$@\"\n")
    machine.run(f"chmod 755 /opt/mps/front /usr/bin/{PROGRAM}; {PROGRAM} -d")
    host = machine.run("hostname").strip()
    output = wait_for(lambda: "/tmp/nvidia-mps" in (
        text := deck.gpudeck(f"mps show --node {host} --json")) and text)
    assert json.loads(output), output
    machine.run(f"echo quit | {PROGRAM}")


@pytest.mark.parametrize("unit", ["gpudeck-hub", "gpudeck-agent"])
def test_killed_it_comes_back(deck: Deck, unit: str) -> None:
    pid = deck.main_pid(unit)
    deck.machine.run(f"kill -KILL {pid}")
    wait_for(lambda: deck.main_pid(unit) not in (pid, "0"))
    wait_for(deck.all_are_live)


def test_it_is_upgraded_the_hub_first(deck: Deck) -> None:
    """The installed version is made older; nodes of both versions are live meanwhile."""
    machine = deck.machine
    machine.run(f"cd /opt/gpudeck/lib/python3*/site-packages; "
                f"sed -i 's/{__version__}/{OLDER}/' gpudeck/__init__.py gpudeck-*/METADATA; "
                "rm -rf gpudeck/__pycache__; systemctl restart gpudeck-hub gpudeck-agent")
    wait_for(lambda: deck.all_are_live() and deck.versions() == {OLDER})
    deck.machine.run("systemctl stop gpudeck-hub")
    deck.follow('/opt/gpudeck/bin/pip install "$(ls ./gpudeck-*.whl)[hub]"')
    deck.machine.run("systemctl start gpudeck-hub")
    wait_for(lambda: deck.all_are_live() and deck.versions() == {OLDER})
    deck.machine.run("systemctl restart gpudeck-agent")
    wait_for(lambda: deck.all_are_live() and deck.versions() == {__version__})


def test_it_is_restored_elsewhere(deck: Deck) -> None:
    machine = deck.machine
    machine.path(f"{FOLDER}/passphrase").write_text("correct horse battery")
    deck.follow(BACK_UP)
    machine.run(f"systemctl stop gpudeck-hub; mv /var/lib/gpudeck-hub/backup {FOLDER}; "
                "rm -r /var/lib/gpudeck-hub; "
                "install -d -o gpudeck-hub -g gpudeck-hub -m 700 /var/lib/gpudeck-hub")
    deck.follow(RESTORE)
    machine.run("systemctl start gpudeck-hub")
    wait_for(deck.all_are_live)


def test_uninstalled_nothing_is_left(deck: Deck) -> None:
    machine = deck.machine
    machine.run("systemctl stop 'other-*' nginx; rm -r /etc/gpudeck/deck.* "
                "/etc/gpudeck/ceiling.toml /etc/systemd/system/gpudeck-agent.service.d/fake.conf")
    on_node, on_hub = UNINSTALL[:2]
    assert on_node.splitlines()[0] == REMOVE.strip()
    machine.run(REMOVE)
    machine.run(on_hub)
    assert machine.run("systemctl list-units --all --plain --no-legend 'gpudeck*'") == ""
    assert machine.run("find / -xdev -name '*gpudeck*' -not -path '/srv/*'") == ""
    assert machine.run("find /run -name '*gpudeck*'") == ""
    assert "gpudeck" not in machine.run("cat /etc/passwd /etc/group")
