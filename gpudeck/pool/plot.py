"""A plot of what strategies give out, as SVG. Pure."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 420, 56, 48, 20
LEGEND = 150
# Told apart by colour-blind readers too (Okabe and Ito), and by their dashes.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
DASHES = ("", "6 3", "2 3", "8 3 2 3")


def allocation_svg(lines: Mapping[str, Sequence[tuple[float, float]]], title: str) -> str:
    """Plot strategies: of each, (asked for in % of all GPUs, given out in %)."""
    most = max((x for points in lines.values() for x, _ in points), default=100.0)
    least = min((y for points in lines.values() for x, y in points if x >= 80), default=0.0)
    floor = max(0.0, (least - 5) // 5 * 5)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="sans-serif" font-size="12">',
             f"<title>{escape(title)}</title>",
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - 60) / (most - 60) * (WIDTH - LEFT - LEGEND)
        return across, HEIGHT - BOTTOM - (y - floor) / (100 - floor) * (HEIGHT - BOTTOM - TOP)

    for tick in range(int(floor), 101, 5):
        x, y = at(60, tick)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{WIDTH - LEGEND}" stroke="#ddd"/>'
                     f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{tick} %</text>')
    for tick in range(60, int(most) + 1, 10):
        x, y = at(tick, floor)
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{tick} %</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // 2 % len(DASHES)]
        visible = [at(x, y) for x, y in points if x >= 60 and y >= floor]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in visible)
        y = TOP + 12 + number * 20
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
                     f'stroke-dasharray="{dash}"/>'
                     f'<path d="M{WIDTH - LEGEND + 12} {y - 4}h24" stroke="{colour}" '
                     f'stroke-width="2" stroke-dasharray="{dash}"/>'
                     f'<text x="{WIDTH - LEGEND + 42}" y="{y}">{escape(name)}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - LEGEND) / 2}" y="{HEIGHT - 10}" '
                 'text-anchor="middle">GPUs asked for, of all GPUs</text>'
                 f'<text x="{LEFT - 40}" y="{TOP - 6}">allocated</text></svg>')
    return "\n".join(parts) + "\n"
