"""Whose a process is beyond its user: what manages it, which launch and notebook it is of. Pure.

All of it was said by others and is cut to what the wire takes; nothing here decides an act.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..readings import Owner
from . import launches, notebooks
from .launches import launch_of
from .managers import CgroupMembership
from .notebooks import notebook_of
from .redact import redact

WORD_MAX, TEXT_MAX = 128, 256
_IN_POD = "KUBERNETES_SERVICE_HOST"
# The only variables that are read of a process; none of them is sent as it is but these names.
VARIABLES = frozenset((*launches.NAMES, *notebooks.NAMES, _IN_POD, "POD_NAME", "POD_NAMESPACE",
                       "HOSTNAME"))




@dataclass(frozen=True, slots=True)
class WorkloadNames:
    """What ids are called, as far as this machine tells; see containers.py."""

    container: str | None = None
    pod: str | None = None
    namespace: str | None = None


NO_NAMES = WorkloadNames()


def owner_of(
    place: CgroupMembership, words: Sequence[str], env: Mapping[str, str], machine: str,
    names: WorkloadNames = NO_NAMES,
) -> Owner:
    """`words` of its command line; `machine` tells this one from all others."""
    pod, namespace = names.pod, names.namespace
    if place.pod_uid is not None or _IN_POD in env:
        pod = pod or env.get("POD_NAME") or (env.get("HOSTNAME") if _IN_POD in env else None)
        namespace = namespace or env.get("POD_NAMESPACE")
    if place.container is not None:  # it has addresses of its own
        machine = f"{machine}/{place.container[:12]}"
    found = launch_of(env, machine, namespace)
    notebook = notebook_of(words, env)
    return Owner(
        manager=place.manager, container=cut(place.container),
        container_name=cut(names.container), pod=cut(pod or place.pod_uid),
        namespace=cut(namespace), slurm_job=cut(place.slurm_job or _job(env)),
        unit=cut(place.unit or place.user_unit),
        notebook=cut(None if notebook is None else redact(notebook), TEXT_MAX),
        launch=cut(found.name, TEXT_MAX), rank=found.rank,
    )


def _job(env: Mapping[str, str]) -> str | None:
    """Where Slurm makes no groups of its own."""
    job = env.get("SLURM_JOB_ID", "")
    return job if job.isascii() and job.isdigit() and len(job) < 19 else None


def cut(text: str | None, most: int = WORD_MAX) -> str | None:
    """Within the wire's bounds; what nobody can read or type is left out."""
    if text is None:
        return None
    return "".join(each for each in text[: 4 * most] if each.isprintable())[:most].strip() or None
