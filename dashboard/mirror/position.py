"""Progress of a mirror, and late samples, which wait for it in separate files."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..history.storage.manifest import write_whole

REPLAY_S = 60.0
LATE_BYTES = 256_000_000


@dataclass(slots=True)
class MirrorPosition:
    """Progress of a mirror: all seconds before `until` have been accepted. `sent`: for requests of
    the last REPLAY_S seconds, when they were sent (UTC) and their first second; `started`: when the
    receiver's process started, if known."""

    url: str
    until: int
    sent: list[tuple[float, int]] = field(default_factory=list)
    started: float | None = None

    def record_sent(self, now: float, start: int, end: int) -> None:
        self.until = end
        self.sent = [(at, first) for at, first in self.sent if now - at <= REPLAY_S]
        self.sent.append((now, start))

    def rewind(self) -> None:
        """Go back to before everything that the receiver may have lost when it ended."""
        self.until = min([self.until, *(first for _, first in self.sent)])
        self.sent = []


class MirrorFolder:
    """The folder `mirror/` in the data folder. Only one thread uses it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sent_at: dict[Path, float] = {}  # late files that may have to be sent again
        self._resend: set[Path] = set()  # waiting files that have been sent before
        self.dropped = 0  # late files
        for draft in folder.glob(".*.new"):
            draft.unlink()

    def position(self, url: str, begin: int) -> MirrorPosition:
        """Return the stored position for this receiver; for another one, or if the file cannot be
        read, a new one that starts at `begin`."""
        try:
            stored = json.loads((self._folder / "position.json").read_text())
            position = MirrorPosition(str(stored["url"]), int(stored["until"]),
                                      [(float(at), int(first)) for at, first in stored["sent"]],
                                      stored["started"])
        except (OSError, ValueError, KeyError, TypeError):
            position = None
        return MirrorPosition(url, begin) if position is None or position.url != url else position

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
            self.dropped += path not in self._sent_at
            self._forget(path)

    def next_late_file(self) -> Path | None:
        """Return the oldest late file that has not been sent; None: there is none."""
        return next((path for path in self._files() if path not in self._sent_at), None)

    def record_late_sent(self, path: Path, now: float) -> None:
        """Note that a late file was sent; it is kept as long as the receiver may still lose it."""
        self._sent_at[path] = now
        for sent_path, at in [*self._sent_at.items()]:
            if now - at > REPLAY_S:
                self._forget(sent_path)

    def rewind_late(self) -> None:
        self._resend |= self._sent_at.keys()
        self._sent_at.clear()

    def is_resend(self, path: Path) -> bool:
        return path in self._resend

    def _forget(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._sent_at.pop(path, None)
        self._resend.discard(path)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("late-*.parquet"))
