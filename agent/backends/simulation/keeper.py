"""Keeps the jobs of some nodes as real processes: tiny scripts that only wait to be ended.

They belong to this process, never to an agent: a monitoring agent that dies must not take tasks
with it. One that ends, by whatever hand, is followed by another after a while, as on a real
cluster whose queue is never empty.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudeck.lifeline import tied_to_me

from ...tasks import read_stat
from .chance import between, roll, seed_of
from .folder import PROC, write_jobs, write_tasks
from .jobs import CONFIGS, MODELS, Job, Kind, Lane, Turn, job_of, turns_at
from .world import uuid_of

FOLLOWED_AFTER_S = (12.0, 25.0)
END_WITHIN_S = 3.0

_WAITS = '''"""Stands in for a job: it holds still until somebody ends it."""
import signal

while True:
    signal.pause()
'''
_SAVES = '''"""Stands in for a job that saves a checkpoint when it is asked to end."""
import signal
import sys
import time


def save(signum, frame):
    time.sleep(0.5)
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
while True:
    signal.pause()
'''
SCRIPTS: dict[str, str] = {"train.py": _SAVES, "finetune.py": _SAVES, "serve.py": _WAITS,
                           "notebook.py": _WAITS}
SCRIPT: dict[Kind, str] = {"train": "train.py", "finetune": "finetune.py", "serve": "serve.py",
                           "notebook": "notebook.py", "hog": "train.py"}


@dataclass(slots=True)
class Post:
    """One lane of one node, and the process that works there."""

    node: str
    lane: Lane
    child: "subprocess.Popen[bytes] | None" = None
    job: Job | None = None
    turn_seed: int | None = None
    followers: int = 0
    free_until: float = 0.0
    ending_since: float | None = None


class Keeper:
    def __init__(self, folder: Path, seed: int, nodes: Sequence[str], gpus: int) -> None:
        self._folder = folder
        self._seed = seed
        self._gpus = gpus
        self._nodes = {node: tuple(uuid_of(seed, node, index) for index in range(gpus))
                       for node in nodes}
        self._posts: dict[tuple[str, int], Post] = {}
        self._tie = tied_to_me()
        _write_scripts(folder / "jobs")

    def step(self, now: float) -> None:
        """Whoever has ended is noticed, whoever is due is started; the world is told."""
        changed = {node for node in self._nodes if self._step_node(node, now)}
        for node in changed:
            write_jobs(self._folder, node, self._jobs(node))
        if changed:
            write_tasks(self._folder, {node: self._jobs(node) for node in self._nodes})

    def close(self) -> None:
        posts = [post for post in self._posts.values() if post.child is not None]
        for post in posts:
            assert post.child is not None
            post.child.kill()  # one that is paused would not hear a milder word
        for post in posts:
            assert post.child is not None
            post.child.wait()

    def _jobs(self, node: str) -> tuple[Job, ...]:
        return tuple(post.job for (name, _), post in self._posts.items()
                     if name == node and post.job is not None)

    def _step_node(self, node: str, now: float) -> bool:
        first = not any(name == node for name, _ in self._posts)
        changed = first
        for lane, turn in turns_at(self._seed, node, self._gpus, now):
            post = self._posts.setdefault((node, lane.first), Post(node, lane))
            changed |= self._step_post(post, turn, now, first)
        return changed

    def _step_post(self, post: Post, turn: Turn, now: float, first: bool) -> bool:
        if post.child is not None and post.child.poll() is not None:
            self._ended(post, turn, now)
            return True
        if turn.seed != post.turn_seed and post.child is not None:
            self._end(post, now)
            return False
        if post.child is None and turn.begins_at <= now and now >= post.free_until:
            # What is found running at the start has long been at work.
            self._start(post, turn, turn.begins_at if first else now)
            return True
        return False

    def _ended(self, post: Post, turn: Turn, now: float) -> None:
        part = roll(seed_of(turn.seed, "follows"), post.followers)
        post.free_until = now + between(*FOLLOWED_AFTER_S, part)
        post.followers += 1
        post.child = post.job = post.ending_since = None

    def _end(self, post: Post, now: float) -> None:
        assert post.child is not None
        if post.ending_since is None:
            post.ending_since = now
            post.child.terminate()
        elif now - post.ending_since > END_WITHIN_S:
            post.child.kill()

    def _start(self, post: Post, turn: Turn, working_since: float) -> None:
        if post.turn_seed != turn.seed:
            post.followers = 0
        seed = turn.seed if post.followers == 0 else seed_of(turn.seed, post.followers)
        mine = Turn(seed, turn.kind, working_since, turn.ends_at)
        arguments = _arguments(mine, post.lane, self._folder / "jobs")
        post.child = subprocess.Popen(
            arguments, preexec_fn=self._tie, start_new_session=True, cwd=self._folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        stat = read_stat(PROC, post.child.pid)
        assert stat is not None, "a child that nobody has waited for is in /proc"
        planned = job_of(post.lane, mine, self._nodes[post.node])
        post.turn_seed = turn.seed
        post.job = Job(
            pid=post.child.pid, start_ticks=stat.start_ticks, kind=planned.kind, seed=planned.seed,
            gpus=planned.gpus, mem_share=planned.mem_share, user=planned.user,
            command=" ".join(arguments), started_at=time.time(), working_since=working_since,
        )


def _write_scripts(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in SCRIPTS.items():
        (folder / name).write_text(source)


def _arguments(turn: Turn, lane: Lane, scripts: Path) -> list[str]:
    """Without site and environment: small, and started in some 10 ms."""
    config = CONFIGS[int(roll(turn.seed, 3) * len(CONFIGS))]
    model = MODELS[int(roll(turn.seed, 3) * len(MODELS))]
    words = {
        "serve": ["--model", model, "--tensor-parallel-size", str(lane.width)],
        "notebook": ["--kernel", f"{turn.seed % 16**8:08x}"],
    }.get(turn.kind, ["--config", f"{config}.yaml", "--devices", str(lane.width)])
    return [os.path.realpath(sys.executable), "-S", "-E", str(scripts / SCRIPT[turn.kind]), *words]
