"""`gpudeck advise --hub URL`: what to do with a fleet, the most GPU-hours first."""

import json
import os
import textwrap
from collections.abc import Iterator, Sequence

from gpudeck.client.hub import Item
from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import parser
from gpudeck.words.actions import printable

from ..settings import CA_FILE, TOKEN_FILE, read_reach
from .action_settings import JSON, NEEDED_HUB

TABLE = (NEEDED_HUB, TOKEN_FILE, CA_FILE, JSON)
WIDTH = 100
WEEK_H = 168


def advise(argv: Sequence[str]) -> int:
    flags = parser("advise", TABLE, "Suggest changes that would save GPU-hours, based on "
                                    "recent measurements.")
    flags.add_argument("--all", action="store_true", help="dismissed advice as well")
    flags.add_argument("--dismiss", metavar="ID", help="dismiss this one, with --because")
    flags.add_argument("--because", metavar="TEXT", help="why")
    flags.add_argument("--recall", metavar="ID", help="undo a dismissal")
    args = flags.parse_args(list(argv))
    reach = read_reach("advise", TABLE, args, os.environ)
    client = reach.client("advice")
    if args.dismiss is not None and not args.because:
        raise CommandError("--dismiss needs a reason: --because TEXT", ExitCode.USAGE)
    if args.dismiss is not None:
        client.dismiss_advice(args.dismiss, args.because)
    if args.recall is not None:
        client.recall_advice(args.recall)
    report = client.advice()
    if not args.all:
        report["items"] = [item for item in report["items"] if item["dismissed"] is None]
    print(json.dumps(report, indent=2) if reach.json else "\n".join(lines(report)))
    return ExitCode.OK


def lines(report: Item) -> Iterator[str]:
    if report["hours"] < report["least_hours"]:
        yield (f"no advice yet: {report['hours']} of {report['least_hours']} hours are measured")
        return
    yield (f"from {report['hours']} measured hours"
           + ("; a week is extrapolated" if report["hours"] < WEEK_H else "") + ":")
    for item in report["items"]:
        unit = item.get("unit", "GPU-hours")  # an older hub does not say
        yield (f"{item['gpu_hours']:8.0f} {unit} a week  {item['label']}  "
               f"{printable(item['title'])}  [{item['id']}]")
        for name in ("reason", "past", "risk"):
            yield from (f"    {line}" for line in textwrap.wrap(printable(item[name]), WIDTH))
        yield f"    do:   {printable(item['command'])}"
        yield f"    undo: {printable(item['undo'])}"
        if item["dismissed"] is not None:
            yield (f"    dismissed by {printable(item['dismissed']['by'])}: "
                   f"{printable(item['dismissed']['reason'])}")
    if not report["items"]:
        yield ("no advice would free 4 GPU-hours a week or more; for what is idle right now, see "
               "gpudeck top")
