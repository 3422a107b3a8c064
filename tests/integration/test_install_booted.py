"""docs/install.md as a script in a Debian that runs systemd, and then used: the hub behind nginx
with TLS, ten agents by one token, an owner who is notified and whose task is paused and ended, MPS,
and all of it killed, upgraded, restored elsewhere and uninstalled. Then the other pages about
installing, each from nothing."""

import json
import os
import re
import shlex
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.limits.mps import PROGRAM
from gpudeck import __version__
from gpudeck.contract.actions import YOUNGEST_S
from tests.booted import BootedMachine, a_booted_machine
from tests.demos import ROOT
from tests.fakes.hub import wait_for
from tests.fakes.mps_control import FRONT, NO_DAEMON
from tests.fakes.nvml import FakeNvml
from tests.integration.test_install import BLOCKS, HOST, a_debian, let_reach_registries
from tests.integration.test_service_used import (
    FAKE,
    Site,
    a_gpu_with,
    alice_at_a_terminal,
    install_gpus,
)
from tests.ports import free_port

pytestmark = pytest.mark.soak
OTHERS = 9
OLDER = "0.1.9"
GPUS = f"export LD_LIBRARY_PATH={FAKE} FAKE_NVML={FAKE}/nvml.txt"
FOLDER = "/srv"  # where the page is followed; of /tmp a machine that boots keeps nothing
RECORDED = "timestamp, index, temperature.gpu"
WARM = """rules:
  - {id: warm, title: warm, of: gpu, scope: "*", signal: temp_c, fire: "> 90", clear: "< 85",
     for: 0s, severity: warn, mode: observe}
"""
TRAIN = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(1)"


def sh_blocks(page: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / f"docs/{page}.md").read_text(), re.M | re.S)


REMOVE_AGENT, REMOVE_HUB = sh_blocks("uninstall")
ON_HUB, LINK, TOKEN, ON_NODE, BACK_UP, RESTORE, REMOVE = BLOCKS["sh"]


class Deck(Site):
    """The page's own lines, on ports that are free here."""

    def __init__(self, machine: BootedMachine) -> None:
        self.port, self._tls_port = free_port(), free_port()
        super().__init__(machine, f"https://{HOST}:{self._tls_port}", "", 0)

    def with_ports(self, text: str) -> str:
        return (text.replace("8050", str(self.port))
                .replace("listen 443", f"listen {self._tls_port}")
                .replace(f"https://{HOST}", self.url))

    def follow(self, block: str) -> str:
        pip = "; ".join(f"export {name}={value}" for name, value in os.environ.items()
                        if name.startswith("PIP_"))
        return self.machine.run(f"{pip}\n{GPUS}\ncd {FOLDER}\n{self.with_ports(block)}")

    def as_alice(self, block: str) -> str:
        script = f"export HOME=/home/alice; {GPUS}\ncd\n{self.with_ports(block)}"
        return self.machine.run(f"runuser -u alice -- sh -euc {shlex.quote(script)}")

    def new_token(self) -> None:
        """Read the token out of what the page's command wrote."""
        document = json.loads(self.machine.path(f"{FOLDER}/token.json").read_text())
        self.machine.path(f"{FOLDER}/token").write_text(document["token"])

    def new_secret(self, role: str = "operator") -> str:
        return str(json.loads(self.machine.run(
            f"runuser -u gpudeck-hub -- gpudeck token create api {role} --role {role} --json "
            "--data /var/lib/gpudeck-hub"))["token"])

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
    deck.new_token()
    deck.pid = alice_at_a_terminal(machine)
    a_gpu_with(machine, deck.pid, tmp_path)
    deck.follow(ON_NODE)
    for number in range(OTHERS):
        machine.run(
            f"systemd-run --quiet --unit other-{number} -p User=gpudeck-agent "
            f"-E GPUDECK_SIMULATE=gpus=2 /opt/gpudeck/bin/gpudeck agent --config "
            f"/etc/gpudeck/agent.toml --data /var/lib/gpudeck-agent/{number} "
            f"--host gpu{number:02} --backend simulated")
    deck.secret = deck.new_secret()
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
    """The installed build is an earlier one of the same version, as pip knows it; nodes of both are
    live meanwhile."""
    machine = deck.machine
    machine.run(f"cd /opt/gpudeck/lib/python3*/site-packages; "
                f"sed -i 's/{__version__}/{OLDER}/' gpudeck/__init__.py; "
                "rm -rf gpudeck/__pycache__; systemctl restart gpudeck-hub gpudeck-agent")
    wait_for(lambda: deck.all_are_live() and deck.versions() == {OLDER})
    hub, agent, versions = sh_blocks("upgrade")
    deck.follow(hub)
    wait_for(lambda: deck.all_are_live() and deck.versions() == {OLDER})
    deck.follow(agent)
    wait_for(lambda: deck.all_are_live() and deck.versions() == {__version__})
    nodes = json.loads(deck.follow(f"export GPUDECK_TOKEN={deck.secret}\n{versions}"))["nodes"]
    assert __version__ in {node["agent_version"] for node in nodes}


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
    assert REMOVE_AGENT.splitlines()[0] == REMOVE.strip()
    machine.run(REMOVE)
    machine.run(REMOVE_HUB)
    assert_nothing_is_left(machine)


def assert_nothing_is_left(machine: BootedMachine) -> None:
    # systemd forgets a unit that is gone when it next has nothing to do.
    wait_for(lambda: not machine.run("systemctl list-units --all --plain --no-legend 'gpudeck*'"))
    assert machine.run("find / -xdev -name '*gpudeck*' -not -path '/srv/*' "
                       "-not -path '/home/alice/*'") == ""
    assert machine.run("find /run -name '*gpudeck*'") == ""
    assert "gpudeck" not in machine.run("cat /etc/passwd /etc/group")


@pytest.fixture(scope="module")
def workstation(deck: Deck, tmp_path_factory: pytest.TempPathFactory) -> Deck:
    """The same machine with nothing of ours, two idle GPUs, and another port to be a hub's."""
    nvml = FakeNvml(tmp_path_factory.mktemp("idle"), gpus=2)
    for gpu in nvml.gpus:
        gpu.update(util=0, mem_used=0)
    nvml.save()
    install_gpus(deck.machine, nvml)
    deck.url = f"http://127.0.0.1:{deck.port}"
    let_reach_registries(deck.machine.path("/"))  # its list of authorities was made again
    program = deck.machine.path("/home/alice/train.py")
    program.write_text(TRAIN)
    program.chmod(0o644)
    return deck


def test_a_workstation_has_a_queue_without_a_hub(workstation: Deck) -> None:
    look, alone, queue, background, *_ = sh_blocks("workstation")
    workstation.follow(alone)
    wait_for(lambda: workstation.as_alice("gpudeck pool").count("free") > 1)
    assert "GPU" in workstation.follow(look)
    output = workstation.as_alice(queue)
    assert re.search(r"^(\d|GPU-\S+)$", output, re.M), "her program has seen its GPU"
    assert held_by(workstation, "alice")
    assert "train.py" in workstation.as_alice(background)
    [run] = json.loads(workstation.as_alice("gpudeck runs --json"))["items"]
    assert len(run["parts"]) == 50
    wait_for(lambda: '"ended"' in workstation.as_alice("gpudeck runs --json"))
    workstation.as_alice(f"gpudeck runs cancel {run['run']}")


def held_by(deck: Deck, user: str) -> set[str]:
    """Return the leases of the claims, which no command holds."""
    pool = json.loads(deck.as_alice("gpudeck pool --json"))
    return {lease["lease_id"] for lease in pool["held"] if lease["owner"] == user}


def test_it_joins_a_hub_with_its_leases(workstation: Deck) -> None:
    *_, join, pages = sh_blocks("workstation")
    wait_for(lambda: len(held_by(workstation, "alice")) == 1)  # those of runs have ended
    leases = held_by(workstation, "alice")
    workstation.follow("\n".join(with_a_port(pages, workstation).splitlines()[:5]))
    workstation.new_token()
    workstation.secret = workstation.new_secret()
    workstation.follow(join.replace("https://hub.example.org:8050", workstation.url))
    wait_for(lambda: workstation.live() == 1)
    assert held_by(workstation, "alice") == leases


def with_a_port(block: str, deck: Deck) -> str:
    """Name the port that is free here, where the page takes the default."""
    return block.replace("service install hub", f"service install hub --bind 127.0.0.1:{deck.port}")


def from_nothing(deck: Deck) -> None:
    """Remove services, settings and data by the page, and keep the environment."""
    for block in (REMOVE_AGENT, REMOVE_HUB):
        deck.machine.run(block.splitlines()[0])


def test_a_workstation_with_pages(workstation: Deck) -> None:
    from_nothing(workstation)
    *hub, token, agent, link = with_a_port(sh_blocks("workstation")[-1], workstation).splitlines()
    workstation.follow("\n".join((*hub, token)))
    workstation.new_token()
    assert "/sign-in?code=" in workstation.follow(f"{agent}\n{link}")
    workstation.secret = workstation.new_secret()
    wait_for(lambda: workstation.live() == 1)


def test_what_troubleshooting_asks_for_is_answered(workstation: Deck) -> None:
    looks, _ = sh_blocks("troubleshooting")
    for line in looks.splitlines():
        attempt = workstation.machine.try_to(f"{GPUS}; cd {FOLDER}; {line}")
        assert attempt.stdout, attempt.stderr
        assert "Traceback" not in attempt.stderr
    with zipfile.ZipFile(workstation.machine.path(f"{FOLDER}/report.zip")) as report:
        assert "doctor.json" in report.namelist()
    page = (ROOT / "docs/troubleshooting.md").read_text()
    for line in re.findall(r"^journalctl .*$", page, re.M):
        assert "gpudeck" in workstation.machine.run(line)


def test_a_node_that_has_another_hub_is_enrolled_again(workstation: Deck) -> None:
    workstation.follow(TOKEN)
    workstation.new_token()
    _, other_hub = sh_blocks("troubleshooting")
    assert f"connected to {workstation.url}" in workstation.follow(other_hub)
    wait_for(lambda: workstation.live() == 1)


def test_a_recording_is_imported_and_a_rule_rehearsed_on_it(workstation: Deck) -> None:
    """Import what nvidia-smi wrote in Berlin, within the span that the page rehearses."""
    machine, rows = workstation.machine, [RECORDED]
    rows += [f"2026/05/17 12:{minute:02}:{second:02}.000, 0, {'97' if minute < 5 else '60'}"
             for minute in range(10) for second in range(60)]
    machine.path(f"{FOLDER}/gpu.csv").write_text("\n".join(rows) + "\n")
    machine.path(f"{FOLDER}/my-rules.yaml").write_text(WARM)
    bring, _, rehearse = sh_blocks("import")
    hub = f"export GPUDECK_HUB={workstation.url} GPUDECK_TOKEN={workstation.new_secret('admin')}"
    assert "n017" in workstation.follow(f"{hub}\n{bring}")
    [rule] = json.loads(workstation.follow(f"{hub}\n{rehearse.strip()} --json"))
    assert [(alert["host"], alert["place"]) for alert in rule["alerts"]] == [("n017", "0")]


def test_the_hub_moves(workstation: Deck) -> None:
    machine = workstation.machine
    first, last, there = sh_blocks("moving")
    for block in (first, last):
        workstation.follow(block)
    machine.run(f"rm -rf {FOLDER}/backup; mv /var/lib/gpudeck-hub/backup {FOLDER}; "
                "rm -r /var/lib/gpudeck-hub")
    workstation.follow(there)
    wait_for(lambda: workstation.live() == 1)


def test_a_user_of_jupyterhub_has_a_token(workstation: Deck) -> None:
    extra, token = sh_blocks("jupyterhub")
    workstation.follow(extra)
    secret = json.loads(workstation.follow(token))["token"]
    me = workstation.machine.run(
        f"python -c 'from gpudeck.notebook import connect, watch; "
        f"from gpudeck.client.hub import Client; print(Client(\"{workstation.url}\", "
        f"\"{secret}\").me())'")
    assert "'alice'" in me


def test_a_node_of_slurm_reads_job_numbers(workstation: Deck) -> None:
    machine = workstation.machine
    machine.run(REMOVE_AGENT.splitlines()[0])
    workstation.follow(TOKEN)
    workstation.new_token()
    node, _ = sh_blocks("slurm")
    workstation.follow(node)
    wait_for(workstation.live)
    pid = workstation.main_pid("gpudeck-agent")
    capabilities = int(machine.run(f"grep CapEff /proc/{pid}/status").split()[1], 16)
    assert capabilities == sum(1 << number for number in (2, 5, 19)), (
        "CAP_DAC_READ_SEARCH, CAP_KILL and CAP_SYS_PTRACE")


def test_of_all_that_nothing_is_left(workstation: Deck) -> None:
    machine = workstation.machine
    machine.run(REMOVE_AGENT.splitlines()[0])
    machine.run(REMOVE_HUB)
    machine.run("rm -rf /etc/systemd/system/gpudeck-agent.service.d /etc/gpudeck")
    assert_nothing_is_left(machine)
