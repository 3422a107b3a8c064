"""Lists of host names as Slurm and pdsh write them: `gpu[01-40,44],login1`. Pure."""

import re
from itertools import product

MAX_HOST = 128
MAX_NAMES = 10_000
_PART = re.compile(r"((?:[^\[\],]|\[[^\[\]]*\])+)(?:,|$)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def host_names(text: str) -> tuple[str, ...]:
    """Return the names that it lists, at most 10,000. Raises ValueError with a sentence."""
    names: list[str] = []
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise ValueError(f"{text[:80]!r} is not a list of hosts; write for example gpu[01-40] "
                             "or gpu1,gpu2")
        names += _names(part[1], MAX_NAMES - len(names))
        at = part.end()
    if not names:
        raise ValueError("an empty list of hosts names nobody; leave it out for any host")
    return tuple(dict.fromkeys(names))


def _names(part: str, most: int) -> list[str]:
    pieces = [_numbers(piece[1:-1], most) if piece.startswith("[") else [piece]
              for piece in re.findall(r"\[[^\]]*\]|[^\[]+", part)]
    count = 1
    for piece in pieces:
        count *= len(piece)
    if count > most:
        raise ValueError(f"a list names {MAX_NAMES:,} hosts at most")
    names = ["".join(combination) for combination in product(*pieces)]
    if wrong := next((name for name in names if not 1 <= len(name) <= MAX_HOST
                      or not name.isprintable() or name != name.strip()), None):
        raise ValueError(f"{wrong[:80]!r} is not a host name: 1 to {MAX_HOST} printable "
                         "characters")
    return names


def _numbers(text: str, most: int) -> list[str]:
    """Expand `01-40,44`; numbers have as many digits as the first one of their range."""
    numbers: list[str] = []
    for word in text.split(","):
        match = _RANGE.fullmatch(word.strip())
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ValueError(f"[{text[:40]}] is not a range of numbers, such as [01-40]")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= most - len(numbers):
            raise ValueError(f"a list names {MAX_NAMES:,} hosts at most")
        numbers += [f"{number:0{len(match[1])}d}" for number in range(first, last + 1)]
    return numbers
