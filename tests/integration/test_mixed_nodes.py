"""A node with boards of NVIDIA, AMD and Intel: the real agent with the C fake of NVML and captures
of the others' boards, against a hub. What one driver does takes nothing of the others' away."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gpudeck.contract.actions import Reply
from gpudeck.contract.wire import GPU_STATES, Event, Frame, GpuFacts, unpack
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence
from tests.fakes.amd import RX6900XT, RX6900XT_UUID, VEGA56, FakeAmd
from tests.fakes.children import Child, Children, a_ceiling, wait_until_old
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.intel import FakeIntel
from tests.fakes.nvml import FakeNvml
from tests.integration.hubs import HubProcess

ROOT = Path(__file__).parents[2]
MIB = 2**20
LIMIT = "nvmlDeviceSetPowerManagementLimit"
STATUS = "import sys; from agent.cli.main import status; sys.exit(status(sys.argv[1:]))"
HOLD = "import sys; from agent.cli.hold import hold; sys.exit(hold(sys.argv[1:]))"
RELEASE = "import sys; from agent.cli.hold import release; sys.exit(release(sys.argv[1:]))"
PATIENT_S = 25.0


class MixedNode:
    """Machine with two boards of each vendor, and what a hub knows of it."""

    def __init__(self, hub: FakeHub, folder: Path, real: HubProcess | None = None,
                 backend: str = "nvml,amd") -> None:
        """`real`: the hub that it reports to in place of the fake one."""
        self.hub, self.folder, self.backend = hub, folder, backend
        self.url, token = (hub.url, hub.token()) if real is None else (real.url, real.token())
        self.nvml = FakeNvml(folder / "nvml.txt", gpus=2)
        self.amd = FakeAmd(folder / "machine", RX6900XT, VEGA56)
        for gpu in self.nvml.gpus:
            gpu.update(mem_used=0, mem_adds=1)
        self.nvml.save()
        self.ceiling = a_ceiling(folder)
        self.token = folder / "token"
        self.token.write_text(token.text + "\n")

    @property
    def nvidia(self) -> list[str]:
        return [str(gpu["uuid"]) for gpu in self.nvml.gpus]

    @contextmanager
    def agent(self) -> Iterator["subprocess.Popen[bytes]"]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                self.amd.command([sys.executable, "-m", "agent", "--backend", self.backend, "--hub",
                                  self.url, "--data", str(self.folder / "data"),
                                  "--token-file", str(self.token), "--ceiling",
                                  str(self.ceiling)]),
                cwd=ROOT, env=self.nvml.env(), stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
            process.wait()

    def run(self, program: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of the terminal where it finds these boards. One that waits for a driver
        that hangs takes 30 s and more: this is a measure of that."""
        return subprocess.run(
            self.amd.command([sys.executable, "-c", program, *words]), cwd=ROOT, check=False,
            env=self.nvml.env(), capture_output=True, text=True, timeout=PATIENT_S)

    def reader_of(self, agent: int, backend: str) -> int | None:
        """Return the process of the agent that reads a backend; None: there is none now."""
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0") if (
                    folder.name.isdigit()) else []
                if backend.encode() in words and any(
                        word.endswith(b"reader.watchdog") for word in words) and (
                        f"PPid:\t{agent}\n" in (folder / "status").read_text()):
                    return int(folder.name)
        return None

    def garble(self, reader: int) -> None:
        """Write into the pipe through which a process hands over what it reads."""
        for file in Path(f"/proc/{reader}/fd").iterdir():
            if int(file.name) > 2 and os.readlink(file).startswith("pipe:"):
                with open(file, "wb", buffering=0) as pipe:
                    pipe.write(os.urandom(4) + b"\xff" * 64)
                return
        raise AssertionError("it has no such pipe")

    def frames(self) -> list[Frame]:
        messages = self.hub.messages[self.hub.stream] if self.hub.hellos else {}
        return [message for _, message in sorted(messages.items()) if isinstance(message, Frame)]

    def events(self, kind: str) -> list[Event]:
        messages = self.hub.messages[self.hub.stream] if self.hub.hellos else {}
        return [message for _, message in sorted(messages.items())
                if isinstance(message, Event) and message.kind == kind]

    def facts(self) -> tuple[GpuFacts, ...]:
        """Return the GPUs of the newest frame."""
        frames = self.frames()
        inventory = self.hub.inventories.get(frames[-1].generation) if frames else None
        return () if inventory is None else inventory.gpus

    def states(self) -> dict[str, str]:
        facts = self.facts()
        return {gpu.uuid: GPU_STATES[state]
                for gpu, state in zip(facts, self.frames()[-1].states, strict=False)}

    def value(self, uuid: str, key: str) -> float | None:
        frame = self.frames()[-1]
        at = [gpu.uuid for gpu in self.facts()].index(uuid) * WIDTH + COLUMN[key]
        return unpack(frame.values)[at] if frame.absent[at] == Absence.PRESENT else None

    def tasks(self) -> set[tuple[str, int]]:
        """Return all (GPU, pid) that were ever reported."""
        pids = {task.id: task.pid for frame in self.frames() if frame.tasks is not None
                for task in frame.tasks.began}
        facts = [gpu.uuid for gpu in self.facts()]
        return {(facts[use.gpu], pids[use.task_id]) for frame in self.frames()
                if frame.tasks is not None for use in frame.tasks.uses if use.gpu < len(facts)}

    def end(self, child: Child) -> Reply:
        wait_until_old(child)
        preview = self.hub.look(child.task_id, "end", grace_s=5.0)
        assert preview.refusals == ()
        return self.hub.reply(self.hub.send(self.hub.order(preview)))

    def hang_amd(self) -> None:
        """Let a board's file hang whoever opens it, as a driver in a reset may."""
        file = self.amd.device() / "gpu_busy_percent"
        file.unlink()
        os.mkfifo(file)

    def heal_amd(self) -> None:
        file = self.amd.device() / "gpu_busy_percent"
        pipe = file.with_name("hangs")
        file.rename(pipe)
        file.write_text("7\n")
        # Whoever hangs in it reads to its end.
        with suppress(OSError):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


@pytest.fixture
def node(hub: FakeHub, tmp_path: Path) -> MixedNode:
    if os.geteuid() != 0:
        pytest.skip("files are mounted by root")
    return MixedNode(hub, tmp_path)


@pytest.fixture
def children() -> Iterator[Children]:
    children = Children()
    yield children
    children.close()


def test_boards_of_both_have_their_own_facts_numbers_and_tasks(
        node: MixedNode, children: Children) -> None:
    first, second = children.start(), children.start()
    node.nvml.gpus[1].process(first.pid, 300 * MIB)
    node.nvml.gpus[0]["util"] = 41
    node.nvml.save()
    node.amd.compute(second.pid, 500 * MIB)
    (node.amd.device() / "gpu_busy_percent").write_text("73\n")
    with node.agent():
        wait_for(lambda: len(node.facts()) == 4)
        assert [gpu.index for gpu in node.facts()] == [0, 1, 2, 3]
        assert [gpu.uuid for gpu in node.facts()][:3] == [*node.nvidia, RX6900XT_UUID]
        drivers = [gpu.driver for gpu in node.facts()]
        assert drivers[:2] == [node.nvml.driver] * 2
        assert all(str(driver).startswith("Linux ") for driver in drivers[2:])
        assert "AMD" in node.facts()[2].name
        assert node.hub.hellos[-1].backend == "nvml,amd"
        wait_for(lambda: node.value(node.nvidia[0], "util_pct") == 41)
        wait_for(lambda: node.value(RX6900XT_UUID, "util_pct") == 73)
        wait_for(lambda: {(node.nvidia[1], first.pid), (RX6900XT_UUID, second.pid)}
                 <= node.tasks())
        assert set(node.states().values()) == {"ok"}


def test_a_driver_that_hangs_takes_nothing_of_the_other_away(
        node: MixedNode, children: Children) -> None:
    first, second, bystander = (children.start() for _ in range(3))
    node.nvml.gpus[1].process(first.pid, 300 * MIB)
    node.nvml.gpus[0].process(bystander.pid, 200 * MIB)
    node.nvml.save()
    node.amd.compute(second.pid, 500 * MIB)
    with node.agent():
        wait_for(lambda: {(node.nvidia[1], first.pid), (RX6900XT_UUID, second.pid)}
                 <= node.tasks())
        node.hang_amd()
        wait_for(lambda: node.states()[RX6900XT_UUID] == "stale")
        assert {node.states()[uuid] for uuid in node.nvidia} == {"ok"}
        assert node.value(RX6900XT_UUID, "util_pct") is None
        assert len(node.facts()) == 4, "its boards stay in the list"
        [event] = wait_for(lambda: node.events("reader_hung"))
        assert event.text.startswith("AMD: ")
        wait_for(lambda: node.hub.beats[-1][1].detail.startswith("AMD: "))
        assert node.hub.beats[-1][1].reader == "ok"
        node.nvml.gpus[0]["util"] = 87
        node.nvml.save()
        wait_for(lambda: node.value(node.nvidia[0], "util_pct") == 87)
        preview = node.hub.look(second.task_id, "end", grace_s=5.0)
        assert [refusal.code for refusal in preview.refusals] == ["unreadable"]
        reply = node.end(first)
        assert reply.state == "done", reply
        assert second.is_alive()
        assert bystander.is_alive()
        node.heal_amd()
        wait_for(lambda: node.states()[RX6900XT_UUID] == "ok")
        wait_for(lambda: node.value(RX6900XT_UUID, "util_pct") == 7)
        assert [event.text for event in wait_for(lambda: node.events("reader_back"))] == [
            "AMD: the driver answers again"]
        assert node.hub.look(second.task_id, "end", grace_s=5.0).refusals == ()
        assert node.hub.broken == []


def test_boards_of_a_driver_that_is_gone_at_the_start_are_still_there(node: MixedNode) -> None:
    """Show them after a restart, when nothing of them was read: the hub must not take them for
    removed."""
    with node.agent():
        wait_for(lambda: len(node.facts()) == 4 and set(node.states().values()) == {"ok"})
        before = node.facts()
    count = len(node.frames())
    node.nvml.unload()
    with node.agent():
        wait_for(lambda: len(node.frames()) > count + 2)
        wait_for(lambda: node.states()[RX6900XT_UUID] == "ok")
        assert {node.states()[uuid] for uuid in node.nvidia} == {"stale"}
        assert [(gpu.uuid, gpu.index) for gpu in node.facts()] == [
            (gpu.uuid, gpu.index) for gpu in before]
        assert node.events("gpu_removed") == []
        node.nvml.load()
        wait_for(lambda: set(node.states().values()) == {"ok"})


@pytest.mark.parametrize("trouble", ["killed", "garbled"])
def test_a_reader_that_ends_takes_nothing_of_the_other_away(node: MixedNode, trouble: str) -> None:
    with node.agent() as agent:
        wait_for(lambda: len(node.facts()) == 4 and set(node.states().values()) == {"ok"})
        reader = node.reader_of(agent.pid, "amd")
        other, count = node.reader_of(agent.pid, "nvml"), len(node.frames())
        assert reader is not None
        if trouble == "killed":
            os.kill(reader, signal.SIGKILL)
        else:
            node.garble(reader)
        [event] = wait_for(lambda: node.events("reader_failed"))
        assert event.text.startswith("AMD: the reading process ended")
        wait_for(lambda: node.events("reader_back"))
        wait_for(lambda: node.states()[RX6900XT_UUID] == "ok" and node.reader_of(agent.pid, "amd")
                 not in (reader, None))
        assert node.reader_of(agent.pid, "nvml") == other, "it was not disturbed"
        facts = node.facts()
        for frame in node.frames()[count:]:
            of = dict(zip((gpu.uuid for gpu in facts), frame.states, strict=False))
            assert {GPU_STATES[of[uuid]] for uuid in node.nvidia} == {"ok"}


def test_a_driver_that_is_loaded_again_is_read_again(node: MixedNode) -> None:
    with node.agent():
        wait_for(lambda: len(node.facts()) == 4 and set(node.states().values()) == {"ok"})
        for card in (0, 1):
            (node.amd.drm / f"card{card}").rename(node.folder / f"away{card}")
        wait_for(lambda: node.states()[RX6900XT_UUID] == "lost")
        assert {node.states()[uuid] for uuid in node.nvidia} == {"ok"}
        for card in (0, 1):
            (node.folder / f"away{card}").rename(node.amd.drm / f"card{card}")
        wait_for(lambda: set(node.states().values()) == {"ok"})
        assert node.hub.broken == []


def test_a_release_is_of_one_driver(node: MixedNode) -> None:
    data = ["--data", str(node.folder / "data")]
    with node.agent() as agent:
        wait_for(lambda: len(node.facts()) == 4 and set(node.states().values()) == {"ok"})
        other, count = node.reader_of(agent.pid, "nvml"), len(node.frames())
        result = node.run(HOLD, *data, "--driver", "amd", "--reason", "a new board")
        assert result.returncode == 0, result
        assert node.reader_of(agent.pid, "amd") is None
        wait_for(lambda: node.states()[RX6900XT_UUID] == "stale")
        assert node.hub.beats[-1][1].reader == "ok"
        wait_for(lambda: "AMD: AMD's driver released by" in node.hub.beats[-1][1].detail)
        assert node.reader_of(agent.pid, "nvml") == other
        assert node.run(RELEASE, *data, "--driver", "amd").returncode == 0
        wait_for(lambda: set(node.states().values()) == {"ok"})
        facts = node.facts()
        for frame in node.frames()[count:]:
            of = dict(zip((gpu.uuid for gpu in facts), frame.states, strict=False))
            assert {GPU_STATES[of[uuid]] for uuid in node.nvidia} == {"ok"}


def test_a_terminal_does_not_wait_for_a_driver_that_hangs(node: MixedNode) -> None:
    node.nvml.lines = ["hang nvmlInitWithFlags"]
    node.nvml.save()
    (node.amd.device() / "power/runtime_status").write_text("suspended\n")
    result = node.run(STATUS, "--backend", node.backend, "--data", str(node.folder / "none"),
                     "--json")
    assert result.returncode == 0, result
    document = json.loads(result.stdout)
    assert {gpu["uuid"]: gpu["state"] for gpu in document["items"]}[RX6900XT_UUID] == "ok"
    detail = document["reader"]["detail"]
    assert "NVIDIA: the driver has not answered yet." in detail
    assert "is asleep (powered down)" in detail


def test_without_rights_the_numbers_are_denied_and_the_boards_are_there(node: MixedNode) -> None:
    device = node.amd.device()
    for name in ("gpu_busy_percent", "mem_info_vram_used"):
        (device / name).chmod(0)
    words = node.amd.command(["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable,
                              "-c", STATUS, "--backend", node.backend, "--data",
                              str(node.folder / "none"), "--json"])
    result = subprocess.run(words, cwd=ROOT, check=False, env=node.nvml.env(), capture_output=True,
                           text=True, timeout=PATIENT_S)
    assert result.returncode == 0, result
    gpus = {gpu["uuid"]: gpu for gpu in json.loads(result.stdout)["items"]}
    assert {gpu["state"] for gpu in gpus.values()} == {"ok"}
    board = gpus[RX6900XT_UUID]
    assert (board["missing"]["util_pct"], board["values"]["temp_c"]) == ("denied", 56)
    assert "util_pct" in gpus[node.nvidia[0]]["values"]


def test_three_vendors_in_one_node(hub: FakeHub, tmp_path: Path, node: MixedNode) -> None:
    del node  # it skips where nothing can be mounted
    (tmp_path / "three").mkdir()
    three = MixedNode(hub, tmp_path / "three", backend="nvml,amd,intel")
    FakeIntel(three.amd.root).add("b580", 2)
    with three.agent():
        wait_for(lambda: len(three.facts()) == 5)
        assert [gpu.index for gpu in three.facts()] == [0, 1, 2, 3, 4]
        intel = three.facts()[4]
        assert intel.uuid.startswith("INTEL-")
        wait_for(lambda: set(three.states().values()) == {"ok"})
        wait_for(lambda: three.value(intel.uuid, "temp_c") == 54)
        assert str(intel.driver).startswith("xe, Linux ")


def test_a_hub_shows_each_board_as_it_is(hub: FakeHub, tmp_path: Path, node: MixedNode) -> None:
    """Restart the hub and the agent meanwhile."""
    del node  # it skips where nothing can be mounted
    with HubProcess(tmp_path / "hub") as real:
        (tmp_path / "node").mkdir()
        node = MixedNode(hub, tmp_path / "node", real)

        def gpus() -> dict[str, Any]:
            items = real.get("/api/v1/gpus?limit=100")["items"]
            return {item["uuid"]: item for item in items if item["state"] != "stale"}

        for _ in range(2):
            with node.agent():
                wait_for(lambda: len(gpus()) == 4)
                views = gpus()
                assert [views[uuid]["place"] for uuid in (*node.nvidia, RX6900XT_UUID)] == [
                    "0", "1", "2"]
                assert views[RX6900XT_UUID]["facts"]["driver"].startswith("Linux ")
                [machine] = real.get("/api/v1/nodes")["items"]
                assert machine["driver_version"].startswith(f"{node.nvml.driver} (NVIDIA), Linux ")
                assert machine["driver_version"].endswith(" (AMD)")
                labels = [line for line in real.ask("/metrics").body.decode().splitlines()
                          if line.startswith("DCGM_FI_DEV_GPU_TEMP{") and RX6900XT_UUID in line]
                assert len(labels) == 1
                assert 'DCGM_FI_DRIVER_VERSION="Linux ' in labels[0]
                assert "nvidia" not in labels[0].partition("Hostname=")[0]
                real.stop()
                real.start()
                wait_for(lambda: len(gpus()) == 4)
        assert "Traceback" not in real.log.read_text()
