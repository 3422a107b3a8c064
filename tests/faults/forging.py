"""tests/fakes/forge.py as a process, with requests to it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[1] / "fakes/forge.py"


class Forge:
    """`into`: the command that starts it in its own PID namespace, if any."""

    def __init__(self, *into: str) -> None:
        self.process = subprocess.Popen(
            [*into, sys.executable, "-S", "-E", str(PROGRAM)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)

    def ask(self, do: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        assert "answer" in reply, reply
        return reply["answer"]

    def close(self) -> None:
        """End it: in a namespace all ends with it; else it ends its children first, one by one."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait(10)
