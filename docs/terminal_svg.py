"""Draws what was on a terminal as an SVG, screen after screen. Pure."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

LETTER = 8.4  # of 14 px
LINE = 19
EDGE = 14
SCREEN_S = 4
GROUND, INK = "#0c1117", "#e8edf3"
# As pyte names the first sixteen.
NAMED = {"default": INK, "black": "#263140", "red": "#f44f5d", "green": "#7fb0a6",
         "brown": "#ffc53d", "blue": "#5b9bd5", "magenta": "#b59be6", "cyan": "#5fc9bc",
         "white": INK, "brightblack": "#7d8a9a"}


@dataclass(frozen=True, slots=True)
class Letter:
    text: str
    colour: str = "default"  # a name of NAMED, or six digits
    is_bold: bool = False


def svg_of(screens: Sequence[Sequence[Sequence[Letter]]]) -> str:
    """Return an image that shows the screens in turn, for some seconds each; all of one size."""
    columns, lines = len(screens[0][0]), len(screens[0])
    width, height = round(columns * LETTER + 2 * EDGE), lines * LINE + 2 * EDGE
    whole_s, share = SCREEN_S * len(screens), 100 / len(screens)
    groups = "".join(
        f"<g class='screen' style='animation-delay:{at * SCREEN_S - whole_s}s'>"
        f"{''.join(_lines(screen))}</g>\n" for at, screen in enumerate(screens))
    moving = "" if len(screens) == 1 else (
        f".screen{{animation:turn {whole_s}s step-end infinite;visibility:hidden}}"
        f"@keyframes turn{{0%{{visibility:visible}}{share:.4f}%{{visibility:hidden}}}}")
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}'>\n"
        f"<style>text{{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;"
        f"white-space:pre}}.b{{font-weight:700}}{moving}</style>\n"
        f"<rect width='{width}' height='{height}' rx='10' fill='{GROUND}'/>\n{groups}</svg>\n")


def _lines(screen: Sequence[Sequence[Letter]]) -> Iterator[str]:
    for row, letters in enumerate(screen):
        at = 0
        for (colour, is_bold), run in groupby(letters, lambda one: (one.colour, one.is_bold)):
            text = "".join(one.text for one in run)
            if text.strip():
                yield _text(text, at, row, NAMED.get(colour, f"#{colour}"), is_bold)
            at += len(text)


def _text(text: str, at: int, row: int, colour: str, is_bold: bool) -> str:
    x, y = EDGE + at * LETTER, EDGE + row * LINE + 14
    # Whatever font there is, columns stay columns.
    return (f"<text x='{x:.1f}' y='{y}' fill='{colour}' textLength='{len(text) * LETTER:.1f}'"
            f"{' class=' + repr('b') if is_bold else ''}>{html.escape(text)}</text>")
