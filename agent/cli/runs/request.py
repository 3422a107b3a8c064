"""Request of `gpudeck run --detach`, and the state of each part of it. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from gpudeck.errors import CommandError, ExitCode

PARTS_MOST = 10_000
PartState = Literal["queued", "waiting", "running", "unsupervised", "ended", "cancelled", "refused",
                    "skipped", "lost"]
FINAL: frozenset[PartState] = frozenset(("ended", "cancelled", "refused", "skipped", "lost"))
_ARRAY = re.compile(r"(?P<first>\d{1,6})(-(?P<last>\d{1,6})(:(?P<step>\d{1,6}))?)?", re.ASCII)
_RUN = re.compile(r"(\d{1,9})(?:\.(\d{1,6}))?", re.ASCII)


class ProcessMark(Struct, frozen=True):
    """Identity of a process, valid also after its pid was used again."""

    pid: int
    start_ticks: int
    boot_id: str


class RunRequest(Struct, frozen=True):
    """`words`: the options of `gpudeck run`. `indices`: of an array; (): it is one command.
    `after`: runs that have to end with status 0 before it begins."""

    number: int
    host: str
    submitted_at: float
    cwd: str
    words: tuple[str, ...]
    command: tuple[str, ...]
    indices: tuple[int, ...] = ()
    at_once: int | None = None
    after: tuple[str, ...] = ()
    mail_to: str = ""

    @property
    def parts(self) -> tuple[int | None, ...]:
        return self.indices or (None,)

    def name(self, index: int | None) -> str:
        return str(self.number) if index is None else f"{self.number}.{index}"


class RunPart(Struct, frozen=True):
    """Part of a run: the run itself, or one of its array. `process`: the one that waits for GPUs
    and for the command. `status` None: it has not ended, or nobody knows how."""

    state: PartState
    why: str = ""
    status: int | None = None
    process: ProcessMark | None = None
    begun_at: float | None = None
    ended_at: float | None = None
    gpus: tuple[int, ...] = ()

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def is_good(self) -> bool:
        return self.state == "ended" and self.status == 0


class RunName(NamedTuple):
    """`part`: its index in an array; None: all of the run."""

    number: int
    part: int | None


class RunArray(NamedTuple):
    indices: tuple[int, ...]
    at_once: int | None


def parse_array(text: str) -> RunArray:
    """`0-49%4`: indices 0 to 49, four at a time; `1,3,10-30:5` has steps. Raises ValueError with a
    sentence."""
    listed, percent, most = text.partition("%")
    if percent and not (most.isascii() and most.isdigit() and int(most) > 0):
        raise ValueError(f"{text[:40]!r}: after % stands how many run at once, as in 0-49%4")
    indices: dict[int, None] = {}
    for word in listed.split(","):
        match = _ARRAY.fullmatch(word)
        if match is None:
            raise ValueError(f"{word[:40]!r}: indices are written 0-49, 1,3,5 or 0-90:10")
        first, last = int(match["first"]), int(match["last"] or match["first"])
        step = int(match["step"] or 1)
        if last < first or step == 0:
            raise ValueError(f"{word[:40]!r} contains no index")
        for index in range(first, last + 1, step):
            indices[index] = None
            if len(indices) > PARTS_MOST:
                raise ValueError(f"{text[:40]!r} has more than {PARTS_MOST:,} indices")
    return RunArray(tuple(indices), int(most) if percent else None)


def parse_run(text: str) -> RunName:
    """Return the run that is named. Raises ValueError with a sentence."""
    match = _RUN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is no run; `gpudeck runs` lists them: 7, or 7.3 of an "
                         "array")
    return RunName(int(match[1]), None if match[2] is None else int(match[2]))


def parts_of(request: RunRequest, index: int | None) -> tuple[int | None, ...]:
    """Return the parts that are named. Raises CommandError where the run has no such part."""
    if index is None:
        return request.parts
    if index not in request.indices:
        raise CommandError(f"run {request.number} has no index {index}", ExitCode.USAGE)
    return (index,)


def failure(request: RunRequest, parts: Mapping[int | None, RunPart]) -> str:
    """Return why what comes after the run does not begin. "": all of it has ended with status 0."""
    for index, part in parts.items():
        if not part.is_good:
            return f"run {request.name(index)} {outcome(part)}"
    return ""


def outcome(part: RunPart) -> str:
    if part.state == "ended":
        return f"ended with status {part.status}"
    verb = {"cancelled": "was cancelled", "refused": "was refused", "skipped": "did not begin",
            "lost": "was lost"}.get(part.state, f"is {part.state}")
    return f"{verb}: {part.why}" if part.why else verb


def summary(parts: Sequence[RunPart]) -> str:
    """Return how many of an array are in which state."""
    counts: dict[str, int] = {}
    for part in parts:
        word = f"ended with status {part.status}" if part.state == "ended" else part.state
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in counts.items())
