"""Processes of one job, from its turn: started here, and never longer there than their keeper."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...tasks.processes import command_line
from .chance import between, roll
from .folder import PROC
from .jobs import JobLane, JobTurn, Kind

PYTHON = (os.path.realpath(sys.executable), "-S", "-E")  # small, and started in some 10 ms
JOB, LAUNCHER = "stand_in.py", "launcher.py"
SCRIPTS = {"train.py": JOB, "finetune.py": JOB, "serve.py": JOB, "notebook.py": JOB,
           "torchrun.py": LAUNCHER}


SAVES_S: dict[Kind, float] = {"train": 0.5, "finetune": 0.5, "hog": 0.5}
STUBBORN = 0.25  # share of the notebooks with a cell that catches everything
WORKERS = (2, 5)


@dataclass(frozen=True, slots=True)
class JobProcessLayout:
    """Layout of a job: one process; with ranks a launcher and one process per GPU, as torchrun
    makes them."""

    ranks: int = 0
    workers: int = 0  # of a DataLoader: children of the process that holds the GPU
    saves_s: float = 0.0  # from SIGTERM to its end
    ignores_sigterm: bool = False

    @property
    def children(self) -> int:
        return self.ranks or self.workers


def form_of(turn: JobTurn, lane: JobLane) -> JobProcessLayout:
    saves_s = SAVES_S.get(turn.kind, 0.0)
    if turn.kind == "train" and lane.width > 1:
        return JobProcessLayout(ranks=lane.width, saves_s=saves_s)
    if turn.kind in ("train", "finetune", "hog"):  # a hog is a training whose DataLoader is stuck
        return JobProcessLayout(workers=int(between(*WORKERS, roll(turn.seed, 41))),
                                saves_s=saves_s)
    # Only the showcase's lanes do not pause, and it always has one of everything.
    stubborn = turn.kind == "notebook" and (not lane.pauses or roll(turn.seed, 42) < STUBBORN)
    return JobProcessLayout(saves_s=saves_s, ignores_sigterm=stubborn)


class JobProcessTree:
    """A process group of its own, in a session of its own.

    Its standard input is a pipe whose other end only we hold. When that closes, by `cut` or
    because we have died, the kernel itself sends SIGKILL to the whole group (fcntl(2), F_SETSIG):
    also to those that are stopped, and never to another group that came by the same number.
    """

    def __init__(
        self, script: Path, words: Sequence[str], form: JobProcessLayout, control: Path,
        tie: Callable[[], None],
    ) -> None:
        self.form = form
        self._script = str(script)
        launcher = [str(script.with_name("torchrun.py")), "--nproc-per-node", str(form.ranks)]
        self.arguments = [*PYTHON, *(launcher if form.ranks else ()), self._script, *words]
        child_end, self._lifeline = os.pipe()
        try:
            self.root = subprocess.Popen(
                self.arguments, preexec_fn=lambda: _prepare(tie), start_new_session=True,
                cwd=script.parent.parent, env={**os.environ, **_environment(form, control)},
                stdin=child_end, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
        except OSError:
            os.close(self._lifeline)
            raise
        finally:
            os.close(child_end)
        self.is_cut = False

    def children(self) -> tuple[int, ...]:
        """Return those that are there already, in the order of their ranks."""
        if not self.form.children:
            return ()
        root = self.root.pid
        try:
            text = (PROC / str(root) / "task" / str(root) / "children").read_text()
        except OSError:
            return ()
        pids = [int(pid) for pid in text.split()]
        if not self.form.ranks:
            return tuple(pids)
        ranked = [(rank, pid) for pid in pids if (rank := self._rank(pid)) is not None]
        return tuple(pid for _, pid in sorted(ranked))

    def _rank(self, pid: int) -> int | None:
        """Return its rank; None: it is not yet the program that the launcher starts."""
        words = (command_line(pid) or "").split(" ")
        if len(words) > 3 and words[3] == self._script and words[-2] == "--rank":
            return int(words[-1])
        return None

    def cut(self) -> None:
        """End all that is left of it."""
        if not self.is_cut:
            self.is_cut = True
            os.close(self._lifeline)


def write_scripts(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in SCRIPTS.items():
        (folder / name).write_text(Path(__file__).with_name(source).read_text())


def _prepare(tie: Callable[[], None]) -> None:
    """Prepare the child, which already leads its group. `tie` alone would leave its children
    behind."""
    fcntl.fcntl(0, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(0, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    tie()


def _environment(form: JobProcessLayout, control: Path) -> dict[str, str]:
    return {
        "GPUDECK_JOB_WORKERS": str(form.workers), "GPUDECK_JOB_SAVES_S": str(form.saves_s),
        "GPUDECK_JOB_IGNORES_SIGTERM": str(int(form.ignores_sigterm)),
        "GPUDECK_JOB_CONTROL": str(control),
    }
