"""A running `gpudeck demo` for tests, and helpers that watch processes."""

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

from tests.patience import GIVE_UP_S, pause_s

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


def soon(condition: Callable[[], object], seconds: float = GIVE_UP_S) -> bool:
    began = now = time.monotonic()
    while not (outcome := condition()) and now < began + seconds:
        time.sleep(pause_s(now - began, time.monotonic() - now))
        now = time.monotonic()
    return bool(outcome)


def descendants(pid: int) -> set[int]:
    """Pids of all processes that descend from this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    pids, last = {pid}, 0
    while len(pids) > last:
        last = len(pids)
        pids |= {child for child, parent in parents.items() if parent in pids}
    return pids - {pid}


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

    def info(self) -> dict[str, Any]:
        info: dict[str, Any] = json.loads((self.data / "demo.json").read_text())
        return info

    @property
    def url(self) -> str:
        return str(self.info()["url"])

    def get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": f"Bearer {self.info()['token']}"})
        with urllib.request.urlopen(request, timeout=GIVE_UP_S) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def post(self, path: str, body: object) -> dict[str, Any]:
        info = self.info()
        request = urllib.request.Request(
            f"{info['url']}/api/v1/{path}", data=json.dumps(body).encode(), headers={
                "Authorization": f"Bearer {info['token']}", "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=GIVE_UP_S) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def ask(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(f"/api/v1/{path}")["items"]
        return items

    def gpus(self) -> dict[str, dict[str, Any]]:
        return {gpu["uuid"]: gpu for gpu in self.ask("gpus?limit=1000")}

    def control(self, gpus: dict[str, dict[str, Any]]) -> None:
        """Replace the whole content of control.json."""
        beside = self.data / "control.new"
        beside.write_text(json.dumps({"gpus": gpus}))
        beside.replace(self.data / "control.json")

    def kill_hub(self) -> None:
        os.kill(self.info()["hub_pid"], signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> tuple[float, set[int]]:
        """End the demo; return the seconds it took and those of its processes still there."""
        pids = descendants(self.process.pid)
        assert pids
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(10)
        took_s = time.monotonic() - began
        soon(lambda: not alive(pids), 3.0 if number == signal.SIGKILL else 0.0)
        return took_s, alive(pids)

    def __enter__(self) -> "Demo":
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.end()
