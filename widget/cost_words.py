"""Cost of a stretch of work, in words and as a table with a small chart. Pure."""

from collections.abc import Sequence
from html import escape

from gpudeck.words.actions import gib, printable

from .cost import Cost, GpuCost, GpuSample, ProcessCost

WIDTH, HEIGHT = 260, 36
HEAD = ("GPU", "this kernel: SM", "memory", "the whole GPU: utilization", "memory", "energy", "")
COMMAND_WIDTH = 60
# Reasons that the kernel's part is empty, by `is_mine`.
NOTHING = {None: "whose share is not known", False: "this kernel was not seen there"}


def words(cost: Cost) -> str:
    lines = [_times(cost)]
    for gpu in cost.gpus:
        mine = (f"this kernel SM {_sm(gpu)}, memory {_memory(gpu)}" if gpu.is_mine
                else NOTHING[gpu.is_mine])
        lines.append(f"GPU {gpu.place} {printable(gpu.name)}: {mine}; the whole GPU utilization "
                     f"{_util(gpu)}, memory {_used_memory(gpu)}, energy "
                     f"{joules(gpu.energy_j)}{_sharers(gpu)}")
        lines += [f"  {_process(cost, pid)}: SM {_sm(part)}, memory {_memory(part)}"
                  for pid, part in _parts(cost, gpu)]
    return "\n".join([*lines, *([cost.note] if cost.note else [])])


def table(cost: Cost, points: Sequence[GpuSample], begin_at: float) -> str:
    rows = "".join(
        _row(f"{gpu.place} {printable(gpu.name)}",
             *((_sm(gpu), _memory(gpu)) if gpu.is_mine else (NOTHING[gpu.is_mine], "")),
             _util(gpu), _used_memory(gpu), joules(gpu.energy_j) + _sharers(gpu),
             picture=_picture(gpu, points, begin_at, cost.wall_s))
        + "".join(_row(_process(cost, pid), _sm(part), _memory(part), "", "", "")
                  for pid, part in _parts(cost, gpu)) for gpu in cost.gpus)
    head = "".join(f"<th>{escape(word)}</th>" for word in HEAD)
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    note = f"<p>{escape(cost.note)}</p>" if cost.note else ""
    return f'<div class="gpudeck-cost"><p>{escape(_times(cost))}</p>{body}{note}</div>'


def _row(*cells: str, picture: str = "") -> str:
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}<td>{picture}</td></tr>"


def _parts(cost: Cost, gpu: GpuCost) -> Sequence[tuple[int, ProcessCost]]:
    """Return the costs by process; none where the kernel alone makes up the sum."""
    return () if {*gpu.processes} <= {cost.kernel_pid} else sorted(gpu.processes.items())


def _process(cost: Cost, pid: int) -> str:
    command = printable(cost.commands.get(pid) or "command unknown")[:COMMAND_WIDTH]
    return f"{pid} this kernel itself" if pid == cost.kernel_pid else f"{pid} {command}"


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


def _sm(of: GpuCost | ProcessCost) -> str:
    return _mean_and_peak(of.sm_mean_pct, of.sm_peak_pct)


def _util(gpu: GpuCost) -> str:
    return _mean_and_peak(gpu.util_mean_pct, gpu.util_peak_pct)


def _mean_and_peak(mean: float | None, peak: float | None) -> str:
    if mean is None or peak is None:
        return "unknown"
    return f"mean {mean:.0f} %, peak {peak:.0f} %"


def _memory(of: GpuCost | ProcessCost) -> str:
    return _mean_and_peak_bytes(of.mem_mean_bytes, of.mem_peak_bytes)


def _used_memory(gpu: GpuCost) -> str:
    return _mean_and_peak_bytes(gpu.used_mean_bytes, gpu.used_peak_bytes)


def _mean_and_peak_bytes(mean: float | None, peak: float | None) -> str:
    return "unknown" if peak is None else f"mean {gib(mean)}, peak {gib(peak)}"


def _sharers(gpu: GpuCost) -> str:
    return f" (shared with {', '.join(map(printable, gpu.shared_with))})" if gpu.shared_with else ""


def _picture(gpu: GpuCost, points: Sequence[GpuSample], begin_at: float, wall_s: float) -> str:
    """Draw utilization of the GPU as a line, the memory of this kernel as a dashed one."""
    mine = [point for point in points if point.uuid == gpu.uuid]
    util = [(point.at, point.util_pct / 100) for point in mine if point.util_pct is not None]
    most = gpu.mem_peak_bytes or 1.0
    memory = [(point.at, point.mem_bytes / most) for point in mine if point.mem_bytes is not None]
    return (f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="utilization and memory over the cell">'
            f"{_line(util, begin_at, wall_s, '')}{_line(memory, begin_at, wall_s, '3 3')}</svg>")


def _line(track: Sequence[tuple[float, float]], begin_at: float, wall_s: float, dash: str) -> str:
    spots = " ".join(f"{(at - begin_at) / max(wall_s, 1e-3) * WIDTH:.1f},"
                     f"{(HEIGHT - 2) * (1 - min(share, 1.0)) + 1:.1f}"
                     for at, share in sorted(track) if 0 <= at - begin_at <= wall_s + 1)
    return (f'<polyline points="{spots}" fill="none" stroke="currentColor" stroke-width="1.5" '
            f'stroke-dasharray="{dash}"/>') if spots else ""
