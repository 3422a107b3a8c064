"""A wall clock that is set while a program runs, for it and its children. Monotonic time goes on.

    clock = SteppedClock(tmp_path / "clock")
    subprocess.Popen([...], env=clock.env())
    clock.set(-30)
"""

import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

SOURCE = Path(__file__).with_name("stepped.c")


@cache
def build() -> Path:
    library = Path(mkdtemp(prefix="gpudeck-fake-clock-")) / "stepped.so"
    subprocess.run(["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1",
                    "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return library


class SteppedClock:
    def __init__(self, path: Path, seconds: int = 0) -> None:
        self.path = path
        self.set(seconds)

    def set(self, seconds: int) -> None:
        """Set the clock off by so many seconds, from now on."""
        beside = self.path.with_suffix(".new")
        beside.write_text(str(seconds))
        beside.replace(self.path)

    def env(self, before: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**(os.environ if before is None else before), "LD_PRELOAD": str(build()),
                "FAKE_CLOCK": str(self.path)}
