"""Numbers of the collector, beside what psutil reads of the same counters in the same second; and
hosts as files that a test writes."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.hosts.collector import HostCollector
from gpudeck.contract.hosts import HOST_KEYS, HostSample

BURN = """
import os, subprocess, sys, tempfile
child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
block, kept = os.urandom(1 << 20), bytearray(64 << 20)
with tempfile.NamedTemporaryFile(dir=sys.argv[1]) as file:
    print("ready", flush=True)
    while True:
        file.seek(0)
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
"""


@pytest.fixture(name="burner")
def _burner(tmp_path: Path) -> Iterator[psutil.Process]:
    """A task that computes in a child, and writes."""
    process = subprocess.Popen([sys.executable, "-c", BURN, str(tmp_path)],
                               stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    burner = psutil.Process(process.pid)
    yield burner
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def counters() -> dict[str, float]:
    cpu, disk = psutil.cpu_times(), psutil.disk_io_counters(perdisk=True)
    whole = {name: stats for name, stats in disk.items() if name in os.listdir("/sys/block")
             and not name.startswith(("loop", "ram", "zram", "dm-", "md", "sr", "nbd"))}
    total = sum(getattr(cpu, name) for name in (
        "user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"))
    return {"busy": total - cpu.idle - cpu.iowait, "total": total,
            "disk_read_bytes_per_s": sum(stats.read_bytes for stats in whole.values()),
            "disk_write_bytes_per_s": sum(stats.write_bytes for stats in whole.values())}


def of_task(process: psutil.Process) -> dict[str, float]:
    tree = [process, *process.children(recursive=True)]
    times = [member.cpu_times() for member in tree]
    return {"cpu_pct": sum(cpu.user + cpu.system for cpu in times),
            "write_bytes_per_s": process.io_counters().write_bytes,
            "mem_bytes": sum(member.memory_info().rss for member in tree)}


def test_as_psutil_reads_it_in_the_same_second(burner: psutil.Process) -> None:
    """psutil looks before and after each look of the collector: what lies between the two looks
    cannot be less than the inner two say, nor more than the outer two."""
    if os.getuid() != 0 and burner.username() != psutil.Process().username():
        pytest.skip("/proc/PID/io is the owner's")
    collector, ticks = HostCollector(), 1 / os.sysconf("SC_CLK_TCK")
    first, mine = counters(), of_task(burner)
    collector.collect([("task", burner.pid)])
    began = time.monotonic()
    second, mine_second = counters(), of_task(burner)
    time.sleep(1.5)
    third, mine_third = counters(), of_task(burner)
    seconds_low = time.monotonic() - began
    sample = collector.collect([("task", burner.pid)])
    last, mine_last = counters(), of_task(burner)
    seconds = collector._clock() - began
    for key in ("disk_read_bytes_per_s", "disk_write_bytes_per_s"):
        low, high = (third[key] - second[key]) / seconds, (last[key] - first[key]) / seconds_low
        assert low * 0.98 - 1 <= sample.numbers[key] <= high * 1.02 + 1, key
    assert sample.numbers["disk_write_bytes_per_s"] > 0
    low = (third["busy"] - second["busy"]) / (last["total"] - first["total"])
    high = (last["busy"] - first["busy"]) / (third["total"] - second["total"])
    assert 100 * low - 0.5 <= sample.numbers["cpu_pct"] <= min(100.0, 100 * high) + 0.5
    memory = psutil.virtual_memory()
    assert sample.numbers["mem_total_bytes"] == memory.total
    assert sample.numbers["cpus"] == psutil.cpu_count()
    (task,) = sample.tasks
    for key in ("cpu_pct", "write_bytes_per_s"):
        unit, slack = (100, 4 * ticks) if key == "cpu_pct" else (1, 4096)
        low = unit * (mine_third[key] - mine_second[key] - slack) / seconds
        high = unit * (mine_last[key] - mine[key] + slack) / seconds_low
        value = getattr(task, key)
        assert value is not None, key
        assert low * 0.98 <= value <= high * 1.02, key
    assert task.cpu_pct is not None
    assert task.cpu_pct > 10  # its child's
    assert task.mem_bytes == pytest.approx(mine_last["mem_bytes"], rel=0.05)


def test_every_number_is_there_or_says_why() -> None:
    collector = HostCollector()
    collector.collect([])
    sample = collector.collect([])
    assert {*sample.numbers} | {*sample.missing} == {*HOST_KEYS}
    assert {*sample.numbers}.isdisjoint(sample.missing)
    assert collector.collect([("gone", 2**22 - 1)]).tasks == ()


def test_a_look_costs_little() -> None:
    """Design: 2.5 ms a second for agent and reader together; this one comes every five."""
    collector, rounds = HostCollector(), 20
    # Not this process: it has what earlier tests left it of threads, and each is looked at.
    with subprocess.Popen(["sleep", "60"]) as child:
        tasks = [(f"t{at}", child.pid) for at in range(16)]
        collector.collect(tasks)
        began = time.thread_time()
        for _ in range(rounds):
            collector.collect(tasks)
        each_s = (time.thread_time() - began) / rounds
        child.kill()
    print(f"{each_s * 1e3:.2f} ms a look with {len(tasks)} tasks")
    assert each_s < 0.010


class WrittenHost:
    """/proc and /sys as files; a clock that a test moves."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys, self.at = folder / "proc", folder / "sys", 100.0
        for name in ("sda", "dm-0", "loop0"):
            (self.sys / "block" / name).mkdir(parents=True)
        (self.sys / "class/net/eth0/device").mkdir(parents=True)
        (self.sys / "class/net/veth1").mkdir()
        self.port = self.sys / "class/infiniband/mlx5_0/ports/1/counters"
        self.port.mkdir(parents=True)
        for name in ("net", "pressure", "self"):
            (self.proc / name).mkdir(parents=True)
        self.collector = HostCollector(self.proc, self.sys, lambda: self.at)
        self.write(cpu=(0, 0), disk=(0, 0, 0), net=(0, 0), rdma=(0, 0), io_us=0)

    def write(self, cpu: tuple[int, int], disk: tuple[int, int, int], net: tuple[int, int],
              rdma: tuple[int, int], io_us: int) -> None:
        """Write ticks busy and idle; sectors read and written, ms; bytes; words; us waited."""
        (self.proc / "stat").write_text(
            f"cpu  {cpu[0]} 0 0 {cpu[1]} 0 0 0 0 0 0\ncpu0 1 1 1 1\nprocs_blocked 3\n")
        (self.proc / "loadavg").write_text("1.50 1.0 1.0 1/2 3\n")
        (self.proc / "meminfo").write_text(
            "MemTotal: 1000 kB\nMemAvailable: 250 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
        row = f"{disk[0]} 0 1 0 {disk[1]} 0 0 {disk[2]} 0"
        lines = [f"8 0 {name} 1 0 {row}" for name in ("sda", "sda1", "dm-0", "loop0")]
        (self.proc / "diskstats").write_text("\n".join(lines).replace(
            f" 1 0 {disk[0]} 0 1 0 {disk[1]}", f" 1 0 {disk[0]} 0 1 0 {disk[1]}"))
        (self.proc / "net/dev").write_text("Inter-|\n face |\n" + "".join(
            f"{name}: {net[0]} 0 0 0 0 0 0 0 {net[1]} 0\n" for name in ("lo", "eth0", "veth1")))
        for name, value in zip(("port_rcv_data", "port_xmit_data"), rdma, strict=True):
            (self.port / name).write_text(f"{value}\n")
        (self.port / "link_downed").write_text("4\n")
        (self.proc / "pressure/io").write_text(
            f"some avg10=0 avg60=0 avg300=0 total={io_us}\nfull avg10=0 total=0\n")

    def collect(self, after_s: float) -> HostSample:
        self.at += after_s
        return self.collector.collect([])


def test_rates_are_of_the_time_between(tmp_path: Path) -> None:
    host, seconds = WrittenHost(tmp_path), random.choice((2.0, 5.0, 7.5))
    assert "cpu_pct" not in host.collect(0).numbers  # nothing to compare with yet
    busy = random.randint(1, 99)
    read, octets, words, waited = (random.randint(1, 10**6) for _ in range(4))
    host.write((busy, 100 - busy), (read, 2 * read, int(seconds * 250)), (octets, 3 * octets),
               (words, 5 * words), waited)
    numbers = host.collect(seconds).numbers
    assert numbers["cpu_pct"] == pytest.approx(busy)
    assert numbers["disk_read_bytes_per_s"] == pytest.approx(512 * read / seconds)  # sda alone
    assert numbers["disk_write_bytes_per_s"] == pytest.approx(1024 * read / seconds)
    assert numbers["disk_busy_pct"] == pytest.approx(25.0)
    assert numbers["net_rx_bytes_per_s"] == pytest.approx(octets / seconds)  # of hardware alone
    assert numbers["net_tx_bytes_per_s"] == pytest.approx(3 * octets / seconds)
    assert numbers["rdma_rx_bytes_per_s"] == pytest.approx(4 * words / seconds)
    assert numbers["io_pressure_pct"] == pytest.approx(min(100.0, waited / 1e4 / seconds))
    assert numbers["mem_used_bytes"] == 750 * 1024
    assert (numbers["rdma_link_downs"], numbers["threads_blocked"],
            numbers["load_1m"]) == (4, 3, 1.5)


def test_counters_that_began_anew_are_no_rate_of_their_own(tmp_path: Path) -> None:
    host = WrittenHost(tmp_path)
    host.write((500, 500), (10**6, 10**6, 10**5), (10**9, 10**9), (10**9, 10**9), 10**7)
    host.collect(0)
    host.write((10, 90), (5, 5, 5), (7, 7), (7, 7), 5)
    numbers = host.collect(5.0).numbers
    assert "cpu_pct" not in numbers or 0 <= numbers["cpu_pct"] <= 100
    assert numbers["disk_read_bytes_per_s"] == numbers["net_rx_bytes_per_s"] == 0.0
    assert numbers["io_pressure_pct"] == 0.0


def test_what_a_kernel_does_not_have_is_said(tmp_path: Path) -> None:
    sample = WrittenHost(tmp_path).collect(0)
    assert sample.missing["cpu_pressure_pct"] == "unsupported"
    assert "io_pressure_pct" not in sample.missing or sample.missing["io_pressure_pct"] == "unknown"


def test_a_child_that_ended_takes_nothing_back_and_gives_nothing_twice(tmp_path: Path) -> None:
    host = WrittenHost(tmp_path)

    def process(pid: int, ticks: int, reaped: int, children: str) -> None:
        folder = host.proc / str(pid) / "task" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        words = ["S", "1", "1", "1", "0", "0", "0", "0", "0", "0", "0", str(ticks), "0",
                 str(reaped), "0", "20", "0", "1", "0", "5", "0", "100", *["0"] * 20]
        (host.proc / str(pid) / "stat").write_text(f"{pid} (a) b) {' '.join(words)}")
        (folder / "children").write_text(children)

    hertz = os.sysconf("SC_CLK_TCK")
    process(10, 0, 0, "11 ")
    process(11, 3_600 * hertz, 0, "")
    host.collector.collect([("t", 10)])
    process(10, hertz, 3_600 * hertz, "")  # it has reaped its child of an hour
    (host.proc / "11/stat").unlink()
    host.at += 5.0
    (task,) = host.collector.collect([("t", 10)]).tasks
    assert task.cpu_pct == pytest.approx(20.0)
    assert task.read_bytes_per_s is None  # not to be read: not known, and no 0
