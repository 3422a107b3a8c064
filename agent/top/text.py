"""Text for a screen of cells: what processes call themselves must neither steer the terminal nor
push aside what follows. Pure."""

import unicodedata
from collections.abc import Iterator

UNSHOWN = "\N{REPLACEMENT CHARACTER}"
BLOCKS = " ▏▎▍▌▋▊▉█"

Line = list[tuple[str, str]]  # words and the name of their style


def _cells(text: str) -> Iterator[tuple[str, int]]:
    """Yield the characters, and how many cells each takes. Emoji and combining marks take as many
    as the terminal likes."""
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
    """Return as much as fits."""
    chars, room = [], width
    for char, takes in _cells(text):
        room -= takes
        if room < 0:
            break
        chars.append(char)
    return "".join(chars)


def width_of(text: str) -> int:
    return sum(takes for _, takes in _cells(text))


def pad(text: str, width: int, right: bool = False) -> str:
    """Cut or fill the text to exactly this width."""
    visible = cut(text, width)
    space = " " * (width - width_of(visible))
    return space + visible if right else visible + space


def cut_line(line: Line, width: int) -> Line:
    parts: Line = []
    for words, style in line:
        visible = cut(words, width)
        width -= width_of(visible)
        if visible:
            parts.append((visible, style))
    return parts


def bar(share: float | None, width: int, is_utf8: bool) -> str:
    """Draw a bar. Unknown is drawn as a mark, and not as an empty bar."""
    if share is None:
        return pad("·" if is_utf8 else "?", width)
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if not is_utf8:
        return ("#" * (eighths // 8)).ljust(width)
    return ("█" * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")).ljust(width)
