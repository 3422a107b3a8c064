"""A Slurm cluster for the tests alone: Debian's munged, slurmctld and slurmd in a folder, with one
node of eight GPUs that are device files without a driver. Needs root.

`python -m tests.slurm_cluster linuxproc|cgroup FILE` runs one until it gets SIGTERM; it writes the
path of its configuration to FILE.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.fakes.hub import wait_for
from tests.machine import required
from tests.ports import free_port

NOBODY = 65_534
NODE = "gpu01"
GPUS = 8
CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
ProctrackType=proctrack/{tracks_by}
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmctldTimeout=300
SlurmdTimeout=0
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={daemon} Gres=gpu:h100:{gpus} \
CPUs=16 RealMemory=64000 State=UNKNOWN
PartitionName=main Nodes={node} Default=YES MaxTime=7-0 State=UP
"""
CGROUPS = Path("/sys/fs/cgroup")
FREEZER = CGROUPS / "freezer"  # of version 1, by which this Slurm tracks processes


class SlurmCluster:
    """`tracks_by`: how its daemons know the processes of a job."""

    def __init__(self, tracks_by: Literal["linuxproc", "cgroup"] = "linuxproc") -> None:
        self._tracks_by = tracks_by
        programs = {name: required(name) for name in ("munged", "slurmctld", "slurmd", "squeue")}
        if tracks_by == "cgroup" and not FREEZER.is_dir():
            pytest.skip(f"there is no {FREEZER}")
        if os.geteuid() != 0:
            pytest.skip("needs root, to make device files and to run jobs of others")
        # A job's own user goes through it, and a socket's path has 107 bytes at most.
        self.folder = Path(tempfile.mkdtemp(prefix="gd-slurm-"))
        self.folder.chmod(0o755)
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            # A hub that ran in this process has left it a umask for itself alone.
            umask = os.umask(0o022)
            try:
                self._write()
            finally:
                os.umask(umask)
            munge = self.folder / "munge"
            self._begin(programs["munged"], "-F", "--force", *(
                f"--{what}-file={munge / what}" for what in ("key", "pid", "log", "seed")),
                f"--socket={munge / 'socket'}")
            wait_for((munge / "socket").exists)
            self.controller = self._begin(programs["slurmctld"], "-D", "-i")
            self._begin(programs["slurmd"], "-D", "-N", NODE)
            wait_for(lambda: "idle" in self.run("sinfo", "-h", "-o", "%t", check=False))
        except BaseException:
            self.close()
            raise

    def _write(self) -> None:
        for name in ("state", "spool", "dev", "munge"):
            (self.folder / name).mkdir()
        for number in range(GPUS):
            os.mknod(self.folder / "dev" / f"gpu{number}", 0o20666, os.makedev(195, number))
        (self.folder / "munge" / "key").write_bytes(os.urandom(1_024))
        (self.folder / "munge" / "key").chmod(0o400)
        (self.folder / "gres.conf").write_text(
            f"Name=gpu Type=h100 File={self.folder}/dev/gpu[0-{GPUS - 1}]\n")
        (self.folder / "cgroup.conf").write_text(f"CgroupMountpoint={CGROUPS}\n")
        (self.folder / "slurm.conf").write_text(CONF.format(
            folder=self.folder, host=socket.gethostname().partition(".")[0], node=NODE, gpus=GPUS,
            tracks_by=self._tracks_by,
            controller=free_port(), daemon=free_port()))

    @property
    def conf(self) -> str:
        return str(self.folder / "slurm.conf")

    @property
    def env(self) -> dict[str, str]:
        return os.environ | {"SLURM_CONF": self.conf}

    def _begin(self, *words: str) -> "subprocess.Popen[bytes]":
        with open(self.folder / f"{Path(words[0]).name}.log", "wb") as log:
            process = subprocess.Popen(words, env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log, cwd="/", start_new_session=True)
        self._processes.append(process)
        return process

    def run(self, *words: str, uid: int = 0, check: bool = True) -> str:
        result = subprocess.run(words, env=self.env, capture_output=True, text=True, cwd="/tmp",
                                check=False, user=uid, group=uid, extra_groups=())
        assert result.returncode == 0 or not check, (words, result.stderr)
        return result.stdout.strip()

    def submit(self, *flags: str, uid: int = 0, script: str = "exec sleep 600") -> int:
        return int(self.run("sbatch", "--parsable", "--mem=10", "-o", "/dev/null", *flags,
                            f"--wrap={script}", uid=uid))

    def state(self, job: int) -> str:
        """Read the state of a job in another way than the product does."""
        job_text = self.run("scontrol", "show", "job", str(job), check=False)
        return job_text.partition("JobState=")[2].partition(" ")[0]

    def node_state(self) -> str:
        return self.run("scontrol", "show", "node", NODE).partition("State=")[2].partition(" ")[0]

    def close(self) -> None:
        for user in ("root", "nobody"):
            self.run("scancel", f"--user={user}", check=False)
        # Without its slurmd the process that watches over a step never ends.
        wait_for(lambda: not self.run("squeue", "--noheader", check=False))
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._tracks_by == "cgroup":
            wait_for(self._has_no_groups)

    def _has_no_groups(self) -> bool:
        """Remove the groups of ended steps: the process that watches over a step ends after it."""
        groups = FREEZER / f"slurm_{NODE}"
        try:
            for folder, _, _ in os.walk(groups, topdown=False):
                os.rmdir(folder)
        except OSError:
            return False
        return not groups.exists()


@contextmanager
def a_cluster(tracks_by: Literal["linuxproc", "cgroup"] = "linuxproc") -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(tracks_by)
    try:
        yield cluster
    finally:
        cluster.close()


def main(tracks_by: Any, file: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with a_cluster(tracks_by) as cluster:
        Path(file).write_text(cluster.conf)
        while True:
            signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
