"""What manages a process, from its cgroup. Pure."""

import re

MANAGER_MAX = 256
# Of these, all processes stand or fall together.
WHOLE_JOBS = ("slurm job", "pod", "container")

# The systemd driver writes a pod's id with underscores.
POD = "pod {}"

# cgroup path -> manager, first match wins (nvml-mps.md D.5). A login's session scope is no
# manager, and neither is the user's own systemd instance.
MANAGERS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), manager)
    for pattern, manager in (
        (r"slurm.*/job_(\d+)", "slurm job {}"),
        (r"kubepods.*pod([0-9a-f]{8}[-_][0-9a-f_-]{27})", POD),
        (r"(?:docker[-/]|libpod-|cri-containerd-|crio-|containerd[-/])([0-9a-f]{12})[0-9a-f]{52}",
         "container {}"),
        (r"/user@\d+\.service/", ""),
        (r"/([^/]+\.service)(?:/|$)", "unit {}"),
    )
)


def manager_of(cgroup: str) -> str | None:
    for pattern, words in MANAGERS:
        if match := pattern.search(cgroup):
            names = [name.replace("_", "-") if words == POD else name for name in match.groups()]
            return words.format(*names)[:MANAGER_MAX] or None
    return None
