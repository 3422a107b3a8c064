"""Picture of the screen as lines of styled words, for any size. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpudeck.words.actions import age, moment

from .model import GpuRow, Item, JobRow, TopModel, natural, news, sort_jobs
from .text import Line, bar, cut, cut_line, pad, width_of

ROWS_MOST = 12  # GPUs, until they are shown more densely
COLUMN_LEAST = 21  # next to a label: a short bar and the numbers
OWNER_LEAST = 10  # columns, with the gap before it
COLUMN_MOST = 60  # lines, in a file too: more are no overview
BAR_LEAST = 4
BAR_MOST = 24  # a bar that grows without end hides the numbers
ONLY_JOBS_BELOW = 12  # lines
JOBS_LEAST = 4
QUEUE_MOST = 3
COMMAND_MOST = 4_096
OLD_S = 10.0
MARKS = {"busy": "#", "idle": ".", "waste": "W", "crit": "!", "paused": "x", "lease": "L",
         "soft": "~"}
MEANING = "# busy  . idle  W wasted  x paused  L leased  ~ no reading  ! lost"
KEYS = " ↑↓ select  / filter  s sort  t tree  m mine  p pause  e end  ? help  q quit"
HELP = (
    "↑ ↓ k j    select a job; the selection follows the job",
    "Enter      full command line, owner and GPUs",
    "t          its processes below it",
    "/          filter, as on the web pages: util<5 & mem>50% & user:ana; Esc clears it",
    "s          sort by: wasted first, memory, load, owner, age",
    "m          only your own jobs and their GPUs",
    "v          preview of an end; nothing is done",
    "p r e      pause, resume, end: shows a preview, then asks",
    "n          notify its owner",
    "Ctrl-L     redraw",
    "q Ctrl-C   quit; tasks keep running",
    "",
    f"Many GPUs: {MEANING}",
    "Wasted: nothing runs on the GPU, and tasks hold 1 GiB or more of its memory.",
)


@dataclass(frozen=True, slots=True)
class TopView:
    """View that a person has chosen. `entry`: a filter that is being typed."""

    sort: str = "wasted"
    filter: str = ""
    is_mine: bool = False
    selected: str | None = None
    opened: frozenset[str] = frozenset()
    has_details: bool = False
    has_help: bool = False
    entry: str | None = None
    message: str = ""


def shown_jobs(model: TopModel, view: TopView) -> list[JobRow]:
    return sort_jobs(model.jobs, view.sort)


def frame(model: TopModel, view: TopView, width: int, height: int, now: float,
          is_utf8: bool = True) -> list[Line]:
    """Return exactly `height` lines, none wider than `width`."""
    head = [_title(model, view, width, now)]
    foot = [_foot(view)] if height > 2 else []
    room = height - len(head) - len(foot)
    if view.has_help:
        body: list[Line] = [[(help_line, "")] for help_line in HELP]
    else:
        body = _body(model, view, width, room, now, is_utf8)
    body = body[:room] + [[] for _ in range(room - len(body))]
    lines = (head + body + foot)[:height]
    return [cut_line(line if is_utf8 else _ascii(line), width) for line in lines]


def plain(model: TopModel, view: TopView, width: int, now: float, is_utf8: bool) -> list[Line]:
    """Return all of it, as long as it is: for files and pipes."""
    lines = [_title(model, view, width, now), *_gpu_lines(model, width, 10**6, is_utf8), [],
             *_job_lines(model, view, width, 10**6, now), *_queue_lines(model, width)]
    return [cut_line(line if is_utf8 else _ascii(line), width) for line in lines]


def _ascii(line: Line) -> Line:
    return [(words.replace("↑↓", "up/down").replace("↑ ↓", "up down"), style)
            for words, style in line]


def _title(model: TopModel, view: TopView, width: int, now: float) -> Line:
    line: Line = [("gpudeck top", "bold"), (f"  {model.title}", "soft")]
    if model.at is not None and now - model.at > OLD_S:
        line.append((f"  {age(now - model.at)} old", "crit"))
    line += [(f"  {words}", style) for words, style in news(model)]
    settings = [f"sort: {view.sort}"] if view.sort != "wasted" else []
    settings += ["mine"] if view.is_mine else []
    settings += [f"filter: {view.filter}"] if view.filter else []
    if settings:
        line.append((f"  [{', '.join(settings)}]", "lease"))
    return [*line, (f"  {model.models}", "soft")]


def _foot(view: TopView) -> Line:
    if view.entry is not None:
        return [(" filter: ", "bold"), (view.entry, ""), ("_", "sel")]
    return [(f" {view.message}", "bold")] if view.message else [(KEYS, "soft")]


def _body(model: TopModel, view: TopView, width: int, room: int, now: float, is_utf8: bool
          ) -> list[Line]:
    jobs = shown_jobs(model, view)
    if room < ONLY_JOBS_BELOW - 2:
        return _job_lines(model, view, width, room, now)
    queue, notes = _queue_lines(model, width), _note_lines(model)
    # GPUs take what jobs leave, and a good half if jobs want more.
    wanted_rows = min(len(jobs) + len(view.opened) + 1, max(JOBS_LEAST, room // 3))
    gpus = _gpu_lines(model, width, room - wanted_rows - 1 - len(queue) - len(notes), is_utf8)
    left_rows = room - len(gpus) - 1 - len(queue) - len(notes)
    lower = _details(model, view, width, left_rows, now) if view.has_details else _job_lines(
        model, view, width, left_rows, now)
    return [*gpus, [], *(lower + [[] for _ in range(left_rows - len(lower))]), *queue, *notes]


# -- GPUs


def _gpu_lines(model: TopModel, width: int, room: int, is_utf8: bool) -> list[Line]:
    count = len(model.gpus)
    if not count:
        return [[("no GPU" if model.at is not None else "waiting for the first reading", "soft")]]
    if count <= ROWS_MOST and count + 1 <= room:
        return _gpu_table(model, width, is_utf8)
    most = width // (_label_width(model) + COLUMN_LEAST)
    longest = min(room, COLUMN_MOST)
    across = next((columns for columns in range(2, most + 1)
                   if -(-count // columns) <= longest), None)
    if across is not None:
        return _gpu_columns(model, width, across, is_utf8)
    return _gpu_map(model, width, max(room, 2))


def _label(gpu: GpuRow, is_fleet: bool) -> str:
    return f"{gpu.host}/{gpu.place}" if is_fleet else gpu.place


def _label_width(model: TopModel) -> int:
    return max(3, min(16, max(width_of(_label(gpu, model.is_fleet)) for gpu in model.gpus)))


def _gpu_table(model: TopModel, width: int, is_utf8: bool) -> list[Line]:
    first = _label_width(model)
    bars = min(BAR_MOST, max(6, (width - first - 52) // 2))
    has_memory_bar, has_heat = width >= 60, width >= 50
    head = f"{pad('GPU', first)} {pad('load %', bars + 5)}"
    head += f" {pad('memory GiB', bars + 10)}" if has_memory_bar else " memory GiB"
    head += "  °C     W" if has_heat else ""
    lines: list[Line] = [[(head + "  owner", "head")]]
    for gpu in model.gpus:
        line: Line = [(pad(_label(gpu, model.is_fleet), first), "")]
        if gpu.util_pct is None:
            line.append((f" {gpu.words or 'load unknown'}", gpu.mark))
            if gpu.mark == "crit" or gpu.mem_used is None:
                lines.append(line)
                continue
        load = bar(None if gpu.util_pct is None else gpu.util_pct / 100, bars, is_utf8)
        is_wasted = gpu.mark == "waste"
        line = [(line[0][0], ""), (" " + load, gpu.mark),
                (_number(gpu.util_pct, 5), gpu.mark)]
        if has_memory_bar:
            share = gpu.mem_used / gpu.mem_total if gpu.mem_used is not None and (
                gpu.mem_total) else None
            line.append((" " + bar(share, bars, is_utf8), "waste" if is_wasted else "soft"))
        line.append((pad(_memory(gpu), 10, right=True), "waste" if is_wasted else ""))
        if has_heat:
            line.append((f"{_number(gpu.temp_c, 4)}{_number(gpu.power_w, 6)}", ""))
        line += [("  " + ", ".join(gpu.owners), ""),
                 (f"  {gpu.words}" if gpu.words else "", gpu.mark)]
        lines.append(line)
    return lines


def _number(value: float | None, width: int) -> str:
    return f"{'-' if value is None else f'{value:.0f}':>{width}}"


def _gib(amount: float | None) -> str:
    return "-" if amount is None else f"{amount / 2**30:.0f}"


def _memory(gpu: GpuRow) -> str:
    return f"{_gib(gpu.mem_used)}/{_gib(gpu.mem_total)}"


def _gpu_columns(model: TopModel, width: int, across: int, is_utf8: bool) -> list[Line]:
    first, rows = _label_width(model), -(-len(model.gpus) // across)
    column = width // across - 2
    room = column - first - 16  # of the bar, and of owners where both fit
    has_owners = room >= BAR_LEAST + OWNER_LEAST
    bars = min(BAR_MOST, max(BAR_LEAST, room - (OWNER_LEAST if has_owners else 0)))
    gpus = sorted(model.gpus, key=lambda gpu: natural(gpu.host))
    lines: list[Line] = []
    for at in range(rows):
        line: Line = []
        for gpu in gpus[at::rows]:
            load = bar(None if gpu.util_pct is None else gpu.util_pct / 100, bars, is_utf8)
            cell: Line = [(pad(_label(gpu, model.is_fleet), first), ""), (f" {load}", gpu.mark),
                          (_number(gpu.util_pct, 4), gpu.mark),
                          (pad(_memory(gpu), 8, right=True),
                           "waste" if gpu.mark == "waste" else ""),
                          (f"  {', '.join(gpu.owners)}" if has_owners else "", ""),
                          (f"  {gpu.words}" if has_owners and gpu.words else "", gpu.mark)]
            if gpu.util_pct is None:
                cell[1:] = [(f" {gpu.words or 'load unknown'}", gpu.mark)]
            cell = cut_line(cell, column)
            space = column - sum(width_of(words) for words, _ in cell)
            line += [*cell, (" " * (space + 2), "")]
        lines.append(line)
    return lines


def _gpu_map(model: TopModel, width: int, room: int) -> list[Line]:
    """Draw a character for each GPU, node by node, the worst nodes first where not all of them
    fit."""
    nodes: dict[str, list[GpuRow]] = {}
    for gpu in sorted(model.gpus, key=lambda gpu: natural(gpu.host)):
        nodes.setdefault(gpu.host, []).append(gpu)
    label = min(14, max(map(width_of, nodes)))
    block = min(width, label + 1 + max(map(len, nodes.values())))
    across = max(1, (width + 2) // (block + 2))
    names = list(nodes)
    if -(-len(names) // across) > room - 1:
        worst = {name: sum(gpu.mark in ("waste", "crit") for gpu in gpus)
                 for name, gpus in nodes.items()}
        names.sort(key=lambda name: -worst[name])
    visible = names[:across * max(1, room - 1)]
    lines: list[Line] = []
    for at in range(0, len(visible), across):
        line: Line = []
        for name in visible[at:at + across]:
            line.append((pad(name, label) + " ", "soft"))
            line += [(MARKS[gpu.mark], gpu.mark) for gpu in nodes[name]]
            line.append((" " * max(2, block - label - 1 - len(nodes[name]) + 2), ""))
        lines.append(line)
    more = len(names) - len(visible)
    return [*lines, [(f"and {more} more nodes   " if more else "", "bold"), (MEANING, "soft")]]


# -- jobs


def _job_lines(model: TopModel, view: TopView, width: int, room: int, now: float) -> list[Line]:
    """Return the head, and as many jobs as fit around the selected one."""
    jobs = shown_jobs(model, view)
    places = 12 if model.is_fleet else 8
    owner = 10 if width < 100 else 16
    mems, ages = 7 if width >= 50 else 0, 8 if width >= 60 else 0
    name = max(8, width - owner - places - 10 - mems - ages)
    head = (f"{pad('OWNER', owner)}{pad('JOB', name)} {pad('GPUS', places)}{pad('LOAD', 9)}"
            f"{pad('MEM', mems, right=True)}{pad('AGE', ages, right=True)}")
    lines: list[Line] = [[(head, "head")]]
    if not jobs:
        return [*lines, [(_none(model, view), "soft")]]
    rows: list[Line] = []
    selected_at = 0
    for job in jobs:
        is_selected = job.key == view.selected
        selected_at = len(rows) if is_selected else selected_at
        memory = f"{_gib(job.mem_bytes)} G" if job.mem_bytes is not None else "-"
        run = "-" if job.started_at is None else _short_age(now - job.started_at)
        where = f"{job.host}:{_places(job.places)}" if model.is_fleet else _places(job.places)
        ranks = f" ({len(job.tasks)})" if len(job.tasks) > 1 else ""
        what = pad(cut(job.command, name - len(ranks)) + ranks, name)
        rows.append([
            (f"{pad(job.owner, owner - 1)} {what} {pad(where, places - 1)} ",
             "sel" if is_selected else ""),
            (f"{pad(job.state, 9)}{pad(memory, mems, right=True)}{pad(run, ages, right=True)}",
             "sel" if is_selected else job.mark)])
        if job.key in view.opened:
            rows += [_task_line(task, is_last=task is job.tasks[-1]) for task in job.tasks]
    top = max(0, min(selected_at - (room - 1) // 2, len(rows) - (room - 1)))
    return lines + rows[top:top + max(0, room - 1)]


def _none(model: TopModel, view: TopView) -> str:
    if model.at is None:
        return "waiting for the first list of tasks"
    return "no job of yours matches" if view.is_mine and view.filter else (
        "no job of yours" if view.is_mine else
        "no job matches the filter" if view.filter else "no task on any GPU")


def _places(places: Sequence[str]) -> str:
    """Shorten a list of numbers: 0-4 for 0,1,2,3,4."""
    if not places:
        return "-"
    if not all(place.isdigit() for place in places):
        return ",".join(places)
    numbers = sorted(map(int, places))
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _short_age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def _task_line(task: Item, is_last: bool) -> Line:
    memory = "-" if task["mem_used_bytes"] is None else f"{_gib(task['mem_used_bytes'])} G"
    return [(f"  {'`-' if is_last else '|-'} {task['pid']:<9}{task['state'] or 'unknown':<10}"
             f"{memory:>7}  {task['command'] or 'command unknown'}", "soft")]


def _details(model: TopModel, view: TopView, width: int, room: int, now: float) -> list[Line]:
    job = next((row for row in model.jobs if row.key == view.selected), None)
    if job is None:
        return [[("select a job first", "soft")]]
    began = "unknown" if job.started_at is None else (
        f"{moment(job.started_at)}, {age(now - job.started_at)} ago")
    first = job.tasks[0]
    facts = [("owner", job.owner), ("node", job.host), ("GPUs", _places(job.places)),
             ("began", began), ("state", job.state), ("manager", first["manager"] or "none"),
             *((name.replace("_", " "), str(value))
               for name, value in (first.get("owner") or {}).items() if value is not None)]
    text = cut(first["command"] or "command unknown", COMMAND_MOST)
    lines: list[Line] = [[("JOB ", "head"), (job.task_id, "bold")]]
    while text and len(lines) < max(2, room // 2):
        part = cut(text, max(width - 2, 2))
        lines.append([(f"  {part}", "")])
        text = text[len(part):]
    return (lines + [[(f"  {pad(name, 14)}", "soft"), (value, "")] for name, value in facts])[:room]


# -- queue, host


def _queue_lines(model: TopModel, width: int) -> list[Line]:
    lines: list[Line] = [[(f"QUEUE  {len(model.queue)} waiting", "head")]] if model.queue else []
    lines += [[(f"{row.place:>3}. {pad(row.owner, 10)} {row.asks}: ", ""), (row.why, "soft")]
              for row in model.queue[:QUEUE_MOST]]
    return lines


def _note_lines(model: TopModel) -> list[Line]:
    lines: list[Line] = [[(model.trouble, "crit")]] if model.trouble else []
    lines += [[(note, "waste")] for note in model.notes[:2]]
    return lines + ([[(model.host_words, "soft")]] if model.host_words else [])
