"""packaging/container/Containerfile, built by buildah without a registry: its base is a clean root
of Debian. Both images are run by chroot, as nothing here may begin a container."""

import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demos import ROOT, soon
from tests.machine import required
from tests.ports import free_port

pytestmark = pytest.mark.soak
FILE = ROOT / "packaging/container/Containerfile"


class Builder:
    def __init__(self, folder: Path) -> None:
        self.program = required("buildah")
        self._store = ("--storage-driver", "vfs", "--root", str(folder / "store"), "--runroot",
                       str(folder / "run"))

    def run(self, *words: object) -> str:
        result = subprocess.run([self.program, *self._store, *map(str, words)], capture_output=True,
                                text=True, cwd=ROOT, timeout=900)
        assert result.returncode == 0, f"{words}\n{result.stdout}\n{result.stderr}"
        return result.stdout.strip().splitlines()[-1] if result.stdout.strip() else ""

    def mount(self, image: str) -> Path:
        return Path(self.run("mount", self.run("from", "--pull-never", image)))


@pytest.fixture(name="builder", scope="module")
def _builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    if os.geteuid() != 0:
        pytest.skip("a root folder is made by root")
    folder = tmp_path_factory.mktemp("images")
    builder, base = Builder(folder), folder / "base"
    subprocess.run([required("debootstrap"), "--variant=minbase", "--include=ca-certificates",
                    "bookworm", base], check=True, capture_output=True)
    # How this machine reaches its registries.
    for path in ("/etc/pip.conf", os.environ.get("PIP_CERT", ""), *map(
            str, Path("/etc/apt/apt.conf.d").glob("*"))):
        if path and Path(path).is_file():
            (base / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, base / path.lstrip("/"))
    former = ROOT / "dist/gpudeck-0.0.1-py3-none-any.whl"
    former.parent.mkdir(exist_ok=True)
    former.touch()  # an upgrade: the new wheel takes its place
    subprocess.run(["make", "-s", "wheel"], cwd=ROOT, check=True, capture_output=True)
    container = builder.run("from", "scratch")
    builder.run("add", container, base, "/")
    builder.run("commit", container, "localhost/base")
    yield builder
    builder.run("umount", "--all")
    builder.run("rm", "--all")


def build_image(builder: Builder, target: str) -> Path:
    builder.run("bud", "--isolation", "chroot", "--pull-never", "--build-arg",
                "BASE=localhost/base", "--target", target, "-t", f"localhost/{target}", "-f", FILE,
                ".")
    return builder.mount(f"localhost/{target}")


def test_the_hubs_image_serves(builder: Builder) -> None:
    root, port = build_image(builder, "hub"), free_port()
    config = builder.run("inspect", "--type", "image", "--format",
                         "{{.OCIv1.Config.User}} {{.OCIv1.Config.Cmd}}", "localhost/hub")
    assert config == "10001 [hub --data /var/lib/gpudeck-hub/data]"
    hub = subprocess.Popen(
        ["chroot", root, "setpriv", "--reuid", "10001", "--regid", "10001", "--clear-groups",
         "--bounding-set", "-all", "--no-new-privs", "/opt/gpudeck/bin/gpudeck", "hub", "--data",
         "/var/lib/gpudeck-hub/data", "--bind", f"127.0.0.1:{port}"])
    try:
        assert soon(lambda: is_healthy(port))
    finally:
        hub.send_signal(signal.SIGTERM)
        hub.wait(30)


def is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_the_agents_image_reads_gpus(builder: Builder) -> None:
    root = build_image(builder, "agent")
    process = subprocess.run(
        ["chroot", root, "/opt/gpudeck/bin/gpudeck", "status", "--backend", "simulated",
         "--simulate", "gpus=3"], capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    assert sum("H100" in line for line in process.stdout.splitlines()) == 3, process.stdout
    assert not list(root.glob("opt/gpudeck/lib/*/site-packages/dash")), "a node carries no Dash"
