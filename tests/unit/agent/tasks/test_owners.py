"""Launch, rank, notebook and job, from environments and command lines: tables."""

import random

import pytest

from agent.readings import Owner
from agent.tasks.managers import CgroupMembership
from agent.tasks.owners import (
    VARIABLES,
    Launch,
    WorkloadNames,
    launch_of,
    notebook_of,
    owner_of,
)
from agent.tasks.wire_text import TEXT_MAX, WORD_MAX, cut

RANK = random.randrange(2, 1_000)
PORT = random.randrange(1_024, 65_536)
HERE = "0b1c2d3e"


def torch(**more: str) -> dict[str, str]:
    return {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": str(PORT), "RANK": str(RANK),
            "WORLD_SIZE": "2000", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "llama"} | more


LAUNCHES = {
    "torchrun over nodes": (torch(), Launch(f"torchrun 10.0.0.1:{PORT}/llama", RANK)),
    "torchrun, static": (torch(TORCHELASTIC_RUN_ID="none"),
                         Launch(f"torchrun 10.0.0.1:{PORT}/none", RANK)),
    "torchrun on one node": (torch(WORLD_SIZE="8", RANK="3"),
                             Launch(f"torchrun 10.0.0.1:{PORT}/llama on {HERE}", 3)),
    "torchrun --standalone": (torch(MASTER_ADDR="localhost"),
                              Launch(f"torchrun localhost:{PORT}/llama on {HERE}", RANK)),
    "loopback is another machine on each": (
        torch(MASTER_ADDR="127.0.0.1"), Launch(f"torchrun 127.0.0.1:{PORT}/llama on {HERE}", RANK)),
    "one process": (torch(WORLD_SIZE="1", RANK="0"), Launch()),
    "PyTorchJob": ({"MASTER_ADDR": "bert-master-0", "MASTER_PORT": "23456", "RANK": "1",
                    "WORLD_SIZE": "4"}, Launch("torchrun team-a/bert-master-0:23456", 1)),
    "deepspeed": ({"MASTER_ADDR": "n1.example", "MASTER_PORT": "29500", "RANK": "0",
                   "WORLD_SIZE": "16", "LOCAL_RANK": "0"}, Launch("torchrun n1.example:29500", 0)),
    "torchrun inside Slurm": (torch(SLURM_JOB_ID="12", SLURM_STEP_ID="0", SLURM_PROCID="1",
                                    SLURM_NTASKS="2"),
                              Launch(f"torchrun 10.0.0.1:{PORT}/llama", RANK)),
    "Open MPI": ({"OMPI_COMM_WORLD_RANK": str(RANK), "OMPI_COMM_WORLD_SIZE": "2000",
                  "PMIX_NAMESPACE": "prterun-n1-4711@1"}, Launch("mpirun prterun-n1-4711@1", RANK)),
    "Open MPI, one": ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1",
                       "PMIX_NAMESPACE": "x"}, Launch(None, 0)),
    "MPICH": ({"PMI_RANK": str(RANK), "PMI_SIZE": "2000"}, Launch(None, RANK)),
    "srun": ({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(RANK),
              "SLURM_NTASKS": "2000", "PMI_RANK": "7", "PMI_SIZE": "2000"},
             Launch("slurm 12.0", RANK)),
    "srun, a named cluster": ({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3", "SLURM_PROCID": "0",
                               "SLURM_NTASKS": "2", "SLURM_CLUSTER_NAME": "c1"},
                              Launch("slurm c1 12.3", 0)),
    "sbatch's own script": ({"SLURM_JOB_ID": "12", "SLURM_PROCID": "0", "SLURM_NTASKS": "16"},
                            Launch()),
    "a batch step": ({"SLURM_JOB_ID": "12", "SLURM_PROCID": "0", "SLURM_NTASKS": "16",
                      "SLURM_STEP_ID": "4294967291"}, Launch()),
    "nothing": ({}, Launch()),
    "no port": (torch(MASTER_PORT="auto"), Launch()),
    "no number": (torch(RANK="-1"), Launch()),
    "digits of others": (torch(RANK="\u0663"), Launch()),
    "too big": (torch(RANK="9" * 30), Launch()),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_launches(name: str) -> None:
    env, launch = LAUNCHES[name]
    assert launch_of(env, HERE, "team-a") == launch


def test_ranks_of_one_launch_share_its_name_and_no_others_do() -> None:
    """Across nodes; and what is at home on each node never joins two of them."""
    ranks = [launch_of(torch(RANK=str(rank)), node).name
             for rank, node in enumerate(("a", "a", "b", "b"))]
    assert len(set(ranks)) == 1
    at_home = {launch_of(torch(MASTER_ADDR="localhost"), node).name for node in "ab"}
    assert len(at_home) == 2
    in_docker = {launch_of(torch(MASTER_ADDR="172.17.0.2", WORLD_SIZE="8"), node).name
                 for node in "ab"}
    assert len(in_docker) == 2
    containers = {owner_of(CgroupMembership(container=container), (),
                           torch(MASTER_ADDR="127.0.0.1"), HERE
                           ).launch for container in (CONTAINER, CONTAINER[::-1])}
    assert len(containers) == 2
    pods = {launch_of(torch(MASTER_ADDR="job-0"), HERE, space).name for space in ("x", "y")}
    assert len(pods) == 2


KERNEL = "a1b2c3d4-0000-4000-8000-9c1f0e7d52ab"  # one for all: it is in the tests' names
BOOK = "/home/alice/explore.ipynb"


@pytest.mark.parametrize(("words", "env", "notebook"), [
    (("python", "-m", "ipykernel_launcher", "-f", f"/run/kernel-{KERNEL}.json"), {},
     f"kernel {KERNEL}"),
    (("python", "-m", "ipykernel_launcher", "-f", f"/run/kernel-{KERNEL}.json"),
     {"JPY_SESSION_NAME": BOOK}, BOOK),
    (("/opt/venv/bin/python3", "-Xfrozen_modules=off", "-m", "ipykernel_launcher",
      f"--f=/home/a/.local/share/jupyter/runtime/kernel-v2-{KERNEL}.json"), {},
     f"kernel v2-{KERNEL}"),
    (("/usr/bin/python3", "-m", "colab_kernel_launcher", "-f", f"/root/kernel-{KERNEL}.json"), {},
     f"kernel {KERNEL}"),
    (("python", "train.py"), {"JPY_SESSION_NAME": BOOK}, None),
    (("python", "-m", "jupyterlab"), {}, None),
    (("python", "-m", "ipykernel_launcher"), {"JPY_SESSION_NAME": BOOK}, None),
    ((), {"JPY_SESSION_NAME": BOOK}, None),
])
def test_notebooks(words: tuple[str, ...], env: dict[str, str], notebook: str | None) -> None:
    assert notebook_of(words, env) == notebook


UID = "1b2c3d4e-0001-0002-0003-0123456789ab"
CONTAINER = "3fa9" + "c" * 60


@pytest.mark.parametrize(("place", "env", "names", "owner"), [
    (CgroupMembership(pod_uid=UID, container=CONTAINER), {}, WorkloadNames(),
     Owner(manager=f"pod {UID}", pod=UID, container=CONTAINER)),
    (CgroupMembership(pod_uid=UID), {"POD_NAME": "bert-0", "POD_NAMESPACE": "team"},
     WorkloadNames(),
     Owner(manager=f"pod {UID}", pod="bert-0", namespace="team")),
    (CgroupMembership(pod_uid=UID), {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": "bert-0"},
     WorkloadNames(),
     Owner(manager=f"pod {UID}", pod="bert-0")),
    (CgroupMembership(pod_uid=UID, container=CONTAINER), {"POD_NAME": "what it says itself"},
     WorkloadNames("trainer", "bert-0", "team"),
     Owner(manager=f"pod {UID}", pod="bert-0", namespace="team", container=CONTAINER,
           container_name="trainer")),
    (CgroupMembership(), {"HOSTNAME": "a-laptop", "POD_NAME": "x"}, WorkloadNames(), Owner()),
    (CgroupMembership(), {"SLURM_JOB_ID": "99"}, WorkloadNames(), Owner(slurm_job="99")),
    (CgroupMembership(slurm_job="12"), {"SLURM_JOB_ID": "99"}, WorkloadNames(),
     Owner(manager="slurm job 12", slurm_job="12")),
    (CgroupMembership(), {"SLURM_JOB_ID": "99; rm -rf"}, WorkloadNames(), Owner()),
    (CgroupMembership(user_unit="train.service"), {}, WorkloadNames(), Owner(unit="train.service")),
    (CgroupMembership(unit="train.service"), {}, WorkloadNames(),
     Owner(unit="train.service", manager="unit train.service")),
])
def test_owners(place: CgroupMembership, env: dict[str, str], names: WorkloadNames,
                owner: Owner) -> None:
    assert owner_of(place, (), env, HERE, names) == owner


def test_hostile_names_are_cut_and_cleaned() -> None:
    evil = "a\x00\x1b[31m\u202e\ud800b\n" + "x" * 10_000
    env = torch(MASTER_ADDR=evil) | {"POD_NAME": evil, "JPY_SESSION_NAME": evil}
    owner = owner_of(CgroupMembership(pod_uid=UID), ("ipykernel", "-f", "kernel-1.json"), env, HERE,
                     WorkloadNames(evil, None, evil))
    for text, most in ((owner.pod, WORD_MAX), (owner.namespace, WORD_MAX),
                       (owner.container_name, WORD_MAX), (owner.launch, TEXT_MAX),
                       (owner.notebook, TEXT_MAX)):
        assert text is not None
        assert len(text) <= most
        assert text.isprintable()
    assert cut("\n\t ") is None
    assert cut(None) is None


def test_a_notebooks_name_keeps_no_secret() -> None:
    secret = f"s3cr3t{random.getrandbits(64):x}"
    owner = owner_of(CgroupMembership(), ("ipykernel", "kernel-1.json"),
                     {"JPY_SESSION_NAME": f"x.ipynb?token={secret}"}, HERE)
    assert owner.notebook is not None
    assert secret not in owner.notebook


def test_no_variable_that_holds_a_secret_is_asked_for() -> None:
    assert not [name for name in VARIABLES
                if any(word in name for word in ("TOKEN", "KEY", "SECRET", "PASS", "AUTH"))]
