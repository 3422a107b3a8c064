"""An agent and a forge of pids in their own PID namespace, with a hub outside of it."""

import hashlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.journal.store import ActionJournal, ActionStore
from agent.link.identity import node_key
from agent.tasks.boot_id import boot_id
from agent.tasks.processes import CGROUP_MAX, has_pidfs
from gpudeck.audit.chain import verify
from gpudeck.contract.actions import (
    FINAL,
    ActionParams,
    HeldGpu,
    Preview,
    ProcessIdentity,
    Reply,
    Victim,
)
from gpudeck.contract.wire import preview_statement
from gpudeck.network.keys import fingerprint
from tests.fakes.children import a_ceiling
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeNvml
from tests.faults.forging import Forge

ROOT = Path(__file__).parents[2]
INTO = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
PATIENCE_S = 300.0  # a batch is hundreds of orders, each on disk before it is answered
Identity = dict[str, Any]  # the fields of a gpudeck.contract.actions.Process


@cache
def why_not() -> str:
    """Return why this machine cannot have a PID namespace in which we choose pids; "" if it can."""
    if os.geteuid() != 0:
        return "needs root, to choose the next pid"
    if shutil.which("unshare") is None:
        return "needs unshare, of util-linux"
    probe = subprocess.run([*INTO, "sh", "-c", "echo 100 > /proc/sys/kernel/ns_last_pid"],
                           capture_output=True, text=True, check=False)
    return f"no PID namespace here: {probe.stderr.strip()}" if probe.returncode else ""


@dataclass
class Bed:
    hub: FakeHub
    forge: Forge
    nvml: FakeNvml
    data: Path
    bystander: Identity = field(default_factory=dict)

    @property
    def gpu(self) -> str:
        return self.nvml.gpus[0].uuid

    def lists(self, *processes: tuple[int, int]) -> None:
        """Let the driver list these processes, by pid and start, beside the bystander."""
        everyone = [(self.bystander["pid"], self.bystander["start_ticks"]), *processes]
        self.nvml.gpus[0].lines = [
            f"process 0 compute {pid} {2**30} started={ticks}" for pid, ticks in everyone]
        self.nvml.save()

    def shows(self, was: Identity) -> Preview:
        """Preview as the node would have made it while the task was alive: signed by its key."""
        key = node_key(self.data)
        victim = Victim(as_shown(was), "python train.py", "root", task_id(was),
                        (HeldGpu(self.gpu, float(2**30)),))
        preview = Preview(
            ask_id=secrets.token_hex(8), nonce=secrets.token_bytes(32),
            node_id=fingerprint(key.public), boot_id=boot_id(), taken_at=time.time(),
            action="end", params=ActionParams(grace_s=5.0), task_id=task_id(was), job_id=None,
            owner="root", age_s=60.0, kind="compute", manager=None, victims=(victim,),
            bystanders=(), key=key.public)
        return msgspec.structs.replace(preview, signature=key.sign(preview_statement(preview)))

    def send(self, previews: list[Preview]) -> list[str]:
        return [self.hub.send(self.hub.order(preview)) for preview in previews]

    def order(self, previews: list[Preview]) -> list[Reply]:
        """Send commands and return their outcomes; all are sent before the first is awaited."""
        return self.outcomes(self.send(previews))

    def outcomes(self, ids: list[str]) -> list[Reply]:
        def newest(command_id: str) -> Reply | None:
            final = [reply for reply in self.hub.replies[command_id] if reply.state in FINAL]
            return final[-1] if final else None

        wait_for(lambda: all(newest(command_id) for command_id in ids), PATIENCE_S)
        replies = [reply for command_id in ids if (reply := newest(command_id)) is not None]
        for command_id in ids:  # a million of them would be a lot to keep
            del self.hub.replies[command_id]
        return replies

    def reconnect(self) -> None:
        count = len(self.hub.hellos)
        self.hub.drop_all()
        wait_for(lambda: len(self.hub.hellos) > count and self.hub._streams, PATIENCE_S)

    def check(self) -> None:
        assert self.forge.ask("is_running", pid=self.bystander["pid"])
        assert self.hub.broken == []
        assert verify(ActionJournal(ActionStore(self.data / "acts.db")).audit.links()) is None


def as_shown(was: Identity) -> ProcessIdentity:
    """Identity in the form of agent/tasks/processes.py. `a_bed` compares the two."""
    cgroup = was["cgroup"]
    if len(cgroup) > CGROUP_MAX:
        cgroup = hashlib.sha256(cgroup.encode()).hexdigest()
    inode = was["pidfs_inode"] if has_pidfs() else None
    return ProcessIdentity(**{**was, "cgroup": cgroup, "pidfs_inode": inode})


def task_id(was: Identity) -> str:
    return f"{boot_id()[:8]}-{was['pid']}-{was['start_ticks']}"


@contextmanager
def a_bed(folder: Path, **ceiling: Any) -> Iterator[Bed]:
    if why := why_not():
        pytest.skip(why)
    hub, forge = FakeHub(), Forge(*INTO)
    # On a disk each commit is an fsync; what is measured here is not that disk.
    shm = Path("/dev/shm")
    data = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else folder, prefix="gpudeck-reuse-"))
    bed = Bed(hub, forge, FakeNvml(folder, gpus=1), data)
    bed.nvml.gpus[0].update(mem_adds=1, mem_used=2**20, mem_total=80 * 2**30)
    try:
        bed.bystander = forge.ask("live", count=1)[0]
        bed.lists()
        a_ceiling(data, kills_per_hour=10**7, **ceiling)
        (data / "token").write_text(hub.token().text)
        (data / "token").chmod(0o600)
        node_key(data)
        argv = [sys.executable, "-m", "agent", "--hub", hub.url, "--token-file",
                str(data / "token"), "--data", str(data), "--backend", "nvml", "--ceiling",
                str(data / "ceiling.toml")]
        forge.ask("program", argv=argv, env=bed.nvml.env(), cwd=str(ROOT),
                  log=str(folder / "agent.log"))
        wait_for(lambda: [1 for _, beat in hub.beats if beat.reader == "ok"], PATIENCE_S)
        # Else every command would be refused for a reason that says nothing of pids.
        [victim] = hub.look(task_id(bed.bystander)).victims
        assert victim.process == as_shown(bed.bystander)
        yield bed
    except AssertionError:
        print((folder / "agent.log").read_text()[-3_000:])
        raise
    finally:
        forge.close()
        hub.close()
        shutil.rmtree(data)
