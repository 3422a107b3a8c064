"""`gpudeck pool simulate`: what strategies would have done with a list of claims."""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpudeck.action_words import printable
from gpudeck.errors import CommandError, ExitCode
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
from gpudeck.times import span_words

FIRST_SEED = 42
BAD_SHOWN = 10


def simulate(argv: Sequence[str]) -> int:
    made = parser("pool simulate", (), "Simulate a CSV of claims on a CSV of nodes with each "
                                       "strategy. docs/pool.md has the columns.")
    made.add_argument("--trace", metavar="FILE", type=Path, required=True, help="the claims")
    made.add_argument("--nodes", metavar="FILE", type=Path, required=True, help="the nodes")
    made.add_argument("--strategy", metavar="A,B", default="pack,best_fit",
                      help=f"of {', '.join(STRATEGIES)}")
    made.add_argument("--seeds", metavar="N", type=int, default=1,
                      help="number of shuffles, averaged")
    made.add_argument("--plot", metavar="FILE", type=Path, help="write a plot to this SVG file")
    made.add_argument("--json", action="store_true", help="JSON instead of a table")
    asked = made.parse_args(list(argv))
    names = [name for name in asked.strategy.split(",") if name]
    if unknown := [name for name in names if name not in STRATEGIES]:
        raise CommandError(f"no strategy {unknown[0]!r}; there are {', '.join(STRATEGIES)}",
                           ExitCode.USAGE)
    if not 1 <= asked.seeds <= 100:
        raise CommandError("--seeds: 1 to 100", ExitCode.USAGE)
    nodes: list[Node] = _rows(asked.nodes, read_nodes)
    traced: list[TracedClaim] = _rows(asked.trace, read_claims)
    found = [_played(name, nodes, traced, asked) for name in names]
    if asked.plot is not None:
        asked.plot.write_text(allocation_svg(
            {each["strategy"]: each["line"] for each in found},
            f"{asked.trace.name}: GPUs allocated, mean of {asked.seeds} shuffles"))
    if asked.json:
        print(json.dumps({"items": found}))
    else:
        print("\n".join(_table(found)))
    return ExitCode.OK


def _rows(path: Path, read: Any) -> Any:
    try:
        with path.open(newline="") as file:
            found: TraceRows[Any] = read(file)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise CommandError(f"{path}: {error}", ExitCode.USAGE) from None
    for why in found.bad[:BAD_SHOWN]:
        print(f"gpudeck: {path}: {printable(why)}; left out", file=sys.stderr)
    if len(found.bad) > BAD_SHOWN:
        print(f"gpudeck: {path}: {len(found.bad) - BAD_SHOWN} more rows are left out",
              file=sys.stderr)
    if not found.rows:
        raise CommandError(f"{path}: no row of it can be used", ExitCode.USAGE)
    return found.rows


def _played(name: str, nodes: Sequence[Node], traced: Sequence[TracedClaim],
            asked: argparse.Namespace) -> dict[str, Any]:
    claims = [each.claim for each in traced]
    context = PlacementContext(mix=ClaimMix(claims))
    runs = [allocation(nodes, claims, name, seed, random.Random(seed), context,
                       PLOT_PCT if asked.plot is not None else MARKS_PCT)
            for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds)]
    marks = {mark: averaged(runs, mark) for mark in runs[0].given_pct}
    waits = None
    if any(each.runs_s is not None for each in traced):
        waits = asdict(waiting(nodes, traced, name, context, PoolPolicy()))
    return {"strategy": name,
            "given_pct": {f"{mark:.0f}": marks[mark][0] for mark in MARKS_PCT},
            "unusable_pct": {f"{mark:.0f}": marks[mark][1] for mark in MARKS_PCT},
            "spread_pct": max(each.given_pct[100.0] for each in runs)
            - min(each.given_pct[100.0] for each in runs),
            "line": [(mark, given) for mark, (given, _) in marks.items()], "waits": waits}


def _table(found: Sequence[dict[str, Any]]) -> list[str]:
    lines = [f"{'strategy':13} {'allocated, % of all GPUs':26} unusable for the usual claims, %",
             f"{'':13} {'at 100 % asked':>14} {'130 %':>8}    {'at 100 %':>8} {'130 %':>8}"]
    lines += [f"{each['strategy']:13} {each['given_pct']['100']:14.2f} "
              f"{each['given_pct']['130']:8.2f}    {each['unusable_pct']['100']:8.2f} "
              f"{each['unusable_pct']['130']:8.2f}" for each in found]
    if any(each["waits"] for each in found):
        lines += ["", f"{'strategy':13} {'wait p50':>10} {'p95':>10} {'makespan':>10} {'used':>8}"]
        lines += [f"{each['strategy']:13} {span_words(each['waits']['wait_p50_s']):>10} "
                  f"{span_words(each['waits']['wait_p95_s']):>10} "
                  f"{span_words(each['waits']['makespan_s']):>10} "
                  f"{each['waits']['used_pct']:6.1f} %" for each in found if each["waits"]]
    return lines
