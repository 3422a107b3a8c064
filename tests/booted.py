"""A machine with its own systemd, in its own namespaces. Its files are this machine's under a layer
that is thrown away, with the code of this checkout as /opt/gpudeck; or those of a root folder that
the caller passes. Its control groups are of version 1, or of version 2 alone. Needs root."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.hub import wait_for
from tests.machine import required

ROOT = Path(__file__).resolve().parents[1]
PATH = "/opt/gpudeck/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEMD = "/lib/systemd/systemd"
# Where version 2 is: alone, or beside version 1.
HIERARCHIES = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
# A namespace of groups begins where the process is that makes it.
IN_GROUP = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
# A layer over / cannot have its upper folder below it, so that is on a file system of its own.
BOOT = r"""
set -eu
work=$1 root=$1/root prefix=$2 base=$3 checkout=$4
mount --make-rprivate /
mount -t tmpfs tmpfs "$work"
mkdir "$root"
if [ -n "$6" ]; then
mount --bind "$6" "$root"
else
mkdir "$work/upper" "$work/scratch" "$work/env" "$work/env-scratch"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/scratch" "$root"
mkdir -p "$root/opt/gpudeck" "$root/opt/python" "$root/opt/checkout"
mount --bind "$checkout" "$root/opt/checkout"
mount --bind "$base" "$root/opt/python"
mount -t overlay overlay "$root/opt/gpudeck" \
  -o "lowerdir=$prefix,upperdir=$work/env,workdir=$work/env-scratch"
ln -sf "/opt/python/bin/$5" "$root/opt/gpudeck/bin/python"
sed -i "1s|.*|#!/opt/gpudeck/bin/python|" "$root/opt/gpudeck/bin/gpudeck"
sed -i 's|^home = .*|home = /opt/python/bin|' "$root/opt/gpudeck/pyvenv.cfg"
sed -i "s|$checkout/|/opt/checkout/|g" "$root"/opt/gpudeck/lib/python3*/site-packages/__editable__*
echo /opt/python/lib > "$root/etc/ld.so.conf.d/00-tests.conf"
chroot "$root" /sbin/ldconfig
fi
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom tty; do
  touch "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
if [ -n "$7" ]; then
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
mkdir "$root/sys/fs/cgroup/systemd"
mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
fi
printf '[Unit]\nDefaultDependencies=no\nWants=dbus.socket\n' \
  > "$root/etc/systemd/system/boot.target"
hostname booted
cd "$root"
mkdir -p before
pivot_root . before
umount -l /before
exec env -i container=test PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --unit=boot.target
"""


class BootedMachine:
    def __init__(self, folder: Path, root: Path | None = None, is_unified: bool = False) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root boots a machine")
        required("systemd-analyze")
        self.group = _new_group() if is_unified else None
        self._started: list[subprocess.Popen[bytes]] = []
        (folder / "boot.sh").write_text(BOOT)
        (folder / "machine").mkdir()
        self._log = (folder / "boot.log").open("w+")
        in_group: list[str | Path] = [] if self.group is None else [
            "sh", "-c", IN_GROUP, self.group]
        self._process = subprocess.Popen(
            [*in_group, required("unshare"), "--mount", "--pid", "--uts", "--ipc", "--cgroup",
             "--fork", "--kill-child", "sh", folder / "boot.sh", folder / "machine", sys.prefix,
             sys.base_prefix, ROOT, f"python3.{sys.version_info.minor}",
             root or "", self.group or ""],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True)
        try:
            wait_for(self._is_up)
        except BaseException:
            self.close()
            raise

    def _is_up(self) -> bool:
        assert self._process.poll() is None, self.boot_log()
        return bool(self._init) and self.try_to(
            "systemctl is-system-running").stdout.strip() in ("running", "degraded")

    def boot_log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    @property
    def _init(self) -> int:
        """Pid of its systemd as this machine numbers it; 0: not there yet."""
        pid = self._process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return 0
        init = int(children[0]) if children else 0
        return init if init and os.path.realpath(f"/proc/{init}/exe") == os.path.realpath(
            SYSTEMD) else 0

    def try_to(self, script: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.words("sh", "-euc", script), capture_output=True, text=True,
                              cwd="/", env={"PATH": PATH, "HOME": "/root"}, check=False)

    def words(self, *words: str) -> list[str]:
        """Return a command line that runs `words` in the booted machine, and never on this one."""
        assert self._init, "its systemd has ended"
        return [required("nsenter"), "--target", str(self._init), "--all", *words]

    def run(self, script: str) -> str:
        result = self.try_to(script)
        assert result.returncode == 0, (
            f"{script}\n{result.stdout}\n{result.stderr}\n"
            f"{self.try_to('journalctl --no-pager -n 60').stdout}")
        return result.stdout

    def start(self, *words: str) -> None:
        """Start a program that ends with the machine."""
        self._started.append(subprocess.Popen(
            self.words(*words), cwd="/", env={"PATH": PATH}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def path(self, path: str) -> Path:
        """Return the path by which a file of the machine is reached from here."""
        return Path(f"/proc/{self._init}/root") / path.lstrip("/")

    def close(self) -> None:
        """Kill its first process: the kernel then ends all others, and their mounts with them."""
        if self._process.poll() is None and (init := self._init):
            os.kill(init, signal.SIGKILL)
        for process in (self._process, *self._started):
            process.kill()  # one of them may be stopped, with what it started
        for process in (self._process, *self._started):
            process.wait()
        self._log.close()
        if (group := self.group) is not None:
            wait_for(lambda: _is_removed(group))


def _new_group() -> Path:
    """Make a group in this machine's hierarchy of version 2, which is the root of the other's."""
    hierarchy = next((path for path in HIERARCHIES if (path / "cgroup.controllers").exists()), None)
    if hierarchy is None:
        pytest.skip("this machine has no control groups of version 2")
    group = Path(tempfile.mkdtemp(prefix="booted-", dir=hierarchy))
    group.chmod(0o755)  # services read in it
    return group


def _is_removed(group: Path) -> bool:
    """Remove a group and those in it, as soon as their last processes are gone."""
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
    except OSError:
        return False
    return not group.exists()


@contextmanager
def a_booted_machine(folder: Path, root: Path | None = None, is_unified: bool = False
                     ) -> Iterator[BootedMachine]:
    """`root`: the root folder of a whole Debian, which stays. `is_unified`: its control groups are
    of version 2."""
    machine = BootedMachine(folder, root, is_unified)
    try:
        yield machine
    finally:
        machine.close()
        shutil.rmtree(folder / "machine", ignore_errors=True)
