"""The built wheel, outside the checkout, beside a user's own files of the same names."""

import json
import os
import re
import shlex
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.fakes.hub import wait_for
from tests.fakes.nvml import FakeNvml
from tests.patience import GIVE_UP_S

ROOT = Path(__file__).resolve().parents[2]
USERS_OWN = {
    "agent.py": "MINE = 'agent'", "dashboard.py": "MINE = 'dashboard'",
    "notebook.py": "MINE = 'notebook'",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT],
        check=True, capture_output=True, cwd=out, text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},  # setuptools warns of it
    )
    assert "warning" not in re.sub(r"\S*warning\S*\.svg", "", build.stdout + build.stderr).lower()
    (path,) = out.glob("gpudeck-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a clean environment that holds the wheel and, by path only, the
    dependencies of the environment that runs the tests (a .pth inside a .pth is not read, so the
    checkout's own editable install stays out)."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()))
    pip(folder / "bin", "install", "--no-deps", wheel)
    return folder / "bin"


@pytest.fixture
def user_folder(tmp_path: Path) -> Path:
    for name, text in USERS_OWN.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def pip(binaries: Path, *words: object) -> None:
    subprocess.run([binaries / "python", "-m", "pip", "--quiet", "--disable-pip-version-check",
                    *map(str, words)], check=True, capture_output=True)


def run(binaries: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run([str(binaries / words[0]), *words[1:]], cwd=cwd, env=clean, text=True,
                          capture_output=True, timeout=60, check=False)


def test_the_wheel_owns_one_name_only(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"gpudeck"}


def test_every_module_imports_beside_a_users_own_files(installed: Path, user_folder: Path) -> None:
    code = (
        "import importlib, pkgutil, gpudeck\n"
        "names = [m.name for m in pkgutil.walk_packages(gpudeck.__path__, 'gpudeck.')]\n"
        "for name in names:\n"
        "    if not name.endswith('__main__'): importlib.import_module(name)\n"
        "import agent, dashboard, notebook\n"
        "print(len(names), gpudeck.__file__, agent.MINE, dashboard.MINE, notebook.MINE)\n"
    )
    process = run(installed, "python", "-c", code, cwd=user_folder)
    assert process.returncode == 0, process.stderr
    count, where, *mine = process.stdout.split()
    assert int(count) > 20
    assert not Path(where).is_relative_to(ROOT)
    assert mine == ["agent", "dashboard", "notebook"]


def test_the_command_and_the_assets_are_there(installed: Path, user_folder: Path) -> None:
    assert run(installed, "gpudeck", "--version", cwd=user_folder).stdout.startswith("gpudeck ")
    code = ("from importlib.resources import files\n"
            "print(len(files('gpudeck.assets').joinpath('deck.mjs').read_text()))")
    process = run(installed, "python", "-c", code, cwd=user_folder)
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) > 1_000


def test_a_demo_runs_from_the_wheel(installed: Path, user_folder: Path) -> None:
    """The whole product from the wheel: start, be ready, answer, end, leave nothing."""
    ask_the_demo = """
import json, pathlib, subprocess, sys, time, urllib.request
command, data = sys.argv[1:]
demo = subprocess.Popen(
    [command, "demo", "--nodes", "1", "--gpus", "2", "--port", "0", "--data", data],
    stdout=subprocess.DEVNULL)
ready = pathlib.Path(data, "demo.json")
deadline = time.monotonic() + 40
while not ready.exists() and time.monotonic() < deadline:
    time.sleep(0.1)
told = json.loads(ready.read_text())
ask = urllib.request.Request(
    told["url"].rstrip("/") + "/api/v1/gpus", headers={"Authorization": "Bearer " + told["token"]})
print(len(json.load(urllib.request.urlopen(ask, timeout=10))["items"]))
demo.terminate()
print(demo.wait(15))
"""
    process = run(installed, "python", "-c", ask_the_demo, str(installed / "gpudeck"),
                  str(user_folder / "data"), cwd=user_folder)
    assert process.stdout.split() == ["2", "0"], process.stderr


def test_a_notebook_watches_from_the_wheel(installed: Path, user_folder: Path) -> None:
    """The agent is the wheel's too, and no file of the user's gets in between."""
    code = """
import time
from gpudeck.notebook import measure, watch
shown = watch(simulate="l40sx3")
deadline = time.monotonic() + 50
while not shown.picture.get("gpus") and time.monotonic() < deadline:
    time.sleep(0.1)
print(len(shown.picture["gpus"]), shown.picture["gpus"][0]["name"].split()[-1])
import agent, dashboard, notebook
print(agent.MINE, dashboard.MINE, notebook.MINE)
"""
    process = run(installed, "python", "-c", code, cwd=user_folder)
    assert process.stdout.split() == ["3", "L40S", "agent", "dashboard", "notebook"], process.stderr


def test_a_node_needs_nothing_of_the_hub(wheel: Path, tmp_path: Path) -> None:
    """Base install from the registry: the agent's commands work, the hub's name the extra."""
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env" / "bin"
    pip(binaries, "install", wheel)
    helped = run(binaries, "gpudeck", "agent", "--help", cwd=tmp_path)
    assert "usage: gpudeck agent" in helped.stdout
    for command in ("hub", "demo"):
        process = run(binaries, "gpudeck", command, cwd=tmp_path)
        assert process.returncode == 3
        assert "pip install 'gpudeck[hub]'" in process.stderr
        assert "Traceback" not in process.stderr
    listed = run(binaries, "python", "-m", "pip", "list", cwd=tmp_path).stdout.lower()
    assert not {"dash", "flask", "numpy", "gevent", "pandas"} & set(listed.split())


def lines_of_the_queue() -> dict[str, list[str]]:
    """Return the commands of README's section for one machine: the agent, and fifty runs."""
    text = (ROOT / "README.md").read_text().partition("## For one machine")[2].partition("##")[0]
    words = [shlex.split(line, comments=True) for line in text.splitlines()
             if line.startswith("gpudeck ")]
    return {("fifty" if "--array" in command else command[1]): command for command in words}


def test_after_the_install_one_command_is_a_queue_and_the_next_is_fifty_runs(
        installed: Path, tmp_path: Path) -> None:
    """Follow a new user, in a home that has nothing."""
    nvml = FakeNvml(tmp_path / "nvml.txt", gpus=0)
    for _ in range(4):
        nvml.gpu(util=0, mem_used=2**29, mem_total=80 * 2**30)
    nvml.save()
    (tmp_path / "train.py").write_text("import os; print(os.environ['GPUDECK_ARRAY_INDEX'])")
    unset = ("PYTHON", "XDG_", "GPUDECK_")
    env = {name: value for name, value in nvml.env().items() if not name.startswith(unset)} | {
        "HOME": str(tmp_path), "PATH": f"{installed}:{os.environ['PATH']}",
        "GPUDECK_POOL_SOCKET": str(tmp_path / "pool.sock")}

    def stdout_of(*words: str) -> str:
        return subprocess.run(words, cwd=tmp_path, env=env, text=True, check=True,
                              stdout=subprocess.PIPE).stdout

    def ended_count() -> int:
        [run] = json.loads(stdout_of("gpudeck", "runs", "--json"))["items"]
        return sum(part["status"] == 0 for part in run["parts"])

    lines = lines_of_the_queue()
    with subprocess.Popen(lines["agent"], cwd=tmp_path, env=env, stderr=subprocess.PIPE) as agent:
        try:
            assert agent.stderr is not None
            assert next(line for line in agent.stderr if b"`gpudeck run` and" in line)
            assert "run 1 is queued" in stdout_of(*lines["fifty"])
            wait_for(lambda: ended_count() == 50, 2 * GIVE_UP_S)
            assert stdout_of("gpudeck", "runs", "logs", "1.42") == "42\n"
        finally:
            agent.terminate()
