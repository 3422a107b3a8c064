"""Real Jupyter servers for tests, each notebook a file, driven through a real browser."""

import json
import os
import re
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page

from tests.patience import GIVE_UP_S
from tests.ports import free_port

# Not by `jupyter`, which would start any program in the PATH.
PROGRAMS = {"lab": "jupyterlab", "notebook": "notebook"}
CELL = ".jp-CodeCell"
# Nothing that prompts, fetches or is not tested.
QUIET = {"buildCheck": False, "buildAvailable": False, "disabledExtensions": {
    f"@jupyterlab/{name}": True for name in (
        "apputils-extension:announcements", "extensionmanager-extension", "terminal-extension")}}


class Jupyter:
    """A server; `kind`: `lab` or `notebook` (7)."""

    def __init__(self, kind: str, root: Path, env: dict[str, str]) -> None:
        self.kind = kind
        self.root = root
        self.token = secrets.token_hex(16)
        folders = {f"JUPYTER_{name}_DIR": str(root / ".jupyter" / name.lower())
                   for name in ("CONFIG", "DATA", "RUNTIME")}
        pages = root / ".jupyter" / "config" / "labconfig"
        pages.mkdir(parents=True)
        (pages / "page_config.json").write_text(json.dumps(QUIET))
        self.port = free_port()  # or one near it, if another process was quicker: see `_wait`
        self._runtime = root / ".jupyter" / "runtime"
        self.log = root / ".jupyter" / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", PROGRAMS[kind], "--no-browser", "--allow-root",
                 f"--ServerApp.port={self.port}", "--ServerApp.port_retries=50",
                 "--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={self.token}",
                 f"--ServerApp.root_dir={root}"],
                cwd=root, stdout=log, stderr=log,
                env={**os.environ, **folders, "IPYTHONDIR": str(root / ".ipython"), **env})
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                for info in self._runtime.glob(f"jpserver-{self.process.pid}.json"):
                    self.port = json.loads(info.read_text())["port"]
                urllib.request.urlopen(f"{self.url}/api?token={self.token}", timeout=5).close()
            except (OSError, ValueError):  # not there, or half written
                time.sleep(0.1)
            else:
                return
        self.close()
        pytest.fail(f"jupyter {self.kind} did not come up: {self.log.read_text()[-2000:]}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kernel_of(self, name: str) -> str:
        with urllib.request.urlopen(f"{self.url}/api/sessions?token={self.token}") as answer:
            sessions = json.load(answer)
        return next(str(session["kernel"]["id"]) for session in sessions if session["path"] == name)

    def restart(self, kernel: str) -> None:
        request = urllib.request.Request(
            f"{self.url}/api/kernels/{kernel}/restart?token={self.token}", b"", method="POST")
        urllib.request.urlopen(request, timeout=GIVE_UP_S).close()

    def open(self, browser: Browser, cells: Sequence[str], name: str = "book",
             **options: Any) -> "Book":
        path = self.root / f"{name}.ipynb"
        path.write_text(json.dumps({
            "cells": [{"cell_type": "code", "id": f"c{at}", "metadata": {}, "source": cell,
                       "outputs": [], "execution_count": None} for at, cell in enumerate(cells)],
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3",
                                        "language": "python"}},
            "nbformat": 4, "nbformat_minor": 5}))
        page = browser.new_page(**{"viewport": {"width": 1200, "height": 900}, **options})
        return Book(self, page, path).load()


class Book:
    def __init__(self, jupyter: Jupyter, page: Page, path: Path) -> None:
        self.jupyter = jupyter
        self.page = page
        self.path = path

    def load(self) -> "Book":
        # Its own workspace: with two tabs in one workspace JupyterLab asks which of them it is.
        is_lab = self.jupyter.kind == "lab"
        where = f"lab/workspaces/{self.path.stem}/tree" if is_lab else "notebooks"
        self.page.goto(f"{self.jupyter.url}/{where}/{self.path.name}?token={self.jupyter.token}")
        self.page.wait_for_selector(CELL)
        # The kernel is there when the toolbar says idle.
        self.page.wait_for_function(
            "document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status === 'idle'")
        return self

    def run(self, at: int, pattern: str = r"\d") -> None:
        """Run a cell until its prompt has a number, or matches `pattern`. Keys that come while the
        page still settles are lost, and so is what a kernel gets while it settles."""
        cell = self.page.locator(CELL).nth(at)
        prompt = cell.locator(".jp-InputPrompt").first
        before, deadline = prompt.inner_text(), time.monotonic() + 90

        def is_run() -> bool:
            now = prompt.inner_text()
            return now != before and re.search(pattern, now) is not None

        while not is_run() and time.monotonic() < deadline:
            dialog = self.page.locator(".jp-Dialog")
            if dialog.count():  # which kernel, where the page was quicker than its session
                dialog.locator("button.jp-mod-accept").first.click()
            cell.locator(".cm-content").click()
            self.page.keyboard.press("Shift+Enter")
            for tenth in range(900):
                if is_run():
                    return
                if tenth >= 30 and "*" not in prompt.inner_text():
                    break
                self.page.wait_for_timeout(100)

    def output(self, at: int, pattern: str, seconds: float = GIVE_UP_S) -> "re.Match[str]":
        """Wait for output of the cell that matches, and return the match."""
        output = self.page.locator(CELL).nth(at).locator(".jp-OutputArea-output")
        deadline, text = time.monotonic() + seconds, ""
        while time.monotonic() < deadline:
            text = "\n".join(output.all_inner_texts())
            if match := re.search(pattern, text):
                return match
            self.page.wait_for_timeout(100)
        raise AssertionError(f"cell {at} said {text!r}, not {pattern!r}")

    def save(self) -> None:
        before = self.path.stat().st_mtime_ns
        self.page.keyboard.press("Control+s")
        deadline = time.monotonic() + GIVE_UP_S
        # For a moment the file is there and empty.
        while self.path.stat().st_mtime_ns == before or not self.path.stat().st_size:
            assert time.monotonic() < deadline, "the notebook was not saved"
            self.page.wait_for_timeout(100)


def wait_for_preview(task: Locator) -> None:
    """Wait until an action can be confirmed: a task younger than five seconds is refused at first,
    and its preview is refreshed."""
    reason, refresh = task.locator(".g-dialog input"), task.get_by_text("Refresh")
    reason.or_(refresh).wait_for()
    while refresh.is_visible():
        task.page.wait_for_timeout(500)
        refresh.click()
        reason.or_(refresh).wait_for()
