"""Keeps the jobs of some nodes as real processes: tiny scripts that only wait to be ended.

They belong to this process, never to an agent: a monitoring agent that dies must not take tasks
with it. One that ends, by whatever hand, is followed by another after a while, as on a real
cluster whose queue is never empty.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from gpudeck.system.child_processes import tied_to_me

from ...tasks.processes import command_line, read_stat
from .chance import between, roll, seed_of
from .folder import PROC, identity, state_of, write_jobs, write_tasks
from .jobs import JobLane, JobTurn, Kind, SimulatedJob, job_of, turns_at, words_of
from .mps_state import client, mps_file
from .tree import JobProcessTree, form_of, write_scripts
from .world import SimulationOptions, units_of

FOLLOWED_AFTER_S = (12.0, 25.0)
END_WITHIN_S = 3.0
COMPLETE_WITHIN_S = 10.0  # on a very busy machine; some 50 ms on an idle one
SCRIPT: dict[Kind, str] = {"train": "train.py", "finetune": "finetune.py", "serve": "serve.py",
                           "notebook": "notebook.py", "hog": "train.py"}


@dataclass(slots=True)
class LaneState:
    """A lane of a node, and the job that runs there."""

    node: str
    lane: JobLane
    tree: JobProcessTree | None = None
    plan: SimulatedJob | None = None  # what its processes have in common
    jobs: tuple[SimulatedJob, ...] = ()
    is_complete: bool = True
    turn_seed: int | None = None
    followers: int = 0
    free_until: float = 0.0
    ending_since: float | None = None

    @property
    def is_running(self) -> bool:
        return self.plan is not None


class JobKeeper:
    def __init__(
        self, folder: Path, seed: int, nodes: Sequence[str], gpus: int, profile: str = "h100"
    ) -> None:
        self._folder, self._seed = folder, seed
        # What jobs are given on each node, and how many of them are MIG instances.
        self._units = {node: units_of(SimulationOptions(node, profile, gpus, seed))
                       for node in nodes}
        self._posts: dict[tuple[str, int], LaneState] = {}
        self._mps = {node: mps_file(folder, node) for node in nodes}
        self._tie = tied_to_me()
        write_scripts(folder / "jobs")
        for node in nodes:  # from now on nothing here is made up
            write_jobs(folder, node, ())

    def step(self, now: float) -> None:
        """Notice processes that ended, start those that are due, and update the world."""
        first = not self._posts
        changed = {node for node in self._units if self._step_node(node, now, first)}
        changed |= self._complete(COMPLETE_WITHIN_S)
        for node in changed:
            write_jobs(self._folder, node, self._jobs(node))
        if changed or first:
            write_tasks(self._folder, {node: self._jobs(node) for node in self._units})

    def close(self) -> None:
        trees = [post.tree for post in self._posts.values() if post.tree is not None]
        for tree in trees:
            tree.cut()  # a paused one would not act on a milder signal
        for tree in trees:
            tree.root.wait()

    def _jobs(self, node: str) -> tuple[SimulatedJob, ...]:
        return tuple(job for (name, _), post in self._posts.items() if name == node
                     for job in post.jobs)

    def _step_node(self, node: str, now: float, first: bool) -> bool:
        changed, (uuids, instances) = False, self._units[node]
        for lane, turn in turns_at(self._seed, node, len(uuids) - instances, now, instances):
            post = self._posts.setdefault((node, lane.first), LaneState(node, lane))
            changed |= self._step_post(post, turn, now, first)
        return changed

    def _step_post(self, post: LaneState, turn: JobTurn, now: float, first: bool) -> bool:
        changed = _forget_ended(post)
        if post.is_running and post.tree is not None and post.tree.root.poll() is not None:
            self._note_end(post, turn, now)
            return True
        if post.is_running and (turn.seed != post.turn_seed or self._is_lost(post)):
            self._end(post, now)
        elif not post.is_running and turn.begins_at <= now and now >= post.free_until:
            # What is found running at the start has long been at work.
            self._start(post, turn, turn.begins_at if first else now)
            return True
        return changed

    def _is_lost(self, post: LaneState) -> bool:
        """Return whether MPS has taken the contexts of one of its processes away: programs end of
        that."""
        record = self._mps[post.node].now()
        return record is not None and any(client(job) in record.lost for job in post.jobs)

    def _note_end(self, post: LaneState, turn: JobTurn, now: float) -> None:
        """Note the end. Children that outlive a killed parent stay until the next job comes, as
        orphans do."""
        part = roll(seed_of(turn.seed, "follows"), post.followers)
        post.free_until = now + between(*FOLLOWED_AFTER_S, part)
        post.followers += 1
        if post.ending_since is not None and post.tree is not None:
            post.tree.cut()
        post.plan = post.ending_since = None
        _forget_ended(post)

    def _end(self, post: LaneState, now: float) -> None:
        assert post.tree is not None
        if post.ending_since is None:
            post.ending_since = now
            post.tree.root.terminate()
        elif now - post.ending_since > END_WITHIN_S:
            post.tree.cut()

    def _start(self, post: LaneState, turn: JobTurn, working_since: float) -> None:
        if post.tree is not None:
            post.tree.cut()
        if post.turn_seed != turn.seed:
            post.followers = 0
        seed = turn.seed if post.followers == 0 else seed_of(turn.seed, post.followers)
        mine = JobTurn(seed, turn.kind, working_since, turn.ends_at)
        form = form_of(mine, post.lane)
        post.tree = JobProcessTree(
            self._folder / "jobs" / SCRIPT[turn.kind], words_of(mine, post.lane), form,
            self._folder / "control.json", self._tie,
        )
        root = post.tree.root.pid
        stat = read_stat(PROC, root)
        assert stat is not None, "a child that nobody has waited for is in /proc"
        post.turn_seed, post.is_complete, post.jobs = turn.seed, False, ()
        post.plan = replace(
            job_of(post.lane, mine, self._units[post.node][0]), pid=root,
            start_ticks=stat.start_ticks, command=" ".join(post.tree.arguments),
            started_at=working_since, job_id=identity(root, stat.start_ticks),
            ignores_sigterm=form.ignores_sigterm,
        )

    def _complete(self, within_s: float) -> set[str]:
        """Wait until the trees that were started have all their processes, and make do with
        those that are there if it takes too long: somebody may have ended the others."""
        deadline = time.monotonic() + within_s
        waiting = new = [post for post in self._posts.values() if not post.is_complete]
        while waiting := [post for post in waiting if not _is_all_there(post)]:
            if time.monotonic() >= deadline:
                break
            time.sleep(0.005)
        for post in new:
            post.is_complete, post.jobs = True, _jobs_of(post)
        return {post.node for post in new}


def _is_all_there(post: LaneState) -> bool:
    """Return whether all its processes are there; also true of one that has ended before."""
    tree = post.tree
    return (tree is None or tree.root.poll() is not None
            or len(tree.children()) == tree.form.children)


def _jobs_of(post: LaneState) -> tuple[SimulatedJob, ...]:
    if post.plan is None or post.tree is None:
        return ()
    children = post.tree.children()
    if not post.tree.form.ranks:
        return (replace(post.plan, workers=children),)
    ranks = (_rank(post.plan, number, pid) for number, pid in enumerate(children))
    return tuple(job for job in ranks if job is not None)


def _rank(plan: SimulatedJob, number: int, pid: int) -> SimulatedJob | None:
    stat = read_stat(PROC, pid)
    command = command_line(pid)
    if stat is None or command is None:
        return None
    return replace(plan, pid=pid, start_ticks=stat.start_ticks, rank=number, command=command,
                   gpus=plan.gpus[number : number + 1])


def _forget_ended(post: LaneState) -> bool:
    if post.is_running and len(post.jobs) < 2:
        return False  # its first process tells, and is looked at anyway
    living = tuple(job for job in post.jobs if state_of(job.pid, job.start_ticks) is not None)
    changed, post.jobs = living != post.jobs, living
    return changed
