"""Text for a screen of cells: what processes call themselves must neither steer the terminal nor
push what stands behind it aside. Pure."""

import unicodedata
from collections.abc import Iterator

UNSHOWN = "\N{REPLACEMENT CHARACTER}"
BLOCKS = " ▏▎▍▌▋▊▉█"

Line = list[tuple[str, str]]  # words and the name of their style


def _cells(text: str) -> Iterator[tuple[str, int]]:
    """Its characters, and how many cells each takes. Emoji and combining marks take as many as
    the terminal likes."""
    for char in text:
        if " " <= char <= "~":
            yield char, 1
        elif not char.isprintable():
            yield UNSHOWN, 1
        elif unicodedata.east_asian_width(char) in "WF":
            yield (char, 2) if unicodedata.category(char)[0] == "L" else (UNSHOWN, 1)
        elif unicodedata.category(char)[0] != "M":
            yield char, 1


def cut(text: str, width: int) -> str:
    """As much as fits."""
    found, room = [], width
    for char, takes in _cells(text):
        room -= takes
        if room < 0:
            break
        found.append(char)
    return "".join(found)


def width_of(text: str) -> int:
    return sum(takes for _, takes in _cells(text))


def pad(text: str, width: int, right: bool = False) -> str:
    """Exactly so wide."""
    shown = cut(text, width)
    space = " " * (width - width_of(shown))
    return space + shown if right else shown + space


def cut_line(line: Line, width: int) -> Line:
    found: Line = []
    for words, style in line:
        shown = cut(words, width)
        width -= width_of(shown)
        if shown:
            found.append((shown, style))
    return found


def bar(share: float | None, width: int, is_utf8: bool) -> str:
    """Unknown is no bar, and not an empty one either."""
    if share is None:
        return pad("·" if is_utf8 else "?", width)
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if not is_utf8:
        return ("#" * (eighths // 8)).ljust(width)
    return ("█" * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")).ljust(width)
