"""Machine with boards of AMD: the files of public captures, in a mount namespace of the program
that reads them, so that it finds them where a kernel has them. Processes are real ones."""

import base64
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BOARDS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "captures/amd/boards.json").read_text())
RX6900XT, VEGA56 = "rx6900xt", "vega56"
RX6900XT_UUID = "GPU-946d7e1ef9b172dd"
# The kernel's own folders have places where these are mounted, and take no new ones.
MOUNTS = "mount --bind {root}/class /sys/class && mount --bind {root}/module /sys/module && "


def grow(root: Path, files: Mapping[str, Any]) -> None:
    """Write files of a capture below a folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content)
        else:
            table = base64.b64decode(content["base64"])
            path.write_bytes(table.ljust(content.get("length", 0), b"\0"))


def open_file(process: Path, number: int, lines: str, device: str = "/dev/dri/renderD128") -> None:
    """Write an open file of a process, in the folder that stands for its /proc/PID."""
    for name in ("fd", "fdinfo"):
        (process / name).mkdir(parents=True, exist_ok=True)
    link = process / f"fd/{number}"
    if not link.is_symlink():
        link.symlink_to(device)
    (process / f"fdinfo/{number}").write_text(lines)


class FakeAmd:
    """Files of AMD's driver in a folder. A board is a capture, as it is or with other files."""

    def __init__(self, root: Path, *boards: str) -> None:
        self.root = root
        self.drm, self.kfd = root / "class/drm", root / "class/kfd/kfd"
        for folder in (self.drm, self.kfd / "proc", root / "module/amdgpu"):
            folder.mkdir(parents=True)
        for card, board in enumerate(boards):
            self.add(card, BOARDS[board])

    def add(self, card: int, files: Mapping[str, Any]) -> None:
        grow(self.drm, {f"card{card}/{name.partition('/')[2]}": content
                        for name, content in files.items() if name.startswith("card")})
        bus = int(self.address(card).split(":")[1], 16)
        grow(self.kfd, {f"topology/nodes/{card + 1}/gpu_id": f"{card + 1}\n",
                        f"topology/nodes/{card + 1}/properties": f"location_id {bus << 8}\n"})

    def device(self, card: int = 0) -> Path:
        return self.drm / f"card{card}/device"

    def address(self, card: int) -> str:
        lines = (self.device(card) / "uevent").read_text().splitlines()
        return next(line for line in lines if line.startswith("PCI_SLOT_NAME=")).partition("=")[2]

    def compute(self, pid: int, memory: int, card: int = 0) -> None:
        """List a process as one that computes."""
        grow(self.kfd, {f"proc/{pid}/vram_{card + 1}": f"{memory}\n"})

    def forget(self, pid: int) -> None:
        shutil.rmtree(self.kfd / f"proc/{pid}")

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command that runs a program where it finds these files."""
        mounts = MOUNTS.format(root=self.root)
        return ["unshare", "--mount", "sh", "-euc", f'{mounts} exec "$@"', "sh", *words]
