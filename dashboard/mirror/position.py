"""How far a mirror has come, and what waits for it apart: late samples, in files of their own."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..history.manifest import write_whole

REPLAY_S = 60.0
LATE_BYTES = 256_000_000


@dataclass(slots=True)
class MirrorPosition:
    """All seconds before `until` have been taken. `sent`: of what was sent within a minute before
    the newest, when (UTC) and from which second on; `started`: when the receiver's process began.
    """

    url: str
    until: int
    sent: list[tuple[float, int]] = field(default_factory=list)
    started: float | None = None

    def took(self, now: float, start: int, end: int) -> None:
        self.until = end
        self.sent = [(at, first) for at, first in self.sent if now - at <= REPLAY_S]
        self.sent.append((now, start))

    def rewind(self) -> None:
        """To before what the receiver may have lost when it ended."""
        self.until = min([self.until, *(first for _, first in self.sent)])
        self.sent = []


class MirrorFolder:
    """`mirror/` in the data folder. One thread uses it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sent: dict[Path, float] = {}  # late files that may be wanted again
        self._again: set[Path] = set()  # of those that wait, which had been sent
        self.dropped = 0  # late files
        for draft in folder.glob(".*.new"):
            draft.unlink()

    def position(self, url: str, begin: int) -> MirrorPosition:
        """Of this receiver; of another one, or where the file cannot be read, it begins now."""
        try:
            said = json.loads((self._folder / "position.json").read_text())
            found = MirrorPosition(str(said["url"]), int(said["until"]),
                                   [(float(at), int(first)) for at, first in said["sent"]],
                                   said["started"])
        except (OSError, ValueError, KeyError, TypeError):
            found = None
        return MirrorPosition(url, begin) if found is None or found.url != url else found

    def save(self, position: MirrorPosition) -> None:
        draft = self._folder / ".position.new"
        write_whole(draft, json.dumps(asdict(position)).encode())
        draft.replace(self._folder / "position.json")

    def keep_late(self, write: Callable[[Path], bool]) -> None:
        files = self._files()
        number = int(files[-1].stem.partition("-")[2]) + 1 if files else 1
        if not write(self._folder / f"late-{number:09d}.parquet"):
            return
        files = self._files()
        size = sum(path.stat().st_size for path in files)
        for path in files[:-1]:
            if size <= LATE_BYTES:
                return
            size -= path.stat().st_size
            self.dropped += path not in self._sent
            self._forget(path)

    def late(self) -> Path | None:
        """The oldest that has not been sent."""
        return next((path for path in self._files() if path not in self._sent), None)

    def took_late(self, path: Path, now: float) -> None:
        """Kept as long as the receiver may still lose it."""
        self._sent[path] = now
        for old, at in [*self._sent.items()]:
            if now - at > REPLAY_S:
                self._forget(old)

    def rewind_late(self) -> None:
        self._again |= self._sent.keys()
        self._sent.clear()

    def is_again(self, path: Path) -> bool:
        return path in self._again

    def _forget(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._sent.pop(path, None)
        self._again.discard(path)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("late-*.parquet"))
