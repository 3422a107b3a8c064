"""/proc/PID/cgroup as it is found out there -> what manages a process. Each line is of a real
system; ids are random per run."""

import random
from dataclasses import replace

import pytest

from agent.tasks.managers import (
    SOME_SLURM_JOB,
    WHOLE_JOBS,
    CgroupMembership,
    manager_of,
    paths_of,
    place_of,
    scheduler_of,
)
from gpudeck.contract.rungs import RulesCeiling, RungTarget, by_manager


def digits(count: int) -> str:
    return f"{random.getrandbits(4 * count):0{count}x}"


ID, OUTER = digits(64), digits(64)
UID = "-".join(map(digits, (8, 4, 4, 4, 12)))
UID_ = UID.replace("-", "_")
HASH = digits(32)
JOB = str(random.randrange(1, 10**9))
POD_SLICE = f"kubepods-burstable-pod{UID_}.slice"
IN_POD = CgroupMembership(pod_uid=UID, container=ID)

V1_DOCKER = "\n".join(f"{n}:{c}:/docker/{ID}" for n, c in enumerate(
    ("name=systemd", "memory", "cpu,cpuacct", "pids", "devices", "freezer"), 1))
V1_SLURM = "\n".join((
    "11:pids:/system.slice/slurmd.service", f"10:memory:/slurm/uid_1000/job_{JOB}/step_0/task_0",
    f"9:freezer:/slurm/uid_1000/job_{JOB}/step_0", "1:name=systemd:/system.slice/slurmd.service"))

REAL = {
    "docker, systemd driver, v2": (f"0::/system.slice/docker-{ID}.scope",
                                   CgroupMembership(container=ID)),
    "docker, cgroupfs driver, v1": (V1_DOCKER, CgroupMembership(container=ID)),
    "docker, cgroupfs driver, v2": (f"0::/docker/{ID}", CgroupMembership(container=ID)),
    "docker, a parent of its own": (f"0::/research/{ID}", CgroupMembership(container=ID)),
    "docker, rootless": (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/"
                         f"docker-{ID}.scope", CgroupMembership(container=ID)),
    "docker in docker": (f"0::/docker/{OUTER}/docker/{ID}", CgroupMembership(container=ID)),
    "docker in docker, systemd": (f"0::/system.slice/docker-{OUTER}.scope/docker/{ID}",
                                  CgroupMembership(container=ID)),
    "seen from another cgroup namespace": (f"0::/../../docker-{ID}.scope",
                                           CgroupMembership(container=ID)),
    "buildkit": (f"0::/docker/buildkit/{ID}", CgroupMembership(container=ID)),
    "podman, root": (f"0::/machine.slice/libpod-{ID}.scope/container",
                     CgroupMembership(container=ID)),
    "podman, rootless": (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/"
                         f"libpod-{ID}.scope/container", CgroupMembership(container=ID)),
    "podman, cgroupfs": (f"0::/libpod_parent/libpod-{ID}", CgroupMembership(container=ID)),
    "podman's monitor is not inside": (f"0::/machine.slice/libpod-conmon-{ID}.scope",
                                       CgroupMembership()),
    "quadlet": (f"0::/system.slice/train.service/libpod-payload-{ID}",
                CgroupMembership(container=ID, unit="train.service")),
    "nerdctl": (f"0::/system.slice/nerdctl-{ID}.scope", CgroupMembership(container=ID)),
    "containerd, cgroupfs": (f"0::/default/{ID}", CgroupMembership(container=ID)),
    "ECS": (f"0::/ecs/{digits(32)}/{ID}", CgroupMembership(container=ID)),
    "Fargate": (f"1:cpu:/ecs/{HASH}/{HASH}-1234567890",
                CgroupMembership(container=f"{HASH}-1234567890")),
    "pod, containerd, systemd, v2": (f"0::/kubepods.slice/kubepods-burstable.slice/{POD_SLICE}/"
                                     f"cri-containerd-{ID}.scope", IN_POD),
    "pod, guaranteed": (f"0::/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope",
                        IN_POD),
    "pod, besteffort, CRI-O": (f"0::/kubepods.slice/kubepods-besteffort.slice/"
                               f"kubepods-besteffort-pod{UID_}.slice/crio-{ID}.scope", IN_POD),
    "CRI-O's monitor": (f"0::/kubepods.slice/kubepods-pod{UID_}.slice/crio-conmon-{ID}.scope",
                        CgroupMembership(pod_uid=UID)),
    "pod, cgroupfs, v1": (f"5:memory:/kubepods/burstable/pod{UID}/{ID}\n1:name=systemd:/", IN_POD),
    "pod, docker": (f"0::/kubepods.slice/{POD_SLICE}/docker-{ID}.scope", IN_POD),
    "static pod": (f"0::/kubepods/burstable/pod{HASH}/{ID}",
                   CgroupMembership(pod_uid=HASH, container=ID)),
    "kind": (f"0::/docker/{OUTER}/kubelet.slice/kubelet-kubepods.slice/"
             f"kubelet-kubepods-burstable.slice/kubelet-{POD_SLICE}/cri-containerd-{ID}.scope",
             IN_POD),
    "k3s": (f"0::/system.slice/k3s.service/kubepods/besteffort/pod{UID}/{ID}",
            CgroupMembership(pod_uid=UID, container=ID, unit="k3s.service")),
    "containerd with colons": (f"0::/system.slice/containerd.service/{POD_SLICE}:cri-containerd:"
                               f"{ID}", CgroupMembership(pod_uid=UID, container=ID,
                                                         unit="containerd.service")),
    "Slurm, v2": (f"0::/system.slice/slurmstepd.scope/job_{JOB}/step_0/user/task_0",
                  CgroupMembership(slurm_job=JOB)),
    "Slurm, v2, several slurmd": (f"0::/system.slice/n1_slurmstepd.scope/job_{JOB}/step_batch/user/"
                                  "task_special", CgroupMembership(slurm_job=JOB)),
    "Slurm, v1": (V1_SLURM, CgroupMembership(slurm_job=JOB, unit="slurmd.service")),
    "Slurm, container of its job": (f"0::/system.slice/slurmstepd.scope/job_{JOB}/step_0/user/"
                                    f"libpod-{ID}", CgroupMembership(slurm_job=JOB, container=ID)),
    "unit": ("0::/system.slice/my_training.service", CgroupMembership(unit="my_training.service")),
    "unit of a template": ("0::/system.slice/system-train.slice/train@7.service",
                           CgroupMembership(unit="train@7.service")),
    "unit of a user": ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/train.service",
                       CgroupMembership(user_unit="train.service")),
    "login": ("0::/user.slice/user-1000.slice/session-3.scope", CgroupMembership()),
    "terminal of a desktop": ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/"
                              "vte-spawn-1.scope", CgroupMembership()),
    "none": ("0::/", CgroupMembership()),
    "group that is gone": (f"0::/system.slice/docker-{ID}.scope (deleted)",
                           CgroupMembership(container=ID)),
    "a hash that is no container": (f"0::/user.slice/x{ID}y/run", CgroupMembership()),
}


@pytest.mark.parametrize("name", REAL)
def test_real_cgroups(name: str) -> None:
    text, place = REAL[name]
    membership = place_of(paths_of(text + "\n"))
    assert replace(membership, group=None) == place
    is_whole = (place.manager or "").startswith(WHOLE_JOBS)
    assert (membership.group is not None) is is_whole
    assert membership.group is None or membership.group in text


def test_the_order_of_hierarchies_does_not_matter() -> None:
    lines = V1_SLURM.split("\n")
    random.shuffle(lines)
    assert place_of(paths_of("\n".join(lines))).manager == f"slurm job {JOB}"


@pytest.mark.parametrize("text", [
    "0::/user.slice/user-1000.slice/user@1000.service/slurm/job_12/step_0",
    "0::/user.slice/user-1000.slice/user@1000.service/a\u20285:memory:/slurm/uid_0/job_12",
    "0::/user.slice/user-1000.slice/user@1000.service/a\x855:memory:/slurm/uid_0/job_12",
    "0::/user.slice/user-1000.slice/user@1000.service/a\r5:memory:/slurm/uid_0/job_12",
])
def test_nobody_makes_a_group_that_is_anothers_job(text: str) -> None:
    """Below a user's own systemd, people name groups as they like."""
    assert place_of(paths_of(text)).manager is None
    real = "5:memory:/slurm/uid_0/job_12"
    assert place_of(paths_of(real)).manager == "slurm job 12"


@pytest.mark.parametrize(("one", "other", "is_one"), [
    (f"0::/system.slice/docker-{ID}.scope", f"0::/system.slice/docker-{OUTER}.scope/docker/{ID}",
     False),
    (f"0::/docker/{ID}", f"0::/user.slice/user-1.slice/user@1.service/docker-{ID}.scope", False),
    (f"0::/docker/{ID}", f"0::/docker/{ID}/init.scope", True),
    (f"0::/kubepods/pod{UID}/{ID}", f"0::/kubepods/pod{UID}/{OUTER}", True),
    ("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0",
     "0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0", True),
    (V1_DOCKER, "\n".join(reversed(V1_DOCKER.split("\n"))), True),
])
def test_the_same_id_elsewhere_is_not_the_same_group(one: str, other: str, is_one: bool) -> None:
    """An act takes all that is in a group: who may make groups must not put themselves, or their
    neighbours, into it."""
    places = place_of(paths_of(one)), place_of(paths_of(other))
    assert places[0].manager == places[1].manager
    assert (places[0].group == places[1].group) is is_one


@pytest.mark.parametrize("text", [
    "", "\n\n", "garbage", "::::", "0::" + "/x" * 100_000, "0::/\ufffd\ufffd", "0::/slurm/job_",
    "0::/slurm/job_" + "9" * 400, f"0::/docker/{ID}{ID}", "0::/" + "kubepods" * 5_000,
    "0::/" + "slurm/" * 20_000,
])
def test_garbage_is_no_manager_and_takes_no_time(text: str) -> None:
    assert manager_of(text) is None
    assert place_of(paths_of(text)).manager is None


@pytest.mark.parametrize(("env", "manager"), [
    ({"SLURM_JOB_ID": "12"}, "slurm job 12"),
    ({"PBS_JOBID": "123[4].server.example.org"}, "pbs job 123[4].server.example.org"),
    ({"LSB_JOBID": "7"}, "lsf job 7"),
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-0"}, "kubernetes pod train-0"),
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "\x1b[2J"}, "kubernetes pod"),
    ({"SLURM_JOB_ID": "12; rm"}, None), ({"LSB_JOBID": "\u0661"}, None), ({}, None)])
def test_a_scheduler_is_known_by_its_variables(env: dict[str, str], manager: str | None) -> None:
    assert scheduler_of(env) == manager


def test_every_scheduler_has_its_own_verb() -> None:
    of = RungTarget((), RulesCeiling(True, False), None, False, 1, True, frozenset(), None, 0)
    for manager, verb in (("slurm job 12", "scancel 12"), ("pbs job 1.srv", "qdel 1.srv"),
                          ("lsf job 7", "bkill 7"), (SOME_SLURM_JOB, "scancel"),
                          ("kubernetes pod train-0", "kubectl delete pod train-0")):
        [refusal] = by_manager("end", replace(of, manager=manager))
        assert f"use `{verb}`" in refusal.sentence, manager
