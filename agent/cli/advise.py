"""`gpudeck advise --hub URL`: what to do with a fleet, the most GPU-hours first."""

import json
import os
import textwrap
from collections.abc import Iterator, Sequence

from gpudeck.action_words import printable
from gpudeck.client import Item
from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import parser

from ..settings import CA_FILE, TOKEN_FILE, read_reach
from .action_settings import JSON, NEEDED_HUB

TABLE = (NEEDED_HUB, TOKEN_FILE, CA_FILE, JSON)
WIDTH = 100
WEEK_H = 168


def advise(argv: Sequence[str]) -> int:
    made = parser("advise", TABLE, "Suggest changes that would save GPU-hours, based on "
                                   "recent measurements.")
    made.add_argument("--all", action="store_true", help="dismissed advice as well")
    made.add_argument("--dismiss", metavar="ID", help="dismiss this one, with --because")
    made.add_argument("--because", metavar="TEXT", help="why")
    made.add_argument("--recall", metavar="ID", help="undo a dismissal")
    asked = made.parse_args(list(argv))
    reach = read_reach("advise", TABLE, asked, os.environ)
    client = reach.client("advice")
    if asked.dismiss is not None and not asked.because:
        raise CommandError("--dismiss needs a reason: --because TEXT", ExitCode.USAGE)
    if asked.dismiss is not None:
        client.dismiss_advice(asked.dismiss, asked.because)
    if asked.recall is not None:
        client.recall_advice(asked.recall)
    found = client.advice()
    if not asked.all:
        found["items"] = [each for each in found["items"] if each["dismissed"] is None]
    print(json.dumps(found, indent=2) if reach.json else "\n".join(lines(found)))
    return ExitCode.OK


def lines(found: Item) -> Iterator[str]:
    if found["hours"] < found["least_hours"]:
        yield (f"no advice yet: {found['hours']} of {found['least_hours']} hours are measured")
        return
    yield (f"from {found['hours']} measured hours"
           + ("; a week is extrapolated" if found["hours"] < WEEK_H else "") + ":")
    for each in found["items"]:
        yield (f"{each['gpu_hours']:8.0f} GPU-hours a week  {each['label']}  "
               f"{printable(each['title'])}  [{each['id']}]")
        for name in ("reason", "past", "risk"):
            yield from (f"    {line}" for line in textwrap.wrap(printable(each[name]), WIDTH))
        yield f"    do:   {printable(each['command'])}"
        yield f"    undo: {printable(each['undo'])}"
        if each["dismissed"] is not None:
            yield (f"    dismissed by {printable(each['dismissed']['by'])}: "
                   f"{printable(each['dismissed']['reason'])}")
    if not found["items"]:
        yield ("no advice would free 4 GPU-hours a week or more; for what is idle right now, see "
               "gpudeck top")
