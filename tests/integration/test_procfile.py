"""`honcho start` in a fresh checkout: the hub answers on PORT, this machine's agent joins it by
itself, and SIGTERM ends both cleanly."""

import json
import os
import secrets
import signal
import subprocess
import sys
import urllib.request
import venv
from pathlib import Path

import pytest

from tests.demos import ROOT, soon
from tests.ports import free_port

ENDS_WITHIN_S = 15.0


@pytest.fixture(name="checkout")
def _checkout(tmp_path: Path) -> Path:
    """An installed checkout; what it depends on comes from ours, by path only, so that
    our editable install stays out."""
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
    venv.create(checkout / ".venv")
    (packages,) = (checkout / ".venv/lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text("\n".join(
        path for path in sys.path if path.endswith("site-packages")))
    subprocess.run([sys.executable, "-m", "pip", "--python", checkout / ".venv/bin/python",
                    "--quiet", "--disable-pip-version-check", "install", "--no-deps",
                    "--no-build-isolation", "--editable", checkout], check=True)
    return checkout


def is_live(port: int, token: str) -> bool:
    """Return whether the node is live at the hub that runs now."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/v1/nodes",
                                     headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return [node["state"] for node in json.load(answer)["items"]] == ["live"]
    except OSError:
        return False


def test_the_procfile_comes_up_by_itself_and_ends(checkout: Path, tmp_path: Path) -> None:
    port, token, state = free_port(), secrets.token_urlsafe(32), tmp_path / "state"
    hub = state / "gpudeck" / "hub"
    hub.mkdir(mode=0o700, parents=True)
    hub.chmod(0o700)
    (hub / "api.token").touch(mode=0o600)
    (hub / "api.token").write_text(token)
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("PYTHON", "VIRTUAL_ENV", "GPUDECK_"))}
    env = clean | {"PORT": str(port), "XDG_STATE_HOME": str(state), "PATH":
                   f"{checkout / '.venv/bin'}:{clean['PATH']}"}
    for _ in range(2):  # the second time the agent belongs to the hub already
        with (tmp_path / "said").open("w+") as output:
            honcho = subprocess.Popen([sys.executable, "-m", "honcho", "start"], cwd=checkout,
                                      env=env, stdout=output, stderr=output)
            try:
                assert soon(lambda: is_live(port, token)), (tmp_path / "said").read_text()
            finally:
                honcho.send_signal(signal.SIGTERM)
                code = honcho.wait(ENDS_WITHIN_S)
            output.seek(0)
            text = output.read()
        assert code == 128 + signal.SIGTERM
        for part in ("web.1", "agent.1"):
            assert f"{part} stopped (rc=0)" in text, text
        assert "SIGKILL" not in text
        assert "Traceback" not in text
        assert not (hub / "hub.json").exists()
