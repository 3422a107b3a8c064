"""What the agent holds of one reading process: its pipe, its answers, and how it is let go."""

import os
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct

from gpudeck.wire import ReaderState

from .backends import Fresh, Happening, Reading

PERIOD_S = 1.0
MAX_ANSWER_BYTES = 16_000_000
LENGTH = struct.Struct(">I")


class Answer(Struct, frozen=True, array_like=True):
    """One line of the pipe: a Reading, or why there is none. `detail` beside a Reading is about
    single Gpus."""

    reading: Reading | None
    state: ReaderState = "ok"
    detail: str = ""
    fresh: Fresh | None = None
    asked: int = 0  # the newest request that was there before `fresh` was read
    # Told at once, beside the Readings: what comes just before the driver hangs matters most.
    happenings: tuple[Happening, ...] = ()


_decoder = msgspec.msgpack.Decoder(Answer)


@dataclass(frozen=True, slots=True)
class Patience:
    start_s: float = 30.0  # a first nvmlInit without persistence mode takes seconds per board
    answer_s: float = 5.0  # beyond the due time
    stuck_s: float = 60.0  # before a hung child may be killed, and between two replacements
    stuck_max: int = 3
    back_off_s: tuple[float, float] = (1.0, 30.0)


@dataclass(slots=True, eq=False)
class Child:
    process: "subprocess.Popen[bytes]"
    started_at: float
    answered_at: float | None = None
    hung_at: float | None = None
    killed: bool = False
    leaves: bool = False  # it was told to let go of the driver
    open_pipes: int = 2  # stdout and stderr
    told: ReaderState | None = None  # the last state it reported itself
    asked: int = 0  # for a Fresh list
    fresh: Answer | None = None  # the newest
    buffer: bytearray = field(default_factory=bytearray)
    last_words: str = ""

    def due_at(self, patience: Patience) -> float:
        if self.answered_at is None:
            return self.started_at + patience.start_s
        return self.answered_at + PERIOD_S + patience.answer_s

    def answers(self, data: bytes) -> Iterator[Answer]:
        self.buffer += data
        while len(self.buffer) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self.buffer)
            if size > MAX_ANSWER_BYTES:
                raise msgspec.DecodeError(f"an answer of {size} bytes")
            if len(self.buffer) < LENGTH.size + size:
                return
            body = bytes(self.buffer[LENGTH.size : LENGTH.size + size])
            del self.buffer[: LENGTH.size + size]
            yield _decoder.decode(body)


def ask(child: Child) -> bool:
    assert child.process.stdin is not None
    try:
        return child.process.stdin.write(b"f") == 1
    except (OSError, ValueError):  # it has just ended
        return False


def close_stdin(child: Child) -> None:
    if child.process.stdin is not None:
        child.process.stdin.close()


def reap(child: Child, timeout_s: float = 1.0) -> int | None:
    close_stdin(child)
    try:
        return child.process.wait(timeout=max(timeout_s, 0.01))
    except subprocess.TimeoutExpired:
        return None


def child_environment(env: "os._Environ[str]") -> dict[str, str]:
    """Without our secrets, and able to import this package: it may be `agent` of a bare checkout,
    which only the checkout's root on the path makes visible, or `gpudeck.agent` as installed."""
    kept = {name: value for name, value in env.items() if not name.startswith("GPUDECK_TOKEN")}
    if __package__ == "agent":
        root = str(Path(__file__).resolve().parents[1])
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, (root, env.get("PYTHONPATH"))))
    return kept
