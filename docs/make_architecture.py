"""Writes docs/internals/architecture.md and its pictures from the source: packages and their
arrows, and the ways of a sample and of an order, whose every step must be there in the code.
`--check` only compares; tests/unit/test_docs.py runs that."""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tests.test_layout import FLOOR, FLOORS, ROOT, imported, package_in, tree_of

PAGE = ROOT / "docs/internals/architecture.md"
IMAGES = ROOT / "docs/images"
NOTE = "<!-- made by docs/make_architecture.py -->"
PROGRAMS = ("agent", "dashboard")
GAP, MARGIN, CELL = 16, 14, 22
STEP_W, STEP_H, STEPS_IN_A_ROW = 210, 62, 5


@dataclass(frozen=True, slots=True)
class WayStep:
    """`symbol`: a class, a function or `Class.method` of this file."""

    file: str
    symbol: str
    words: str


SAMPLE = (
    WayStep("agent/backends/nvml/reader.py", "NvmlReader.read", "reads every GPU"),
    WayStep("agent/reader/loop.py", "serve", "once a second, in a child process"),
    WayStep("agent/reader/watchdog.py", "ReaderProcess", "takes it over, or calls the child hung"),
    WayStep("agent/telemetry/sampler.py", "sample", "makes a frame of it"),
    WayStep("agent/link/outbox.py", "Outbox", "keeps it until the hub has it on disk"),
    WayStep("agent/link/socket.py", "HubLink", "sends it"),
    WayStep("dashboard/nodes/ingest/process.py", "IngestLoop",
            "reads and bounds it where a hub has many agents; else the hub does"),
    WayStep("dashboard/nodes/socket.py", "AgentEndpoint", "receives it from a proven node"),
    WayStep("dashboard/fleet/state_machine.py", "FleetStateMachine.handle",
            "decides what it means"),
    WayStep("dashboard/fleet/fleet.py", "Fleet.frame", "updates the picture of the fleet"),
    WayStep("dashboard/nodes/recorder.py", "MessageRecorder", "writes the log, then acknowledges"),
    WayStep("dashboard/history/files/store.py", "HistoryStore", "seals it into files"),
    WayStep("dashboard/live/socket.py", "LiveEndpoint.applied",
            "sends one packed frame to viewers"),
)
ORDER = (
    WayStep("dashboard/actions/api.py", "ActionsApi", "a person previews, then orders"),
    WayStep("dashboard/actions/service.py", "ActionService", "checks rights, holds, keeps"),
    WayStep("dashboard/actions/commander.py", "Commander", "records it"),
    WayStep("dashboard/actions/signer_process.py", "SignerService", "signs what has a preview"),
    WayStep("dashboard/nodes/socket.py", "AgentEndpoint.send", "sends it to the node"),
    WayStep("agent/actions/service.py", "CommandService", "judges it, check by check"),
    WayStep("agent/journal/store.py", "ActionJournal", "writes the intent to disk"),
    WayStep("agent/actions/targets.py", "open_targets", "takes hold of the processes"),
    WayStep("agent/actions/execute.py", "ActionExecutor", "acts, mildest step first"),
    WayStep("agent/actions/verify.py", "outcome", "looks whether it is true"),
    WayStep("dashboard/actions/lifecycle.py", "CommandLifecycle", "keeps the outcome"),
    WayStep("dashboard/audit/recorder.py", "AuditRecorder", "chains the record"),
)


def symbols(path: Path) -> Iterator[str]:
    for node in tree_of(path).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{method.name}" for method in node.body
                        if isinstance(method, ast.FunctionDef))


def missing(way: Sequence[WayStep]) -> list[str]:
    return [f"{step.file}: {step.symbol}" for step in way
            if not (ROOT / step.file).is_file() or step.symbol not in symbols(ROOT / step.file)]


def arrows(program: str) -> dict[str, set[str]]:
    """Package -> packages that it imports from."""
    targets: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / program).rglob("*.py")):
        package = package_in(path.relative_to(ROOT).parts)
        for _, target in imported(path):
            other = package_in(target)
            if other != package and (program, other) in FLOOR:
                targets[package].add(other)
    return targets


def packages(program: str) -> list[tuple[str, str]]:
    """(name, what its docstring says), from the top floor down."""
    rows = []
    for floor in reversed(FLOORS[program]):
        for name in floor.split():
            place = ROOT / program / name.replace(".", "/")
            for path in (place / "__init__.py", place.with_suffix(".py")):
                if path.is_file():
                    says = ast.get_docstring(tree_of(path)) or ""
                    rows.append((name, " ".join(says.partition("\n\n")[0].split())))
    return rows


def table(program: str) -> str:
    to = arrows(program)
    rows = [f"| `{name}` | {says} | {', '.join(sorted(to.get(name, ())))} |"
            for name, says in packages(program) if name != "__main__"]
    return "\n".join(["| package | what it is | imports from |", "| --- | --- | --- |", *rows])


def text(x: float, y: float, words: str, size: int = 12, anchor: str = "middle") -> str:
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">'
            f"{escape(words)}</text>")


def box(x: float, y: float, width: float, height: float) -> str:
    return (f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="5" '
            'fill="#eef3f8" stroke="#5b7083"/>')


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            'font-family="sans-serif" fill="#17212b">\n'
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#5b7083"/></marker>'
            '</defs>'
            f'\n<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>\n')
    return head + "\n".join(parts) + "\n</svg>\n"


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    return (f'<path d="M{x1:.0f} {y1:.0f} {x2:.0f} {y2:.0f}" stroke="#5b7083" fill="none" '
            'marker-end="url(#tip)"/>')


def matrix_picture(program: str) -> str:
    """A dot where the package of the row imports from the package of the column. Both go from the
    lowest floor up, so that an arrow that points up would be a dot above the diagonal."""
    names = [name for name, _ in reversed(packages(program)) if name != "__main__"]
    to, left, top = arrows(program), 130, 112
    size = left + CELL * len(names) + MARGIN, top + CELL * len(names) + MARGIN
    parts = []
    for row, name in enumerate(names):
        y = top + row * CELL
        parts += [text(left - 8, y + CELL / 2 + 4, name, 12, "end"),
                  f'<g transform="translate({left + row * CELL + CELL / 2 + 4} {top - 8}) '
                  f'rotate(-55)">{text(0, 0, name, 12, "start")}</g>']
        for column, other in enumerate(names):
            x = left + column * CELL
            if column == row:
                parts.append(f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" '
                             'fill="#d5dee6"/>')
            elif column < row:
                parts.append(f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" '
                             'fill="#f4f7fa" stroke="#fff"/>')
            if other in to.get(name, ()):
                parts.append(f'<circle cx="{x + CELL / 2}" cy="{y + CELL / 2}" r="5" '
                             'fill="#0b62a3"/>')
    return svg(*size, parts)


def way_picture(way: Sequence[WayStep]) -> str:
    parts: list[str] = []
    for number, step in enumerate(way):
        row, place = divmod(number, STEPS_IN_A_ROW)
        column = place if row % 2 == 0 else STEPS_IN_A_ROW - 1 - place  # to and fro
        x, y = MARGIN + column * (STEP_W + 2 * GAP), MARGIN + row * (STEP_H + 2 * GAP)
        package = "/".join(step.file.split("/")[:2]).removesuffix(".py")
        parts += [box(x, y, STEP_W, STEP_H),
                  text(x + STEP_W / 2, y + 17, package, 11),
                  text(x + STEP_W / 2, y + 35, step.symbol, 12),
                  text(x + STEP_W / 2, y + 52, step.words, 10)]
        if number + 1 == len(way):
            continue
        if place + 1 == STEPS_IN_A_ROW:
            parts.append(line(x + STEP_W / 2, y + STEP_H, x + STEP_W / 2,
                              y + STEP_H + 2 * GAP))
        elif row % 2 == 0:
            parts.append(line(x + STEP_W, y + STEP_H / 2, x + STEP_W + 2 * GAP,
                              y + STEP_H / 2))
        else:
            parts.append(line(x, y + STEP_H / 2, x - 2 * GAP, y + STEP_H / 2))
    rows = -(-len(way) // STEPS_IN_A_ROW)
    return svg(2 * MARGIN + STEPS_IN_A_ROW * (STEP_W + 2 * GAP) - 2 * GAP,
               2 * MARGIN + rows * (STEP_H + 2 * GAP) - 2 * GAP, parts)


def steps(way: Sequence[WayStep]) -> str:
    return "\n".join(f"{number}. `{step.symbol}` in `{step.file}` {step.words}."
                     for number, step in enumerate(way, 1))


INTRODUCTION = f"""# How it is built

{NOTE}

One **agent** runs on each node. A child process reads the driver, so that a call that hangs does
not hang the agent. The agent turns each reading into a frame and sends it to the **hub** over a
websocket that it opens itself. The hub applies the frame to its picture of the fleet, appends it
to a checksummed log, and acknowledges it once the log is on disk. What is not acknowledged is
sent again; what arrives twice is dropped by its number. [When the hub is away](../outage.md) has
the rest.

Browsers get one packed byte per GPU and second, drawn on a canvas; exact values are fetched for
what is looked at.

`agent/` runs on a node, `dashboard/` is the hub, `widget/` the notebook. The three never import
each other; `gpudeck/` is what they share.

## Where to look

A capability is a package, and every capability of the hub has the same rooms: `core` (pure: time,
randomness and data are arguments), `store.py` (its only SQL), `service.py` (state and what it
does), `queries.py` (reads that depend on who asks), `views.py` (pure: state to exactly what is
shown), `api.py` (routes) and `wiring.py`: its `build(core)` makes the parts and says what the hub
does with them. Other files say what they do in the field's words: `preview.py`, `execute.py`,
`verify.py`. Routes parse, ask their own package and answer; what they take from another is a table
with reasons in `tests/test_layout.py`.

A package imports only from packages on floors below its own. What it needs from above comes as a
protocol in a constructor, as a function across a `Seam`, or as a typed event through
`dashboard/runtime/dispatcher.py`. The capabilities of the hub are the rows of
`dashboard/capabilities.py`, in the order of building; those of a node the lines of `build_node` in
`agent/node.py`. `tests/test_layout.py` and `tests/test_wiring.py` hold these rules.

A page is a file in `dashboard/pages/`. What is read is written there, in Python; what is live
(maps, charts, dialogs) is JavaScript in `assets/`, whose folders stand on floors as packages do.
Its types are in `types/`: those of answers and messages are made from the structs that the hub
sends. [How pages are made](pages.md) has the rest.
"""

PAST = """## The past

Seconds that no file has yet lie in memory, an array per metric. Files of seconds, minutes and hours
are sorted by GPU, node and time, in row groups of some GPUs. While a file of seconds is written,
`runs_in` in `dashboard/history/files/row_index.py` notes in which rows each GPU's seconds lie
without a hole: 24 bytes per GPU and five minutes. So a query about few GPUs, or about one moment of
all, reads one column of few row groups and no SQL runs.

`FileCache` in `dashboard/history/files/file_cache.py` keeps what stands at the ends of files, these
indexes, and columns, unpacked. Each of the three has a bound, of columns 64 MB; what was used last
stays, and what a merge or the retention has deleted is forgotten. A query whose columns would fill
more than half of that keeps none. Files never change under their names, so nothing in the cache
becomes wrong. Lists of tasks and events, usage by owner and slow metrics are asked of DuckDB, over
the same files."""


def page() -> str:
    return f"""{INTRODUCTION}
## The hub

Packages from the top floor down. In the picture a dot says that the package of the row imports
from the package of the column.

{table("dashboard")}

![Packages of the hub and their arrows](../images/architecture-dashboard.svg)

## The agent

{table("agent")}

![Packages of the agent and their arrows](../images/architecture-agent.svg)

## What all programs share

{table("gpudeck")}

## The way of a sample

![From the driver to a browser](../images/way-of-a-sample.svg)

{steps(SAMPLE)}

{PAST}

## The way of an order

![From a click to a verified outcome](../images/way-of-an-order.svg)

{steps(ORDER)}

Between the two programs nothing is believed twice: the hub's signer signs only what carries a
fresh preview, and the node checks everything again on its own reading. [Ordering an
act](../commands.md) has the list of checks.
"""


def files() -> dict[Path, str]:
    return {
        PAGE: page(),
        IMAGES / "architecture-agent.svg": matrix_picture("agent"),
        IMAGES / "architecture-dashboard.svg": matrix_picture("dashboard"),
        IMAGES / "way-of-a-sample.svg": way_picture(SAMPLE),
        IMAGES / "way-of-an-order.svg": way_picture(ORDER),
    }


def stale() -> list[str]:
    return [path.name for path, want in files().items()
            if not path.is_file() or path.read_text() != want]


def main(arguments: Sequence[str]) -> int:
    if lost_symbols := missing((*SAMPLE, *ORDER)):
        print("not in the code any more:", *lost_symbols, sep="\n  ")
        return 1
    if "--check" in arguments:
        print(*stale(), sep="\n")
        return int(bool(stale()))
    for path, want in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(want)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
