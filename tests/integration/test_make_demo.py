"""A stranger's first command in a fresh clone: live in minutes, the second time in seconds."""

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.demos import ROOT, soon


def start_to_live_s(clone: Path, data: Path, within_s: float) -> float:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    began = time.monotonic()
    with (clone / "demo.out").open("w") as out:
        make = subprocess.Popen(["make", "demo", f"DEMO=--port 0 --data {data}"], cwd=clone,
                                env=clean, stdout=out, stderr=out, start_new_session=True)
    try:
        assert soon(lambda: (data / "demo.json").exists(), within_s), (
            (clone / "demo.out").read_text())
        return time.monotonic() - began
    finally:
        os.killpg(make.pid, signal.SIGTERM)
        make.wait(15)


def test_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    assert start_to_live_s(clone, tmp_path / "first", 300) < 300
    output = (clone / "demo.out").read_text()
    # Without how it was ended, and what pip says of the machine's own settings.
    lines = [line for line in output.splitlines()
             if not line.startswith(("make", "WARNING: Location"))]
    assert len(lines) <= 12, output
    assert not [line for line in lines if "warning" in line.lower()]
    # `make bench` asks for 6 s on a quiet machine. Nothing is installed again.
    assert start_to_live_s(clone, tmp_path / "again", 60) < 60
    assert "Installing" not in (clone / "demo.out").read_text()


def test_another_port() -> None:
    for port, flag in (("PORT=8061", "--port 8061"), ("PORT=", "")):
        text = subprocess.run(["make", "--no-print-directory", "-n", "-o", ".venv/.hub", "demo",
                               port, "DEMO=--nodes 2"], cwd=ROOT, capture_output=True, text=True,
                              check=True).stdout
        assert " ".join(text.split()).endswith(f"gpudeck demo {flag} --nodes 2".replace("  ", " "))
