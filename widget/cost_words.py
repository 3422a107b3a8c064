"""What a stretch of work cost, in words and as a table with a small picture. Pure."""

from collections.abc import Sequence
from html import escape

from gpudeck.action_words import gib, printable

from .cost import Cost, GpuCost, GpuSample

WIDTH, HEIGHT = 260, 36
HEAD = ("GPU", "this process: SM", "memory", "the whole GPU: utilization", "energy", "")


def words(cost: Cost) -> str:
    lines = [_times(cost)]
    lines += [f"GPU {gpu.place} {printable(gpu.name)}: this process SM {_pct(gpu)}, memory "
              f"{_memory(gpu)}; the whole GPU utilization {_util(gpu)}, energy "
              f"{joules(gpu.energy_j)}{_sharers(gpu)}" for gpu in cost.gpus]
    return "\n".join([*lines, *([cost.note] if cost.note else [])])


def table(cost: Cost, points: Sequence[GpuSample], begin_at: float) -> str:
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in (
            f"{gpu.place} {printable(gpu.name)}", _pct(gpu), _memory(gpu), _util(gpu),
            joules(gpu.energy_j) + _sharers(gpu)))
        + f"<td>{_picture(gpu, points, begin_at, cost.wall_s)}</td></tr>" for gpu in cost.gpus)
    head = "".join(f"<th>{escape(word)}</th>" for word in HEAD)
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    note = f"<p>{escape(cost.note)}</p>" if cost.note else ""
    return f'<div class="gpudeck-cost"><p>{escape(_times(cost))}</p>{body}{note}</div>'


def seconds(amount: float) -> str:
    if amount >= 120:
        return f"{int(amount // 60)} min {amount % 60:.0f} s"
    return f"{amount:.2f} s" if amount < 10 else f"{amount:.1f} s"


def joules(amount: float | None) -> str:
    if amount is None:
        return "unknown"
    if amount >= 3.6e5:
        return f"{amount / 3.6e6:.2f} kWh"
    return f"{amount / 1e3:.2f} kJ" if amount >= 1e4 else f"{amount:.0f} J"


def _times(cost: Cost) -> str:
    return f"wall {seconds(cost.wall_s)}, CPU {seconds(cost.cpu_s)}"


def _pct(gpu: GpuCost) -> str:
    return _mean_and_peak(gpu.sm_mean_pct, gpu.sm_peak_pct)


def _util(gpu: GpuCost) -> str:
    return _mean_and_peak(gpu.util_mean_pct, gpu.util_peak_pct)


def _mean_and_peak(mean: float | None, peak: float | None) -> str:
    if mean is None or peak is None:
        return "unknown"
    return f"mean {mean:.0f} %, peak {peak:.0f} %"


def _memory(gpu: GpuCost) -> str:
    if gpu.mem_peak_bytes is None:
        return "unknown"
    return f"mean {gib(gpu.mem_mean_bytes)}, peak {gib(gpu.mem_peak_bytes)}"


def _sharers(gpu: GpuCost) -> str:
    return f" (shared with {', '.join(map(printable, gpu.shared_with))})" if gpu.shared_with else ""


def _picture(gpu: GpuCost, points: Sequence[GpuSample], begin_at: float, wall_s: float) -> str:
    """Utilization of the GPU as a line, the memory of this process as a dashed one."""
    mine = [point for point in points if point.uuid == gpu.uuid]
    util = [(point.at, point.util_pct / 100) for point in mine if point.util_pct is not None]
    most = gpu.mem_peak_bytes or 1.0
    held = [(point.at, point.mem_bytes / most) for point in mine if point.mem_bytes is not None]
    return (f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="utilization and memory over the cell">'
            f"{_line(util, begin_at, wall_s, '')}{_line(held, begin_at, wall_s, '3 3')}</svg>")


def _line(track: Sequence[tuple[float, float]], begin_at: float, wall_s: float, dash: str) -> str:
    spots = " ".join(f"{(at - begin_at) / max(wall_s, 1e-3) * WIDTH:.1f},"
                     f"{(HEIGHT - 2) * (1 - min(share, 1.0)) + 1:.1f}"
                     for at, share in sorted(track) if 0 <= at - begin_at <= wall_s + 1)
    return (f'<polyline points="{spots}" fill="none" stroke="currentColor" stroke-width="1.5" '
            f'stroke-dasharray="{dash}"/>') if spots else ""
