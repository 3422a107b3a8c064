"""docs/containers.md as a script in a Debian that runs systemd: both images are built by buildah,
and run by podman with the page's own flags; alice's task is paused and ended from a container."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.contract.actions import YOUNGEST_S
from tests.booted import BootedMachine, a_booted_machine
from tests.demos import ROOT
from tests.fakes.hub import wait_for
from tests.integration.test_container import a_base
from tests.integration.test_install import a_debian
from tests.integration.test_service_used import FAKE, Site, a_gpu_with, alice_at_a_terminal
from tests.ports import free_port

pytestmark = pytest.mark.soak
CHECKOUT = "/srv/checkout"
BASE = "docker.io/library/debian:bookworm-slim"
PAGE = (ROOT / "docs/containers.md").read_text()
BUILD, TOKENS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
RUN_HUB, RUN_AGENT = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.M | re.S)
# What `nvidia-ctk cdi generate` writes of a machine's driver, for the C fake of its library.
CDI = f"""
cdiVersion: "0.5.0"
kind: nvidia.com/gpu
devices:
  - name: all
    containerEdits:
      env: ["LD_LIBRARY_PATH={FAKE}", "FAKE_NVML={FAKE}/nvml.txt"]
      mounts:
        - {{hostPath: {FAKE}, containerPath: {FAKE}, options: [ro, bind]}}
"""
ENGINE = """
[containers]
pids_limit = 0
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Containers(Site):
    """The page's own lines, on a port that is free here."""

    def __init__(self, machine: BootedMachine) -> None:
        self.port = free_port()
        super().__init__(machine, f"http://127.0.0.1:{self.port}", "", 0)

    def follow(self, block: str) -> str:
        text = block.replace("8050", str(self.port)).replace("https://deck.example.org", self.url)
        return self.machine.run(f"export BUILDAH_ISOLATION=chroot; cd {CHECKOUT}\n{text}")

    def nodes(self) -> list[str]:
        nodes = json.loads(self.gpudeck("status --json"))["nodes"]
        return [node["id"] for node in nodes if node["state"] == "live"]

    def gpudeck(self, words: str) -> str:
        """A command that the hub's own container runs."""
        return self.machine.run(
            f"podman exec --env GPUDECK_TOKEN={self.secret} gpudeck-hub "
            f"/opt/gpudeck/bin/gpudeck {words} --hub {self.url}")

    def act(self, verb: str, *words: str) -> str:
        self.gpudeck(f"{verb} {self.task()} {' '.join(words)} --plan-out /tmp/{verb}")
        run = self.machine.try_to(
            f"podman exec --env GPUDECK_TOKEN={self.secret} gpudeck-hub /opt/gpudeck/bin/gpudeck "
            f"{verb} --plan /tmp/{verb} --reason test --yes --hub {self.url}")
        return run.stdout + run.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    root = tmp_path_factory.mktemp("root")
    a_debian(root, "podman,buildah,crun,conmon")
    checkout = root / CHECKOUT.lstrip("/")
    shutil.copytree(ROOT / "packaging", checkout / "packaging")
    (checkout / "dist").mkdir()
    for wheel in (root / "tmp").glob("gpudeck-*.whl"):  # of `make wheel`, as on the page
        shutil.copy(wheel, checkout / "dist")
    a_base(root / "srv/base")
    (root / "etc/containers").mkdir(exist_ok=True)
    (root / "etc/containers/containers.conf").write_text(ENGINE)
    (root / "etc/cdi").mkdir()
    (root / "etc/cdi/nvidia.yaml").write_text(CDI)
    with a_booted_machine(tmp_path_factory.mktemp("booted"), root, is_unified=True) as machine:
        machine.run(f"tar -C /srv/base -c . | podman import - {BASE}")
        yield Containers(machine)
        machine.run("podman rm --all --force")


def test_the_images_are_built(site: Containers) -> None:
    wheel, *build = BUILD.splitlines()
    assert wheel == "make wheel", "done above"
    site.follow("\n".join(build))
    listed = site.machine.run("podman images --format '{{.Repository}}:{{.Tag}}'").split()
    assert {"localhost/gpudeck-hub:0.2.0", "localhost/gpudeck-agent:0.2.0"} < {*listed}


def test_the_hub_runs_without_a_capability(site: Containers, tmp_path: Path) -> None:
    site.follow(RUN_HUB)
    link, token = TOKENS.splitlines()
    output = wait_for(lambda: site.machine.try_to(
        link.replace("8050", str(site.port))).stdout)
    assert f"{site.url}/sign-in?code=" in output
    document = json.loads(site.follow(token))
    site.secret = json.loads(site.machine.run(
        "podman exec gpudeck-hub /opt/gpudeck/bin/gpudeck token create api test --role operator "
        "--json --data /var/lib/gpudeck-hub/data"))["token"]
    pid = site.machine.run("podman inspect gpudeck-hub --format '{{.State.Pid}}'").strip()
    status = dict(re.findall(r"^(\w+):\t(\S+)", site.machine.run(f"cat /proc/{pid}/status"), re.M))
    assert (status["Uid"], int(status["CapEff"], 16), int(status["CapBnd"], 16)) == ("10001", 0, 0)
    site.pid = alice_at_a_terminal(site.machine)
    a_gpu_with(site.machine, site.pid, tmp_path)
    # Of the service, which is not here.
    site.machine.run("rm -r /etc/systemd/system/gpudeck-agent.service.d")
    site.machine.run("mkdir -p /var/lib/gpudeck-agent; umask 077; "
                     f"echo {document['token']} > /etc/gpudeck/enrolment.token")


def test_the_agent_sees_the_machines_tasks_and_acts_on_them(site: Containers) -> None:
    site.follow(RUN_AGENT)
    wait_for(site.nodes)
    state, age = (f"ps -o {what}= -p {site.pid}" for what in ("stat", "etimes"))
    wait_for(lambda: int(site.machine.run(age)) > YOUNGEST_S)
    assert "paused" in site.act("pause").lower()
    assert site.machine.run(state).startswith("T")
    site.act("resume")
    assert site.machine.run(state).startswith("S")
    site.act("end", "--grace", "5")
    assert site.machine.try_to(state).stdout == ""


def test_a_newer_one_is_the_same_node(site: Containers) -> None:
    nodes = site.nodes()
    assert len(nodes) == 1
    assert "`podman rm --force gpudeck-agent`" in PAGE
    site.machine.run("podman rm --force gpudeck-agent; rm /etc/gpudeck/enrolment.token")
    site.follow(RUN_AGENT)
    began = site.machine.run("podman inspect gpudeck-agent --format '{{.State.StartedAt}}'")
    assert began
    wait_for(lambda: "connected hub=" in site.machine.run("podman logs gpudeck-agent 2>&1"))
    wait_for(lambda: site.nodes() == nodes)


def test_removed_nothing_is_left_but_what_the_page_names(site: Containers) -> None:
    for line in ("podman rm --force gpudeck-agent", "podman rm --force gpudeck-hub",
                 "podman volume rm gpudeck-hub"):
        assert f"`{line}`" in PAGE
        site.machine.run(line)
    assert site.machine.run("podman ps --all --quiet; podman volume ls --quiet") == ""
    remainder = site.machine.run("find /etc /var/lib /run -xdev -name '*gpudeck*' "
                            "-not -path '/var/lib/containers/*'").split()
    assert remainder == ["/etc/gpudeck", "/var/lib/gpudeck-agent"]
