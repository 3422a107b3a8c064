"""Machine with boards of Intel: the files of public captures (tests/captures/intel)."""

import json
from pathlib import Path

from tests.fakes.amd import grow

BOARDS: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parents[1] / "captures/intel/boards.json").read_text())


class FakeIntel:
    """Files of Intel's two drivers in a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.drm, self.modules = root, root / "class/drm", root / "module"
        for folder in (self.drm, self.modules / "xe", self.modules / "i915"):
            folder.mkdir(parents=True, exist_ok=True)

    def add(self, board: str, card: int = 0) -> Path:
        """Add a board as it was captured, and return the folder of its device."""
        grow(self.drm, {f"card{card}/{name.partition('/')[2]}": content
                        for name, content in BOARDS[board].items()})
        return self.drm / f"card{card}/device"
