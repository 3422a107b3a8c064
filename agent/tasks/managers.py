"""Manager of a process, by its cgroups; or, where a scheduler makes none, by its variables. Pure.

`/proc/PID/cgroup` shows it in each hierarchy (v1 or v2), whether systemd made the group or the
runtime itself: the path is looked at, never its root. Each form is seen in real cgroups.

Variables are the process's own choice. They can make an action be refused, and never anything else:
no priority, no group of processes that would be ended together.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

MANAGER_MAX = 256
PATH_MAX = 4_096  # no path of the kernel is longer
# Of these, all processes stand or fall together.
WHOLE_JOBS = ("slurm job", "pod", "container")

# Below a group that has "slurm", or "kubepods", in its name.
SLURM = re.compile(r"/job_(\d{1,18})(?=[/ ]|$)")
# The systemd driver writes a pod's id with underscores. That of a static pod is a hash.
POD = re.compile(r"[-/]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
                 r"(?![0-9a-f])")
# docker-ID.scope, cri-containerd-ID.scope, libpod-ID.scope, /docker/ID, /kubepods/podUID/ID,
# kubepods-podUID.slice:cri-containerd:ID; not the monitor of a container beside it.
CONTAINER = re.compile(r"(?:^|[/:-])(?<!conmon-)([0-9a-f]{64})(?=\.scope|[/ ]|$)")
FARGATE = re.compile(r"/ecs/[^/]+/([0-9a-f]{32}-\d{4,12})(?=[/ ]|$)")
# A login's session scope is no manager, and neither is the user's own systemd instance.
USERS = re.compile(r"/user@\d+\.service(?=/|$)")
UNIT = re.compile(r"/([^/]+\.service)(?=[/ ]|$)")
# What schedulers set for all that a job starts: kind, variable, form of its number.
SCHEDULER_VARIABLES = (
    ("slurm job", "SLURM_JOB_ID", re.compile(r"[0-9]{1,18}")),
    ("pbs job", "PBS_JOBID", re.compile(r"[0-9]{1,18}(?:\[[0-9]*\])?(?:\.[A-Za-z0-9.-]{1,128})?")),
    ("lsf job", "LSB_JOBID", re.compile(r"[0-9]{1,18}")))
IN_POD = "KUBERNETES_SERVICE_HOST"
POD_NAMES = ("POD_NAME", "HOSTNAME")
POD_NAME = re.compile(r"[a-z0-9.-]{1,253}")
SOME_SLURM_JOB = "slurm (a job of its user runs here, and its environment cannot be read)"


@dataclass(frozen=True, slots=True)
class CgroupMembership:
    """Place of a process below those that start processes; None: not there."""

    slurm_job: str | None = None
    pod_uid: str | None = None
    container: str | None = None  # the innermost, its whole id
    unit: str | None = None
    user_unit: str | None = None  # of the user's own systemd
    group: str | None = None  # of what it manages as one: the path down to there

    @property
    def manager(self) -> str | None:
        if self.slurm_job is not None:
            return f"slurm job {self.slurm_job}"
        if self.pod_uid is not None:
            return f"pod {self.pod_uid}"
        if self.container is not None:
            return f"container {self.container[:12]}"
        return None if self.unit is None else f"unit {self.unit}"[:MANAGER_MAX]


NAMES = tuple(CgroupMembership.__dataclass_fields__)


def place_of(paths: Iterable[str]) -> CgroupMembership:
    """Return its place in all its hierarchies together: of v1, not each controller has every
    group."""
    places = [_place(path) for path in paths]
    whole = CgroupMembership(**{name: next((value for place in places
                                            if (value := getattr(place, name)) is not None), None)
                                for name in NAMES})
    groups = [place.group for place in places
              if place.group is not None and place.manager == whole.manager]
    return replace(whole, group=min(groups, default=None))


def scheduler_of(env: Mapping[str, str]) -> str | None:
    """Return the manager that its variables name."""
    for kind, name, form in SCHEDULER_VARIABLES:
        if form.fullmatch(env.get(name, "")):
            return f"{kind} {env[name]}"
    if IN_POD not in env:
        return None
    names = (env.get(name, "") for name in POD_NAMES)
    return f"kubernetes pod {next(filter(POD_NAME.fullmatch, names), '')}".strip()


def manager_of(cgroup: str) -> str | None:
    return place_of((cgroup,)).manager


def paths_of(cgroup: str) -> list[str]:
    """Return the paths in the text of /proc/PID/cgroup: "number:controllers:path". A path may hold
    colons, and all that Python takes for the end of a line but a line feed."""
    return [line.split(":", 2)[-1] for line in cgroup.split("\n") if line]


def _place(path: str) -> CgroupMembership:
    path = path[:PATH_MAX]
    users = USERS.search(path)
    # Below it people make what groups they like.
    slurm = None if users else _last(SLURM, path, "slurm")
    pod = _last(POD, path, "kubepods")
    container = _last(CONTAINER, path) or _last(FARGATE, path)
    own = [] if users is None else UNIT.findall(path, users.end())
    units = UNIT.findall(path) if users is None else []
    of = slurm or pod or container
    return CgroupMembership(
        slurm_job=slurm and slurm[1], pod_uid=pod and pod[1].replace("_", "-"),
        container=container and container[1], unit=units[-1] if units else None,
        user_unit=own[-1] if own else None, group=of and path[:of.end()])


def _last(pattern: re.Pattern[str], path: str, below: str = "") -> re.Match[str] | None:
    """Return the last match after `below`, found by hand: a pattern with both would take a hostile
    path's length squared."""
    start = path.find(below)
    matches = [] if start < 0 else list(pattern.finditer(path, start))
    return matches[-1] if matches else None
