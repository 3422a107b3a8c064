"""Forces pid reuse, as the first process of its own PID namespace.

    unshare --pid --fork --mount-proc --kill-child python -S -E tests/fakes/forge.py

One JSON request per line on stdin, one answer on stdout; all ends when stdin does. A `victim` is
observed alive, ended and reaped, and then an innocent is born under its very pid. It imports next
to nothing, so that a fork is quick enough for victim and innocent to start in the same tick.
"""

import json
import os
import select
import signal
import sys
import time
import typing

LAST_PID = "/proc/sys/kernel/ns_last_pid"
Identity = dict[str, typing.Any]


def fork_child() -> int:
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    return pid


def become_another(*_: object) -> None:
    os.execv("/bin/sleep", ["sleep", "1000"])


def fork_a_worker(*_: object) -> None:
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            signal.pause()


def obedient(is_stubborn: bool) -> int:
    """Start a process that execs on SIGUSR1 and forks on SIGUSR2."""
    pid = os.fork()
    if pid == 0:
        os.setsid()  # else we and all our children would be one Job
        if is_stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, become_another)
        signal.signal(signal.SIGUSR2, fork_a_worker)
        while True:
            signal.pause()
    return pid


def leaky(short: int, fleeing: int) -> tuple[int, int]:
    """Start a process that on SIGTERM forks `fleeing` children that leave, then `short` children
    that end at once and whose pids it writes, and ends. Return its pid and the pipe of the pids."""
    says, writes = os.pipe()  # neither is inherited by a program
    pid = os.fork()
    if pid:
        os.close(writes)
        return pid, says
    os.close(says)
    os.setsid()

    def leave(*_: object) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        for _one in range(fleeing):
            if os.fork() == 0:
                os.close(writes)
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
                while True:
                    signal.pause()
        for _one in range(short):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            os.write(writes, f"{child}\n".encode())
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    while True:
        signal.pause()


def under(pid: int) -> bool:
    """Start a process of exactly this pid; False: it got another one."""
    with open(LAST_PID, "w") as file:
        file.write(str(pid - 1))
    new = fork_child()
    if new == pid:
        return True
    end(new)
    return False


def under_again(pid: int) -> bool:
    """Try `under` several times, as others may fork meanwhile, as long as the pid is free."""
    return any(under(pid) for _ in range(20) if not os.path.exists(f"/proc/{pid}"))


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def state(pid: int) -> str:
    return read(pid, "stat").rpartition(")")[2].split()[0]


def until(pid: int, happened: typing.Callable[[], bool]) -> bool:
    """Wait; False: the process ended first, of a signal that was on its way to it already."""
    try:
        while state(pid) not in "ZX":
            if happened():
                return True
            time.sleep(0.0005)
    except FileNotFoundError:  # an exiting process loses its exe before it is a zombie
        pass
    return False


def is_still_there(pid: int) -> bool:
    """Our child, which nobody else reaps: its number cannot be another's."""
    return os.path.exists(f"/proc/{pid}/stat") and state(pid) not in "ZX"


def read(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}") as file:
        return file.read()


def start_ticks(pid: int) -> int:
    return int(read(pid, "stat").rpartition(")")[2].split()[19])


def identity(pid: int) -> Identity:
    """The fields of gpudeck.contract.actions.Process, read as agent/tasks/processes.py does."""
    program = os.stat(f"/proc/{pid}/exe")
    pidfd = os.pidfd_open(pid)
    try:
        inode = os.fstat(pidfd).st_ino
    finally:
        os.close(pidfd)
    return {
        "pid": pid, "start_ticks": start_ticks(pid), "uid": os.getuid(),
        "executable": f"{program.st_dev}:{program.st_ino}",
        "cgroup": ";".join(sorted(read(pid, "cgroup").splitlines())), "pidfs_inode": inode,
    }


def reuse(victim: int | None = None) -> tuple[Identity, int]:
    """Return (victim, start of the innocent that now has its pid)."""
    while True:
        pid = victim or fork_child()
        was = identity(pid)
        end(pid)
        if under(pid):
            return was, start_ticks(pid)
        assert victim is None, "another process took the pid"


def is_alive(pid: int) -> bool:
    """Return whether this very child is alive; only we reap it."""
    return os.waitpid(pid, os.WNOHANG) == (0, 0)


def judge(victims: list[Identity]) -> dict[str, int]:
    """Count innocents that are alive, and those that usual ways of ending a process would hit."""
    counts = {"alive": 0, "late": 0, "os_kill": 0}
    for was in victims:
        pid = was["pid"]
        if not is_alive(pid):
            continue
        counts["alive"] += 1
        # A pidfd opened late, after a look at the start time alone.
        pidfd = os.pidfd_open(pid)
        if start_ticks(pid) == was["start_ticks"]:
            counts["late"] += 1
        os.close(pidfd)
        os.kill(pid, signal.SIGTERM)
        counts["os_kill"] += os.waitpid(pid, 0)[0] == pid
    return counts


class Forge:
    def __init__(self) -> None:
        self.innocents: set[int] = set()
        self.says: list[int] = []

    def program(self, argv: list[str], env: dict[str, str], cwd: str, log: str) -> int:
        pid = os.fork()
        if pid == 0:
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.chdir(cwd)
            os.execve(argv[0], argv, env)
        return pid

    def trials(self, count: int) -> list[tuple[Identity, int]]:
        return [reuse() for _ in range(count)]

    def live(self, count: int) -> list[Identity]:
        """Processes that stay as they are, for now."""
        return [identity(fork_child()) for _ in range(count)]

    def replace(self, pids: list[int]) -> list[int]:
        """End each process and let an innocent take its pid; return the innocents' starts."""
        return [reuse(pid)[1] for pid in pids]

    def owners(self, pids: int, earlier: int, gap_s: float) -> list[tuple[list[Identity], int]]:
        """Give each pid to `earlier` victims, one after the other, then to a lasting innocent."""
        trials = []
        for pid in (end_and_say(fork_child()) for _ in range(pids)):
            owners = []
            for _ in range(earlier):
                if under(pid):
                    owners.append(identity(pid))
                    end(pid)
                    time.sleep(gap_s)
            if under(pid):
                trials.append((owners, start_ticks(pid)))
        return trials

    def obedient(self, is_stubborn: bool) -> Identity:
        pid = obedient(is_stubborn)
        while not int(read(pid, "status").split("SigCgt:")[1].split()[0], 16) >> 11 & 1:
            time.sleep(0.0005)
        return identity(pid)

    def poke(self, pid: int, how: str) -> bool | None:
        """Disturb a child between two steps of the agent. False: it had ended already; None: it was
        ended, and its pid went to another process before an innocent could have it."""
        if not is_still_there(pid):
            return False
        if how == "exit":
            end(pid)
        elif how == "reuse":
            end(pid)
            if not under(pid):
                return None
            self.innocents.add(pid)
        elif how == "exec":
            program = os.readlink(f"/proc/{pid}/exe")
            os.kill(pid, signal.SIGUSR1)
            return until(pid, lambda: os.readlink(f"/proc/{pid}/exe") != program)
        elif how == "fork":
            os.kill(pid, signal.SIGUSR2)
            return until(pid, lambda: bool(read(pid, f"task/{pid}/children")))
        return True

    def leaky(self, counts: list[tuple[int, int]]) -> list[Identity]:
        victims = [leaky(short, fleeing) for short, fleeing in counts]
        self.says = [says for _, says in victims]
        for pid, _ in victims:
            while not int(read(pid, "status").split("SigCgt:")[1].split()[0], 16) >> 14 & 1:
                time.sleep(0.0005)
        return [identity(pid) for pid, _ in victims]

    def catch(self) -> list[int]:
        """Start innocents under the pids of the short-lived children, as these are reported, until
        all victims have ended."""
        innocents: list[int] = []
        while self.says:
            for says in select.select(self.says, [], [])[0]:
                if not (data := os.read(says, 4_096)):
                    self.says.remove(says)
                    os.close(says)
                # A line is written at once, so none is cut.
                innocents += [int(line) for line in data.split() if under_again(int(line))]
        return innocents

    def finish(self, pid: int) -> dict[str, bool]:
        """Return how a victim ended, and end all that is left of it."""
        if not os.path.exists(f"/proc/{pid}/stat"):
            return {"died": True, "innocent": False}  # it was made to, and reaped
        workers = [] if state(pid) in "ZX" else read(pid, f"task/{pid}/children").split()
        died = os.waitpid(pid, os.WNOHANG) != (0, 0)
        if not died:
            end(pid)
        for worker in workers:
            os.kill(int(worker), signal.SIGKILL)
        was_innocent = pid in self.innocents
        self.innocents.discard(pid)
        return {"died": died, "innocent": was_innocent}

    def is_running(self, pid: int) -> bool:
        return is_alive(pid)

    def judge(self, victims: list[Identity]) -> dict[str, int]:
        return judge(victims)


def end_and_say(pid: int) -> int:
    end(pid)
    return pid


def main() -> None:
    forge = Forge()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(forge, request.pop("do"))(**request)
            print(json.dumps({"answer": answer}), flush=True)
        except Exception as error:
            print(json.dumps({"error": repr(error)}), flush=True)
    me = os.getpid()
    for child in read(me, f"task/{me}/children").split():
        os.kill(int(child), signal.SIGKILL)


if __name__ == "__main__":
    main()
