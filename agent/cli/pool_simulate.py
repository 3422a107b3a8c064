"""`gpudeck pool simulate`: what strategies would have done with a list of claims."""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.times import span_words
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.schedule import PoolPolicy
from gpudeck.pool.core.simulation import (
    MARKS_PCT,
    PLOT_PCT,
    TracedClaim,
    allocation,
    averaged,
    waiting,
)
from gpudeck.pool.core.strategies import STRATEGIES, PlacementContext
from gpudeck.pool.plot import allocation_svg
from gpudeck.pool.trace import TraceRows, read_claims, read_nodes
from gpudeck.settings import parser
from gpudeck.words.actions import printable

FIRST_SEED = 42
BAD_SHOWN = 10


def simulate(argv: Sequence[str]) -> int:
    flags = parser("pool simulate", (), "Simulate a CSV of claims on a CSV of nodes with each "
                                        "strategy. docs/pool.md has the columns.")
    flags.add_argument("--trace", metavar="FILE", type=Path, required=True, help="the claims")
    flags.add_argument("--nodes", metavar="FILE", type=Path, required=True, help="the nodes")
    flags.add_argument("--strategy", metavar="A,B", default="pack,best_fit",
                       help=f"of {', '.join(STRATEGIES)}")
    flags.add_argument("--seeds", metavar="N", type=int, default=1,
                       help="number of shuffles, averaged")
    flags.add_argument("--plot", metavar="FILE", type=Path, help="write a plot to this SVG file")
    flags.add_argument("--json", action="store_true", help="JSON instead of a table")
    args = flags.parse_args(list(argv))
    names = [name for name in args.strategy.split(",") if name]
    if unknown := [name for name in names if name not in STRATEGIES]:
        raise CommandError(f"no strategy {unknown[0]!r}; there are {', '.join(STRATEGIES)}",
                           ExitCode.USAGE)
    if not 1 <= args.seeds <= 100:
        raise CommandError("--seeds: 1 to 100", ExitCode.USAGE)
    nodes: list[Node] = _rows(args.nodes, read_nodes)
    traced: list[TracedClaim] = _rows(args.trace, read_claims)
    results = [_run_strategy(name, nodes, traced, args) for name in names]
    if args.plot is not None:
        args.plot.write_text(allocation_svg(
            {result["strategy"]: result["line"] for result in results},
            f"{args.trace.name}: GPUs allocated, mean of {args.seeds} shuffles"))
    if args.json:
        print(json.dumps({"items": results}))
    else:
        print("\n".join(_table(results)))
    return ExitCode.OK


def _rows(path: Path, read: Any) -> Any:
    try:
        with path.open(newline="") as file:
            trace: TraceRows[Any] = read(file)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise CommandError(f"{path}: {error}", ExitCode.USAGE) from None
    for why in trace.bad[:BAD_SHOWN]:
        print(f"gpudeck: {path}: {printable(why)}; left out", file=sys.stderr)
    if len(trace.bad) > BAD_SHOWN:
        print(f"gpudeck: {path}: {len(trace.bad) - BAD_SHOWN} more rows are left out",
              file=sys.stderr)
    if not trace.rows:
        raise CommandError(f"{path}: no row of it can be used", ExitCode.USAGE)
    return trace.rows


def _run_strategy(name: str, nodes: Sequence[Node], traced: Sequence[TracedClaim],
                  args: argparse.Namespace) -> dict[str, Any]:
    claims = [row.claim for row in traced]
    context = PlacementContext(mix=ClaimMix(claims))
    runs = [allocation(nodes, claims, name, seed, random.Random(seed), context,
                       PLOT_PCT if args.plot is not None else MARKS_PCT)
            for seed in range(FIRST_SEED, FIRST_SEED + args.seeds)]
    marks = {mark: averaged(runs, mark) for mark in runs[0].given_pct}
    waits = None
    if any(row.runs_s is not None for row in traced):
        waits = asdict(waiting(nodes, traced, name, context, PoolPolicy()))
    return {"strategy": name,
            "given_pct": {f"{mark:.0f}": marks[mark][0] for mark in MARKS_PCT},
            "unusable_pct": {f"{mark:.0f}": marks[mark][1] for mark in MARKS_PCT},
            "spread_pct": max(run.given_pct[100.0] for run in runs)
            - min(run.given_pct[100.0] for run in runs),
            "line": [(mark, allocated) for mark, (allocated, _) in marks.items()], "waits": waits}


def _table(results: Sequence[dict[str, Any]]) -> list[str]:
    lines = [f"{'strategy':13} {'allocated, % of all GPUs':26} unusable for the usual claims, %",
             f"{'':13} {'at 100 % asked':>14} {'130 %':>8}    {'at 100 %':>8} {'130 %':>8}"]
    lines += [f"{result['strategy']:13} {result['given_pct']['100']:14.2f} "
              f"{result['given_pct']['130']:8.2f}    {result['unusable_pct']['100']:8.2f} "
              f"{result['unusable_pct']['130']:8.2f}" for result in results]
    if any(result["waits"] for result in results):
        lines += ["", f"{'strategy':13} {'wait p50':>10} {'p95':>10} {'makespan':>10} {'used':>8}"]
        lines += [f"{result['strategy']:13} {span_words(result['waits']['wait_p50_s']):>10} "
                  f"{span_words(result['waits']['wait_p95_s']):>10} "
                  f"{span_words(result['waits']['makespan_s']):>10} "
                  f"{result['waits']['used_pct']:6.1f} %" for result in results if result["waits"]]
    return lines
