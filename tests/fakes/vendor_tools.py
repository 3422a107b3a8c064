"""`nvidia-smi --gpu-reset` and `dcgmi diag` as programs on the PATH, acting on the C fake's state.

    tools = VendorTools(tmp_path, nvml)
    env = {"PATH": tools.path}
    tools.smi("reset")      # does it; "lie": says so only; "refuse": does not, exit 255
    tools.slices("work")    # `compute-policy`; "lie", "refuse", or "mute": a list of another form
    tools.diag(document)    # what `dcgmi diag -j` prints

The reset spares nobody, unlike a driver: it kills every process that the fake lists on the board,
so that a missing guard is noticed.
"""

import json
import sys
from pathlib import Path
from typing import Any

from .nvml import FakeNvml

SMI = """#!{python} -SE
import os, signal, sys
mode = open({mode!r}).read().strip()
open({calls!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "compute-policy":
    mode, kept = open({mode!r} + ".slices").read(), {mode!r} + "." + sys.argv[3]
    if sys.argv[4] == "--list":
        length = open(kept).read() if os.path.exists(kept) else "0"
        words = ["Default", "Short", "Medium", "Long"][int(length)]
        print("|" if mode == "mute" else "GPU 0: Timeslice: " + words)
        sys.exit(0)
    if mode == "refuse":
        print("Setting the compute policy is not supported for GPU %s." % sys.argv[3])
        sys.exit(3)
    if mode != "lie":
        open(kept, "w").write(sys.argv[4].partition("=")[2])
    sys.exit(0)
bus = sys.argv[sys.argv.index("-i") + 1]
lines = open({state!r}).read().splitlines()
number = next(l.split()[1] for l in lines if l.split()[2:4] == ["pci", bus])
if mode == "refuse":
    print("The following GPUs could not be reset:\\n  GPU %s: In use by another client\\n\\n"
          "1 device is currently being used by one or more other processes" % bus)
    sys.exit(255)
if mode == "reset":
    for line in lines:
        words = line.split()
        if words[0] == "process" and words[1] == number:
            os.kill(int(words[3]), signal.SIGKILL)
    lines = [l for l in lines if l.split()[1:3] != [number, "recovery"] and l != "lost " + number]
    open({state!r} + ".new", "w").write("\\n".join(lines) + "\\n")
    os.replace({state!r} + ".new", {state!r})
print("GPU %s was successfully reset.\\nAll done." % bus)
"""
DCGMI = """#!{python} -SE
import sys
open({calls!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
print(open({answer!r}).read())
sys.exit(226)
"""


class VendorTools:
    def __init__(self, folder: Path, nvml: FakeNvml) -> None:
        self.folder = folder / "vendor"
        self.folder.mkdir()
        self._calls, self._mode = self.folder / "calls", self.folder / "mode"
        self._answer = self.folder / "answer"
        words = {"python": sys.executable, "mode": str(self._mode), "calls": str(self._calls),
                 "state": str(nvml.path), "answer": str(self._answer)}
        for name, text in (("nvidia-smi", SMI), ("dcgmi", DCGMI)):
            (self.folder / name).write_text(text.format(**words))
            (self.folder / name).chmod(0o755)
        self.smi("reset")
        self.slices("work")

    @property
    def path(self) -> str:
        return f"{self.folder}:/usr/bin:/bin"

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    def smi(self, mode: str) -> None:
        self._mode.write_text(mode)

    def slices(self, mode: str) -> None:
        Path(f"{self._mode}.slices").write_text(mode)

    def diag(self, document: Any) -> None:
        self._answer.write_text(document if isinstance(document, str) else json.dumps(document))
