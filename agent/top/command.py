"""`gpudeck top`: flags, and the loop between keys and pictures."""

import os
import shutil
import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace

from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import parser

from ..cli.action_settings import TABLE
from ..settings import ConnectionSettings, read_reach
from .frame import TopView, frame, plain
from .keys import apply_key
from .model import SORTS, TopModel
from .screen import TerminalScreen, bare, colour_depth, is_utf8, paint
from .sources import HubSource, TopSource

FIRST_WITHIN_S = 30.0
REDRAW_S = 1.0
WHOLE_EVERY_S = 5.0  # others write on terminals too, such as `wall`


def top(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    reach = read_reach("top", TABLE, args, os.environ)
    view = TopView(sort=args.sort, filter=args.filter, is_mine=args.mine)
    is_live = not (args.once or reach.json) and sys.stdout.isatty() and sys.stdin.isatty() and (
        os.environ.get("TERM", "dumb") != "dumb")
    source = _source(reach)
    source.show_only(view.filter, view.is_mine)
    try:
        if is_live:
            return _live(source, view)
        return _once(source, view, reach)
    finally:
        source.close()


def _source(reach: ConnectionSettings) -> TopSource:
    if reach.hub is not None:
        return HubSource(reach)
    from .local_source import LocalSource  # half of the start-up

    return LocalSource(reach)


def _parser() -> ArgumentParser:
    flags = parser("top", TABLE, "GPUs, jobs, host and queue, live: of this machine, or with --hub "
                                 "of a fleet. Keys: press ? in it.")
    flags.add_argument("--once", action="store_true", help="print once and exit; the default "
                                                           "without a terminal")
    flags.add_argument("--mine", action="store_true",
                       help="your own jobs, and the GPUs they are on")
    flags.add_argument("--filter", metavar="EXPR", default="",
                       help="such as 'util<5 & mem>50%%', see docs/filters.md")
    flags.add_argument("--sort", choices=SORTS, default=SORTS[0], help="of the jobs")
    return flags


def _live(source: TopSource, view: TopView) -> int:
    with TerminalScreen(os.environ) as screen:
        source.wake = screen.wake
        source.start()
        whole_at = time.monotonic()
        while True:
            model = source.model
            if time.monotonic() - whole_at > WHOLE_EVERY_S:
                screen.forget()
                whole_at = time.monotonic()
            screen.draw(frame(model, view, *screen.size(), time.time(), screen.is_utf8))
            try:
                keys = screen.keys(REDRAW_S)
            except (EOFError, OSError):
                return ExitCode.OK  # the terminal has gone
            for key in keys:
                # A key refers to what is on the screen, not to what has come since.
                view, request = apply_key(model, view, key)
                if request is None:
                    continue
                if request.do == "quit":
                    return ExitCode.OK
                if request.do == "redraw":
                    screen.forget()
                elif request.do == "refilter":
                    source.show_only(view.filter, view.is_mine)
                elif request.job is not None:
                    from .acting import act  # takes long to load, and most sessions end without one

                    act(screen, source, request, request.job)
                    break  # keys that were hit before it are of a picture that is gone


def _once(source: TopSource, view: TopView, reach: ConnectionSettings) -> int:
    model = _first(source)
    if reach.json:
        import msgspec

        print(msgspec.json.encode(model).decode())
        return ExitCode.OK
    width, depth = shutil.get_terminal_size((100, 24)).columns, colour_depth(os.environ)
    has_colour = sys.stdout.isatty() and depth > 0
    for line in plain(model, replace(view, selected=None), width, time.time(),
                      is_utf8(sys.stdout.encoding)):
        print(paint(line, depth) if has_colour else bare(line))
    return ExitCode.OK


def _first(source: TopSource) -> TopModel:
    """Return a picture with the load of processes, which is a difference of two readings. Raises
    CommandError."""
    until = time.monotonic() + FIRST_WITHIN_S
    while time.monotonic() < until:
        if (model := source.read_model()) is not None:
            return model
        source.wait()
    raise CommandError("the driver does not answer; see `dmesg`")
