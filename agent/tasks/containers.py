"""Names of containers and pods, from the files that their runtimes leave on this machine.

No daemon is asked. Most of these files are root's: an agent that may not read them gets ids, and no
error.
"""

import json
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from .managers import CgroupMembership
from .owners import NO_NAMES, WorkloadNames

STATE_BYTES = 8_000_000  # a list of all containers of a runtime; anything above is not one
# Of pods: the folder NAMESPACE_NAME_UID, and NAME_NAMESPACE_CONTAINER-ID.log, both readable by all.
POD_LOGS = "var/log/pods"
CONTAINER_LOGS = "var/log/containers"
SPECS = (
    "run/containerd/io.containerd.runtime.v2.task/{namespace}/{id}/config.json",
    "run/k3s/containerd/io.containerd.runtime.v2.task/{namespace}/{id}/config.json",
    "run/containers/storage/overlay-containers/{id}/userdata/config.json",
)
CONTAINERD = ("k8s.io", "default", "moby")
# In the annotations of the specification that containerd, CRI-O and nerdctl write.
NAME_KEYS = ("io.kubernetes.cri.container-name", "io.kubernetes.container.name", "nerdctl/name")
POD_KEYS = ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name")
NAMESPACE_KEYS = ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace")
STORES = ("var/lib/containers/storage", "run/containers/storage")
USER_STORE = ".local/share/containers/storage"
LISTS = ("overlay-containers/containers.json", "overlay-containers/volatile-containers.json",
         "vfs-containers/containers.json")


def names_of(place: CgroupMembership, uid: int | None, root: Path = Path("/")) -> WorkloadNames:
    """`uid`: of the process; rootless containers are kept in its owner's home."""
    if place.container is None and place.pod_uid is None:
        return NO_NAMES
    names = _from_logs(place, root)
    by_id = (_from_spec, _from_docker, partial(_from_podman, uid=uid))
    for look in by_id if place.container is not None else ():
        if names.container is not None and (place.pod_uid is None or names.pod is not None):
            break
        more = look(place, root)
        names = WorkloadNames(names.container or more.container, names.pod or more.pod,
                              names.namespace or more.namespace)
    return names


def _from_logs(place: CgroupMembership, root: Path) -> WorkloadNames:
    name = pod = namespace = None
    if place.pod_uid is not None:
        ending = f"_{place.pod_uid}"
        for entry in _list_names(root / POD_LOGS):
            if entry.endswith(ending) and entry.count("_") == 2:
                namespace, pod, _ = entry.split("_")
    if place.container is not None:
        ending = f"-{place.container}.log"
        for entry in _list_names(root / CONTAINER_LOGS):
            if entry.endswith(ending) and entry.count("_") == 2:
                pod, namespace, name = entry.removesuffix(ending).split("_")
    return WorkloadNames(name, pod, namespace)


def _from_spec(place: CgroupMembership, root: Path) -> WorkloadNames:
    for path in SPECS:
        for namespace in CONTAINERD if "{namespace}" in path else ("",):
            spec = _json(root / path.format(namespace=namespace, id=place.container))
            notes = spec.get("annotations") if isinstance(spec, dict) else None
            if isinstance(notes, dict):
                return WorkloadNames(*(_first(notes, keys)
                                       for keys in (NAME_KEYS, POD_KEYS, NAMESPACE_KEYS)))
    return NO_NAMES


def _from_docker(place: CgroupMembership, root: Path) -> WorkloadNames:
    config = _json(root / f"var/lib/docker/containers/{place.container}/config.v2.json")
    name = config.get("Name") if isinstance(config, dict) else None
    return WorkloadNames(name.lstrip("/") or None) if isinstance(name, str) else NO_NAMES


def _from_podman(place: CgroupMembership, root: Path, uid: int | None) -> WorkloadNames:
    for store in _stores(root, uid):
        for name in LISTS:
            listed = _json(store / name)
            for container in listed if isinstance(listed, list) else ():
                if isinstance(container, dict) and container.get("id") == place.container:
                    names = container.get("names")
                    if isinstance(names, list) and names and isinstance(names[0], str):
                        return WorkloadNames(names[0])
    return NO_NAMES


def _stores(root: Path, uid: int | None) -> Iterator[Path]:
    yield from (root / store for store in STORES)
    if uid is not None:
        try:
            home = pwd.getpwuid(uid).pw_dir
        except KeyError:
            return
        yield root / home.lstrip("/") / USER_STORE


def _first(notes: dict[str, Any], keys: Iterable[str]) -> str | None:
    return next((notes[key] for key in keys if isinstance(notes.get(key), str)), None)


def _list_names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError:
        return []


def _json(path: Path) -> Any:
    """Read a JSON file; None: not there, not for us, too big, or no JSON."""
    try:
        # It may lie in somebody's home: open neither a pipe that nobody writes to nor a device.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            content = file.read(STATE_BYTES + 1)
        return json.loads(content) if len(content) <= STATE_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
