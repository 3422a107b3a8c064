"""`cuda-checkpoint` as a program on the PATH. It really stops the process that it locks, and the
list of the driver follows the states it keeps.

    program = FakeCudaCheckpoint(tmp_path)
    env = {"PATH": program.path}
    program.refuse("checkpoint", "out of memory")     # does nothing, exit 1
    program.lie("lock")                               # does nothing, exit 0
    program.do("lock", "kill")                        # see SWITCHES
    program.state(pid), program.calls, program.listed(reading)

States, actions and exit statuses are those of NVIDIA's documentation; the texts are what others
have seen (github.com/NVIDIA/cuda-checkpoint, issues 25, 28, 42 and 51).
"""

import json
import sys
from pathlib import Path

from msgspec import structs

from agent.readings import OnDemandReading

SWITCHES = ("refuse", "lie", "grumble", "fail", "kill", "hang")
PROGRAM = """#!{python} -SE
import json, os, signal, sys, time
folder, words = {folder!r}, sys.argv[1:]
open(folder + "/calls", "a").write(" ".join(words) + "\\n")
switches = json.load(open(folder + "/switches"))
pid = int(words[words.index("--pid") + 1])
if "all" in switches:
    text, code = switches["all"]
    sys.stderr.write(text + "\\n")
    sys.exit(code)
def state():
    try:
        return open(folder + "/" + str(pid)).read()
    except OSError:
        return "running"
def become(word):
    open(folder + "/%d.new" % pid, "w").write(word)
    os.replace(folder + "/%d.new" % pid, folder + "/" + str(pid))
step = "state" if "--get-state" in words else words[words.index("--action") + 1]
switch, text = switches.get(step + " " + str(pid)) or switches.get(step) or ("", "")
parent = os.getppid()
while switch == "hang" and os.getppid() == parent:
    time.sleep(0.05)
if switch == "hang":
    sys.exit(1)
if switch == "refuse":
    if step == "lock":
        time.sleep(min(int(words[words.index("--timeout") + 1]) / 1000, 0.2))
    sys.stderr.write('Could not %s on process ID %d: "%s"\\n' % (step, pid, text))
    sys.exit(1)
if switch == "lie":
    sys.exit(0)
if switch == "kill":
    os.kill(pid, signal.SIGKILL)
    sys.stderr.write("the process is gone\\n")
    sys.exit(1)
if step == "state":
    os.kill(pid, 0)
    print(state())
    sys.exit(0)
moves = {{"lock": ("running", "locked"), "checkpoint": ("locked", "checkpointed"),
         "restore": ("checkpointed", "locked"), "unlock": ("locked", "running")}}
before, after = moves[step]
if state() != before:
    sys.stderr.write('Could not %s on process ID %d: "invalid argument"\\n' % (step, pid))
    sys.exit(1)
if step == "lock":
    os.kill(pid, signal.SIGSTOP)
become("failed" if switch == "fail" else after)
if {driver!r} and step in ("checkpoint", "restore"):
    lines, kept = open({driver!r}).read().splitlines(), folder + "/%d.lines" % pid
    if step == "checkpoint":
        mine = [l for l in lines if l.startswith("process ") and l.split()[3] == str(pid)]
        open(kept, "w").write("\\n".join(mine))
        lines = [l for l in lines if l not in mine]
    else:
        lines += open(kept).read().splitlines()
    open({driver!r} + ".new", "w").write("\\n".join(lines) + "\\n")
    os.replace({driver!r} + ".new", {driver!r})
if step == "unlock":
    os.kill(pid, signal.SIGCONT)
sys.exit(1 if switch in ("grumble", "fail") else 0)
"""


class FakeCudaCheckpoint:
    def __init__(self, folder: Path, driver: Path | None = None) -> None:
        """`driver`: the file of the C fake of the driver, which then follows by itself."""
        self.folder = folder / "checkpoint"
        self.folder.mkdir()
        program = self.folder / "cuda-checkpoint"
        program.write_text(PROGRAM.format(
            python=sys.executable, folder=str(self.folder), driver=str(driver or "")))
        program.chmod(0o755)
        self._switches: dict[str, tuple[object, object]] = {}
        self.memory_stays = False  # the driver lists what is on the host already
        self._save()

    @property
    def path(self) -> str:
        return f"{self.folder}:/usr/bin:/bin"

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def steps(self) -> list[str]:
        """Return the actions that were asked for, without questions about states."""
        return [words[words.index("--action") + 1] for call in self.calls
                if "--action" in (words := call.split())]

    def state(self, pid: int) -> str:
        file = self.folder / str(pid)
        return file.read_text() if file.exists() else "running"

    def refuse(self, step: str, text: str, pid: int | None = None) -> None:
        self.do(step, "refuse", text, pid)

    def lie(self, step: str) -> None:
        self.do(step, "lie")

    def do(self, step: str, switch: str, text: str = "", pid: int | None = None) -> None:
        assert switch in SWITCHES
        self._switches[step if pid is None else f"{step} {pid}"] = switch, text
        self._save()

    def always(self, text: str, code: int) -> None:
        self._switches["all"] = text, code
        self._save()

    def work(self) -> None:
        """Take all switches back."""
        self._switches = {}
        self._save()

    def listed(self, reading: OnDemandReading) -> OnDemandReading:
        """Return the list as the driver gives it: without what is on the host."""
        away = [process for process in reading.processes
                if self.state(process.pid) == "checkpointed" and not self.memory_stays]
        used = dict(reading.mem_used_bytes)
        for process in away:
            used[process.gpu_uuid] = (used[process.gpu_uuid] or 0.0) - (
                process.mem_used_bytes or 0.0)
        return structs.replace(reading, mem_used_bytes=used, processes=tuple(
            process for process in reading.processes if process not in away))

    def _save(self) -> None:
        new = self.folder / "switches.new"
        new.write_text(json.dumps(self._switches))
        new.replace(self.folder / "switches")
