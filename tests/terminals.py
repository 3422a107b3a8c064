"""Verbs of the command as processes, at a terminal or without one."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# The one command as it is, but for the entry points, which name the installed folders.
CODE = """
import sys
from gpudeck.cli import main as cli
from agent.cli import actions, hold as held
cli.find = lambda name: getattr(actions, name, None) or getattr(held, name)
sys.exit(cli.main())
"""


class TerminalResult:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [document for document in self.documents if document["event"] == event]

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n--- stderr\n{self.err}"


class Terminal:
    """`answers` None: there is no terminal, as under cron."""

    def __init__(self, *words: str, answers: Sequence[str] | None = None,
                 env: dict[str, str] | None = None) -> None:
        self._keyboard: int | None = None
        stdin: int = subprocess.DEVNULL
        if answers is not None:
            self._keyboard, stdin = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, *words], cwd=ROOT, text=True, stdin=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(env or {})})
        if self._keyboard is not None:
            os.close(stdin)
            os.write(self._keyboard, "".join(f"{answer}\n" for answer in answers or ()).encode())

    def end(self, timeout_s: float = 60.0) -> TerminalResult:
        try:
            out, err = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(TerminalResult(-1, *self.process.communicate())) from None
        finally:
            if self._keyboard is not None:
                os.close(self._keyboard)
                self._keyboard = None
        return TerminalResult(self.process.returncode, out, err)


def run(*words: str, answers: Sequence[str] | None = None, env: dict[str, str] | None = None
        ) -> TerminalResult:
    return Terminal(*words, answers=answers, env=env).end()
