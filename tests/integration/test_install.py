"""docs/install.md to the letter, in a clean root of Debian: wheel, services, nginx with TLS, ten
agents by one token. No systemd runs in a chroot: the units' own lines are started by hand, with
their user, and no capability but theirs."""

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.demos import ROOT, soon
from tests.machine import required
from tests.ports import free_port

pytestmark = pytest.mark.soak
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
HOST = "deck.example.org"
PAGE = (ROOT / "docs/install.md").read_text()
BLOCKS = {kind: re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.M | re.S)
          for kind in ("sh", "nginx")}


class Machine:
    """A root folder, and what was started in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.started: list[subprocess.Popen[bytes]] = []

    def run(self, script: str) -> str:
        env = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        process = subprocess.run(["chroot", self.root, "sh", "-euc", f"cd /tmp; {script}"],
                                 env={**env, "PATH": PATH},
                                 capture_output=True, text=True, timeout=900)
        assert process.returncode == 0, f"{script}\n{process.stdout}\n{process.stderr}"
        return process.stdout

    def unit(self, name: str) -> dict[str, str]:
        lines: dict[str, str] = {}
        folders = [self.root / "etc/systemd/system", self.root / "usr/lib/systemd/system"]
        file = next(path for folder in folders if (path := folder / f"{name}.service").exists())
        for path in (file, *(folders[0] / f"{name}.service.d").glob("*.conf")):
            for key, value in re.findall(r"^(\w+)=(.*)$", path.read_text(), re.M):
                lines[key] = f"{lines.get(key, '')} {value}".strip()
        return lines

    def start(self, name: str, *more: str, env: Mapping[str, str] | None = None) -> None:
        """Start it as systemd would: user, state folder, capabilities, no new privileges."""
        unit = self.unit(name)
        user = unit["User"]
        self.run(f"install -d -o {user} -g {user} -m {unit['StateDirectoryMode']} "
                 f"/var/lib/{unit['StateDirectory']}")
        ambient = ",".join("+" + word.removeprefix("CAP_").lower()
                           for word in unit["AmbientCapabilities"].split())
        caps = ["--inh-caps", ambient, "--ambient-caps", ambient] if ambient else []
        bound = ",".join(filter(None, ["-all", ambient]))
        with (self.root / f"tmp/{name}.log").open("ab") as log:
            self.started.append(subprocess.Popen(
                ["chroot", self.root, "setpriv", "--reuid", user, "--regid", user,
                 "--init-groups", *caps, "--bounding-set", bound, "--no-new-privs",
                 *unit["ExecStart"].split(), *more],
                env={"PATH": PATH, **(env or {})}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT))

    def end(self) -> None:
        for process in self.started:
            process.send_signal(signal.SIGTERM)
        for process in self.started:
            process.wait(30)


def a_debian(root: Path) -> None:
    """Install the files of a Debian in this folder, with the wheel in /tmp."""
    root.chmod(0o755)
    subprocess.run([required("debootstrap"), "--variant=minbase",
                    "--include=python3,python3-venv,systemd,ca-certificates,nginx-light,openssl,"
                    "procps",
                    "bookworm", root], check=True, capture_output=True)
    subprocess.run(["make", "-s", "wheel"], cwd=ROOT, check=True, capture_output=True)
    for wheel in (ROOT / "dist").glob("gpudeck-*.whl"):
        shutil.copy(wheel, root / "tmp")
    let_reach_registries(root)
    with (root / "etc/hosts").open("a") as hosts:
        hosts.write(f"\n127.0.0.1 {HOST}\n")


def let_reach_registries(root: Path) -> None:
    """Copy what this machine reaches its registries by."""
    for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", os.environ.get("PIP_CERT", "")):
        if path and Path(path).is_file():
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path.lstrip("/"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if os.geteuid() != 0:
        pytest.skip("a root folder is made by root")
    root = tmp_path_factory.mktemp("root")
    a_debian(root)
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    debian = Machine(root)
    try:
        yield debian
    finally:
        debian.end()
        subprocess.run(["umount", root / "proc"], check=True)


def live(get: Callable[[str, str], Any], secret: str) -> list[Any]:
    try:
        nodes = get("/api/v1/nodes", secret)["items"]
    except urllib.error.HTTPError:  # nginx, while there is no hub
        return []
    return [node for node in nodes if node["state"] == "live"]


def behind_nginx(machine: Machine, conf: str) -> None:
    machine.run(f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={HOST} "
                f"-addext subjectAltName=DNS:{HOST} -addext basicConstraints=critical,CA:true "
                "-keyout /etc/gpudeck/deck.key -out /etc/gpudeck/deck.pem 2>&1")
    (machine.root / "etc/nginx/sites-enabled/default").unlink()
    (machine.root / "etc/nginx/conf.d/deck.conf").write_text(conf)
    machine.run("nginx -t 2>&1")
    machine.started.append(subprocess.Popen(
        ["chroot", machine.root, "nginx", "-g", "daemon off;"]))


def restore_elsewhere(machine: Machine, back_up: str, restore: str) -> None:
    (machine.root / "tmp/passphrase").write_text("correct horse battery")
    machine.run(back_up)
    machine.started[0].send_signal(signal.SIGTERM)
    machine.started.pop(0).wait(30)
    machine.run("mv /var/lib/gpudeck-hub/backup /tmp; chmod 711 /tmp; rm -r /var/lib/gpudeck-hub; "
                "install -d -o gpudeck-hub -g gpudeck-hub -m 700 /var/lib/gpudeck-hub")
    machine.run(restore)
    machine.start("gpudeck-hub")


def test_the_page_is_what_works(machine: Machine) -> None:
    port, tls_port = free_port(), free_port()
    where = f"https://{HOST}:{tls_port}"

    def with_ports(text: str) -> str:
        """The page, on ports that are free here."""
        return (text.replace("8050", str(port)).replace("listen 443", f"listen {tls_port}")
                .replace(f"https://{HOST}", where))

    on_hub, link, token, on_node, back_up, restore, remove = BLOCKS["sh"]
    machine.run(with_ports(on_hub).replace("service install hub", "service install hub --no-start"))
    machine.start("gpudeck-hub")
    log = machine.root / "tmp/gpudeck-hub.log"
    assert soon(lambda: "said=ready" in log.read_text()), log.read_text()
    behind_nginx(machine, with_ports(*BLOCKS["nginx"]))
    trust = ssl.create_default_context(cafile=str(machine.root / "etc/gpudeck/deck.pem"))

    def get(path: str, secret: str = "") -> Any:
        request = urllib.request.Request(f"https://127.0.0.1:{tls_port}{path}", headers={
            "Host": f"{HOST}:{tls_port}", "Authorization": f"Bearer {secret}"})
        with urllib.request.urlopen(request, context=trust, timeout=10) as answer:
            return json.load(answer)

    trust.check_hostname = False  # it is asked for by its address here
    assert f"{where}/sign-in?code=" in machine.run(with_ports(link))
    secret = json.loads(machine.run(
        "runuser -u gpudeck-hub -- /opt/gpudeck/bin/gpudeck token create api test --json "
        "--data /var/lib/gpudeck-hub"))["token"]
    machine.run(with_ports(token))
    document = json.loads((machine.root / "tmp/token.json").read_text())
    (machine.root / "tmp/token").write_text(document["token"])
    (machine.root / "etc/ssl/deck-ca.pem").write_bytes(
        (machine.root / "etc/gpudeck/deck.pem").read_bytes())
    machine.run(with_ports(on_node).replace(
        "--token-file token", "--token-file token --ca-file /etc/ssl/deck-ca.pem --no-start"))
    for number in range(10):
        machine.start("gpudeck-agent", "--data", f"/var/lib/gpudeck-agent/{number}",
                      "--host", f"gpu{number:02}", "--backend", "simulated",
                      env={"GPUDECK_SIMULATE": "gpus=2"})
    assert soon(lambda: len(live(get, secret)) == 10), machine.run(
        "tail -20 /tmp/gpudeck-agent.log")
    assert soon(lambda: len(get("/api/v1/gpus?limit=100", secret)["items"]) == 20)
    # Elsewhere, from its backup: the agents find it where the old one was.
    restore_elsewhere(machine, with_ports(back_up), with_ports(restore))
    assert soon(lambda: len(live(get, secret)) == 10), log.read_text()
    machine.end()
    machine.started.clear()
    machine.run(f"rm /etc/gpudeck/deck.*\n{remove}")  # those are nginx's
    machine.run(remove.replace("agent", "hub"))
    paths = machine.run("find / -xdev -name '*gpudeck*' -not -path '/opt/*' -not -path '/tmp/*' "
                        "-not -path '/proc/*'")
    assert paths == ""


def test_the_debian_packages(machine: Machine) -> None:
    """`make deb`: no error of lintian; installed by apt, set up, run, purged without a trace."""
    subprocess.run(["make", "-s", "deb"], cwd=ROOT, check=True, capture_output=True,
                   env={**os.environ, "GPUDECK_DEB_LEVEL": "1"})
    debs = [max((ROOT / "dist").glob(f"{name}_*.deb"), key=lambda path: path.stat().st_mtime)
            for name in ("gpudeck", "gpudeck-hub")]
    checked = subprocess.run([required("lintian"), "--allow-root", "--fail-on", "error", *debs],
                             capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
    for deb in debs:
        shutil.copy(deb, machine.root / "tmp")
    machine.run("rm -rf /opt/gpudeck; printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d; "
                "chmod +x /usr/sbin/policy-rc.d; DEBIAN_FRONTEND=noninteractive "
                "apt-get install -y ./gpudeck_*.deb ./gpudeck-hub_*.deb")
    assert machine.run("gpudeck --version").startswith("gpudeck ")
    for role in ("agent", "hub"):
        unit = f"/usr/lib/systemd/system/gpudeck-{role}.service"
        assert machine.run(f"systemd-analyze verify {unit} 2>&1") == ""
    output = machine.run("gpudeck service install agent --hub https://deck.example.org --no-start; "
                         "gpudeck service install hub --no-start --bind 127.0.0.1:8050; "
                         "systemctl is-enabled gpudeck-agent; find /etc/systemd -name 'gpudeck*'")
    assert "enabled" in output.splitlines()
    assert "/etc/systemd/system/gpudeck-agent.service\n" not in output, "the unit is the package's"
    port = free_port()
    (machine.root / "etc/gpudeck/hub.toml").write_text(f'[hub]\nbind = "127.0.0.1:{port}"\n')
    machine.start("gpudeck-hub")
    assert soon(lambda: is_healthy(f"http://127.0.0.1:{port}")), (
        machine.root / "tmp/gpudeck-hub.log").read_text()
    machine.end()
    machine.started.clear()
    machine.run("DEBIAN_FRONTEND=noninteractive apt-get purge -y gpudeck gpudeck-hub")
    paths = machine.run("find / -xdev -name '*gpudeck*' -not -path '/tmp/*' -not -path '/proc/*'")
    assert paths == ""
    assert "gpudeck" not in machine.run("cat /etc/passwd")


def is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
