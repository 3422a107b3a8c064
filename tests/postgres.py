"""A PostgreSQL server for the tests alone, in its own folder, apart from any of the machine."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.machine import required

OPTIONS = ("-c listen_addresses= -c fsync=off -c shared_buffers=32MB -c max_connections=50 "
           "-c unix_socket_directories={0}")


class PostgresServer:
    def __init__(self) -> None:
        self._bin = Path(required("postgres")).resolve().parent
        # A socket's path has 107 bytes at most, and the folder belongs to the server's user.
        self.folder = Path(tempfile.mkdtemp(prefix="gd-pg-"))
        self._as: tuple[str, ...] = ()
        if os.geteuid() == 0:  # it refuses to run as root
            shutil.chown(self.folder, "postgres", "postgres")
            self._as = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
        self._data = self.folder / "data"
        self._run("initdb", "-D", str(self._data), "-U", "gpudeck", "-A", "trust", "-E", "UTF8",
                  "--no-sync")
        self.start()

    def _run(self, program: str, *words: str) -> None:
        subprocess.run([*self._as, str(self._bin / program), *words], check=True, cwd="/",
                       stdout=subprocess.DEVNULL)

    def start(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", str(self.folder / "log"), "-o",
                  OPTIONS.format(self.folder), "start")

    def stop(self) -> None:
        """Stop at once, as on a machine that has lost its power."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def signal(self, number: int) -> None:
        """Send a signal to the server and to the processes of its sessions."""
        for pid in self._pids():
            with suppress(ProcessLookupError):  # one of them may just have ended
                os.kill(pid, number)

    def _pids(self) -> list[int]:
        main = int((self._data / "postmaster.pid").read_text().splitlines()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [main, *map(int, children)]

    def database(self) -> str:
        """Create a database and return its URL."""
        name = "t" + secrets.token_hex(6)
        self._run("createdb", "-h", str(self.folder), "-U", "gpudeck", name)
        return f"postgresql://gpudeck@/{name}?host={self.folder}"

    def close(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self.signal(signal.SIGCONT)
            self.stop()
        shutil.rmtree(self.folder)


@contextmanager
def a_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server
    finally:
        server.close()
