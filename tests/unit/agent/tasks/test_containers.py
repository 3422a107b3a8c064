"""Names of containers and pods, from files as runtimes leave them."""

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agent.tasks.containers import names_of
from agent.tasks.managers import CgroupMembership
from agent.tasks.name_cache import WorkloadNameCache, is_whole
from agent.tasks.owners import NO_NAMES, WorkloadNames

ID = f"{random.getrandbits(256):064x}"
UID = "1b2c3d4e-0001-0002-0003-0123456789ab"
NAME = f"trainer-{random.getrandbits(32):x}"
OTHER = f"{random.getrandbits(256):064x}"


def put(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_docker(tmp_path: Path) -> None:
    put(tmp_path / f"var/lib/docker/containers/{ID}/config.v2.json", {"Name": f"/{NAME}"})
    assert names_of(CgroupMembership(container=ID), None, tmp_path) == WorkloadNames(NAME)
    assert names_of(CgroupMembership(container=OTHER), None, tmp_path) == NO_NAMES


@pytest.mark.parametrize("runs_as", ["root", "its user"])
def test_podman(tmp_path: Path, runs_as: str) -> None:
    home = Path("~").expanduser().relative_to("/") / ".local/share"
    store = tmp_path / (home if runs_as == "its user" else "var/lib") / "containers/storage"
    put(store / "overlay-containers/containers.json",
        [{"id": OTHER, "names": ["other"]}, {"id": ID, "names": [NAME]}])
    assert names_of(CgroupMembership(container=ID), os.getuid(), tmp_path) == WorkloadNames(NAME)
    assert names_of(CgroupMembership(container=ID), 3_999_999_999, tmp_path) == (
        NO_NAMES if runs_as == "its user" else WorkloadNames(NAME))


@pytest.mark.parametrize(("path", "notes"), [
    ("run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json",
     {"io.kubernetes.cri.container-name": NAME, "io.kubernetes.cri.sandbox-name": "bert-0",
      "io.kubernetes.cri.sandbox-namespace": "team"}),
    ("run/containers/storage/overlay-containers/{}/userdata/config.json",
     {"io.kubernetes.container.name": NAME, "io.kubernetes.pod.name": "bert-0",
      "io.kubernetes.pod.namespace": "team"}),
])
def test_containerd_and_crio(tmp_path: Path, path: str, notes: dict[str, str]) -> None:
    put(tmp_path / path.format(ID), {"annotations": notes})
    names = names_of(CgroupMembership(container=ID, pod_uid=UID), None, tmp_path)
    assert names == WorkloadNames(NAME, "bert-0", "team")


def test_kubelets_logs_can_be_read_by_anybody(tmp_path: Path) -> None:
    (tmp_path / f"var/log/pods/team_bert-0_{UID}").mkdir(parents=True)
    (tmp_path / f"var/log/pods/team_other-0_{UID[:-1]}c").mkdir(parents=True)
    assert names_of(CgroupMembership(pod_uid=UID), None, tmp_path) == WorkloadNames(None, "bert-0",
                                                                                    "team")
    put(tmp_path / f"var/log/containers/bert-0_team_{NAME}-{ID}.log", "")
    put(tmp_path / f"var/log/containers/other-0_team_{NAME}-{OTHER}.log", "")
    names = names_of(CgroupMembership(pod_uid=UID, container=ID), None, tmp_path)
    assert names == WorkloadNames(NAME, "bert-0", "team")


@pytest.mark.parametrize("content", [
    "", "{", "[]", "null", '{"Name": 7}', '{"Name": null}', "[" * 100_000, "\udcff".encode(
        errors="surrogateescape").decode(errors="replace"), '{"annotations": [1]}',
    f'[{{"id": "{ID}", "names": 3}}]', f'[{{"id": "{ID}", "names": []}}]', "[1, null, {}]",
], ids=range(12))
def test_files_that_are_not_what_they_should_be(tmp_path: Path, content: str) -> None:
    for path in (f"var/lib/docker/containers/{ID}/config.v2.json",
                 "var/lib/containers/storage/overlay-containers/containers.json",
                 f"run/containerd/io.containerd.runtime.v2.task/moby/{ID}/config.json"):
        put(tmp_path / path, content)
    assert names_of(CgroupMembership(container=ID), None, tmp_path) == NO_NAMES


def test_a_pipe_in_somebodys_home_holds_nobody_up(tmp_path: Path) -> None:
    store = tmp_path / "var/lib/containers/storage/overlay-containers"
    store.mkdir(parents=True)
    os.mkfifo(store / "containers.json")
    names: list[WorkloadNames] = []
    thread = threading.Thread(
        target=lambda: names.append(names_of(CgroupMembership(container=ID), None, tmp_path)),
        daemon=True)
    thread.start()
    thread.join(10)
    assert names == [NO_NAMES]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_not_known_yet_is_asked_again_a_few_times() -> None:
    clock, answers, calls = Clock(), [NO_NAMES, WorkloadNames(NAME)], 0

    def find(place: CgroupMembership, uid: int | None) -> WorkloadNames:
        nonlocal calls
        calls += 1
        return answers[0]

    names, key = WorkloadNameCache(find, clock), (CgroupMembership(container=ID), 7)
    assert [names.names(*key), names.names(*key), calls] == [(NO_NAMES, False)] * 2 + [1]
    clock.now += 6
    answers.pop(0)
    assert [names.names(*key), names.names(*key), calls] == [(WorkloadNames(NAME), True)] * 2 + [2]
    other, answers[0] = (CgroupMembership(container=OTHER), 7), NO_NAMES
    for _ in range(20):
        names.names(*other)
        clock.now += 40
    assert calls == 2 + 3
    assert names.names(*other) == (NO_NAMES, True)
    names.keep({other})
    assert names.names(*key) == (NO_NAMES, False)


def test_a_lookup_that_never_returns_holds_up_no_reading() -> None:
    """A home on a server that does not answer: the first wait is short, and there is no second."""
    stuck = threading.Event()

    def find(place: CgroupMembership, uid: int | None) -> WorkloadNames:
        stuck.wait(60)
        return NO_NAMES

    names = WorkloadNameCache(find)
    began = time.monotonic()
    for uid in range(200):
        assert names.names(CgroupMembership(container=ID), uid) == (NO_NAMES, False)
    assert time.monotonic() - began < 5
    stuck.set()


def test_is_whole() -> None:
    assert is_whole(CgroupMembership(), NO_NAMES)
    assert not is_whole(CgroupMembership(container=ID), WorkloadNames(None, "pod"))
    assert is_whole(CgroupMembership(container=ID, pod_uid=UID), WorkloadNames("a", "b"))
