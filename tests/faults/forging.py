"""tests/fakes/forge.py as a process, and what it is asked."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[1] / "fakes/forge.py"


class Forge:
    """`into`: what it is started with, in a PID namespace of its own."""

    def __init__(self, *into: str) -> None:
        self.process = subprocess.Popen(
            [*into, sys.executable, "-S", "-E", str(PROGRAM)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)

    def ask(self, do: str, **given: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **given}) + "\n")
        self.process.stdin.flush()
        said = json.loads(self.process.stdout.readline())
        assert "answer" in said, said
        return said["answer"]

    def close(self) -> None:
        """In a namespace all ends with it; else its children are ended one by one before."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait(10)
