"""A running `gpudeck demo` for tests, and what belongs to watching processes."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import GIVE_UP_S

ROOT = Path(__file__).resolve().parents[1]
CODE = """
import sys
from gpudeck.errors import CommandError
from dashboard.{module} import {program}
try:
    sys.exit({program}(sys.argv[1:]))
except CommandError as error:
    print(f"gpudeck: {{error}}", file=sys.stderr)
    sys.exit(error.code)
"""
MODULES = {"demo": "demo.command", "up": "demo.up"}


def start(program: str, *arguments: str, **more: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", CODE.format(program=program, module=MODULES[program]), *arguments],
        cwd=ROOT, text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more,
    )


def soon(true: Callable[[], object], seconds: float = GIVE_UP_S) -> bool:
    deadline = time.monotonic() + seconds
    while not (held := true()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(held)


def descendants(pid: int) -> set[int]:
    """All processes whose line of parents leads to this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found, last = {pid}, 0
    while len(found) > last:
        last = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found - {pid}


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


class Demo:
    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        self.log = data.with_name(f"{data.name}.log")
        if "--history-hours" not in arguments:  # most tests look at what is live
            arguments = (*arguments, "--history-hours", "0")
        with self.log.open("w") as file:
            self.process = start("demo", "--data", str(data), "--port", "0", *arguments,
                                 stdout=file, stderr=file)
        if not soon(lambda: (data / "demo.json").exists() or self.process.poll() is not None
                    ) or self.process.poll() is not None:
            self.process.kill()
            self.process.wait(10)
            pytest.fail(f"the demo did not come up: {self.log.read_text()}")

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.data / "demo.json").read_text())
        return told

    @property
    def url(self) -> str:
        return str(self.told()["url"])

    def get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": f"Bearer {self.told()['token']}"})
        with urllib.request.urlopen(request, timeout=GIVE_UP_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def post(self, path: str, said: object) -> dict[str, Any]:
        told = self.told()
        request = urllib.request.Request(
            f"{told['url']}/api/v1/{path}", data=json.dumps(said).encode(), headers={
                "Authorization": f"Bearer {told['token']}", "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=GIVE_UP_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def ask(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(f"/api/v1/{path}")["items"]
        return items

    def gpus(self) -> dict[str, dict[str, Any]]:
        return {gpu["uuid"]: gpu for gpu in self.ask("gpus?limit=1000")}

    def control(self, gpus: dict[str, dict[str, Any]]) -> None:
        """What control.json says from now on, as a whole."""
        beside = self.data / "control.new"
        beside.write_text(json.dumps({"gpus": gpus}))
        beside.replace(self.data / "control.json")

    def kill_hub(self) -> None:
        os.kill(self.told()["hub_pid"], signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> tuple[float, set[int]]:
        """How long it took, and which of its processes are still there."""
        theirs = descendants(self.process.pid)
        assert theirs
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(10)
        took_s = time.monotonic() - began
        soon(lambda: not alive(theirs), 3.0 if number == signal.SIGKILL else 0.0)
        return took_s, alive(theirs)

    def __enter__(self) -> "Demo":
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.end()
