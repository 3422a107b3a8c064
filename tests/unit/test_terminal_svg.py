"""The picture of a terminal: each letter in its column, hostile ones as text."""

import xml.etree.ElementTree as ET

from docs.terminal_svg import EDGE, LETTER, Letter, svg_of

TEXT = "{http://www.w3.org/2000/svg}text"


def screen(*lines: str, colour: str = "default") -> list[list[Letter]]:
    return [[Letter(letter, colour) for letter in line.ljust(12)] for line in lines]


def test_each_run_stands_in_its_column_and_is_text() -> None:
    first = screen("GPU <b>&'", "")
    first[0][4:7] = [Letter(letter, "ffaf00", True) for letter in "<b>"]
    svg = ET.fromstring(svg_of([first]))
    texts = [(one.text, one.get("fill"), one.get("class")) for one in svg.iter(TEXT)]
    assert [text for text, *_ in texts] == ["GPU ", "<b>", "&'   "]
    assert texts[1] == ("<b>", "#ffaf00", "b")
    assert [float(one.get("x") or 0) for one in svg.iter(TEXT)] == [
        round(EDGE + at * LETTER, 1) for at in (0, 4, 7)]


def test_screens_follow_each_other() -> None:
    svg = svg_of([screen("one"), screen("two", colour="red")])
    assert svg.count("class='screen'") == 2
    assert "@keyframes" in svg
    assert "@keyframes" not in svg_of([screen("one")])
