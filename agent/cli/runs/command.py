"""`gpudeck runs`: the list of detached runs, their output, cancel, again, remove."""

import argparse
import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from gpudeck.cli.command_parser import CommandParser, parsed
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.times import span_words
from gpudeck.words.actions import printable

from ...settings import this_host
from ..run import say
from .folder import RunFolder, RunFolders, is_alive
from .request import RunPart, RunRequest, outcome, parse_run, parts_of, summary
from .start import start

NEWEST = 20
POLL_EVERY_S = 0.2
BYTES = 65_536


def runs(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    verb: Callable[[argparse.Namespace], None] = VERBS[args.verb or "list"]
    verb(args)
    return ExitCode.OK


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="gpudeck runs", description=(
        "Runs of yours on this machine that were started with `gpudeck run --detach`, and how they "
        "stand."))
    parser.add_argument("--all", action="store_true",
                        help=f"all of them, not the {NEWEST} newest and those that have not ended")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    logs = verbs.add_parser("logs", help="the output of a run")
    logs.add_argument("-f", "--follow", action="store_true", help="until it has ended")
    _add_run(logs)
    cancel = verbs.add_parser("cancel", help="end it (SIGTERM), or take it out of the queue")
    cancel.add_argument("--kill", action="store_true",
                        help="at once (SIGKILL), with all that it started and can be found")
    _add_run(cancel)
    _add_run(verbs.add_parser("again", help="queue what has not ended with status 0 again"))
    _add_run(verbs.add_parser("remove", help="delete the output and the entry of an ended run"))
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=parsed(parse_run),
                        help="its number; 7.3 is index 3 of the array 7")


def _list(args: argparse.Namespace) -> None:
    here = [(folder, request) for folder, request in RunFolders(os.environ)
            if request.host == this_host()]
    rows = [(request, parts) for folder, request in here
            if (parts := _parts_of(folder, request)) is not None]
    if not args.all:
        newest = {request.number for request, _ in rows[-NEWEST:]}
        rows = [(request, parts) for request, parts in rows if request.number in newest
                or any(not part.is_final for part in parts.values())]
    if args.json:
        print(msgspec.json.encode({"items": [_item(*row) for row in rows]}).decode())
        return
    lines = [_line(*row) for row in rows]
    print("\n".join(lines) if lines else "no runs; gpudeck run --detach -- COMMAND starts one")


def _parts_of(folder: RunFolder, request: RunRequest) -> Mapping[int | None, RunPart] | None:
    """Return how the parts of a run stand. None: that cannot be read, as after a power cut, and
    does not keep the others from being listed."""
    try:
        return folder.parts_now(request)
    except CommandError as why:
        say(str(why))
        return None


def _item(request: RunRequest, parts: Mapping[int | None, RunPart]) -> dict[str, object]:
    return {"run": request.number, "command": request.command, "submitted_at":
            request.submitted_at, "after": request.after, "parts": [
                {"run": request.name(index), "index": index, "state": part.state, "why": part.why,
                 "status": part.status, "begun_at": part.begun_at, "ended_at": part.ended_at,
                 "gpus": part.gpus} for index, part in parts.items()]}


def _line(request: RunRequest, parts: Mapping[int | None, RunPart]) -> str:
    command = printable(shlex.join(request.command))
    command = command if len(command) <= 60 else f"{command[:59]}…"
    how = summary([*parts.values()]) if request.indices else _words(parts[None])
    waits = request.after and all(part.state == "queued" for part in parts.values())
    after = f" after {', '.join(request.after)}" if waits else ""
    return f"{request.number:>4}  {command}  {how}{after}"


def _words(part: RunPart) -> str:
    now = time.time()
    if part.state == "running":
        for_ = "" if part.begun_at is None else f" for {span_words(max(now - part.begun_at, 0))}"
        return f"running on GPU {', '.join(map(str, part.gpus))}{for_}"
    if not part.is_final:
        return f"{part.state}: {printable(part.why)}" if part.why else part.state
    took = "" if part.begun_at is None or part.ended_at is None else (
        f" after {span_words(max(part.ended_at - part.begun_at, 0))}")
    return printable(outcome(part)) + (took if part.state == "ended" else "")


def _logs(args: argparse.Namespace) -> None:
    folder, request = RunFolders(os.environ).find(args.run.number)
    parts = parts_of(request, args.run.part)
    if args.follow:
        if len(parts) > 1:
            raise CommandError(f"name one to follow, such as {request.name(parts[0])}",
                               ExitCode.USAGE)
        _follow(folder, request, parts[0])
        return
    for index in parts:
        if len(parts) > 1 and folder.output(index).exists():
            print(f"==> {request.name(index)} <==", flush=True)
        _copy(folder, index, 0)


def _follow(folder: RunFolder, request: RunRequest, index: int | None) -> None:
    place = 0
    while True:
        is_over = folder.part_now(request, index).is_final  # what it wrote before is there then
        place = _copy(folder, index, place)
        if is_over:
            return
        time.sleep(POLL_EVERY_S)


def _copy(folder: RunFolder, index: int | None, place: int) -> int:
    """Copy the output to ours from this place on; return where it ends."""
    sys.stdout.flush()
    with contextlib.suppress(FileNotFoundError), open(folder.output(index), "rb") as file:
        file.seek(place)
        while body := file.read(BYTES):
            sys.stdout.buffer.write(body)
        place = file.tell()
    sys.stdout.buffer.flush()
    return place


def _cancel(args: argparse.Namespace) -> None:
    folder, request = RunFolders(os.environ).find(args.run.number)
    parts = {index: folder.part_now(request, index)
             for index in parts_of(request, args.run.part)}
    going = [index for index, part in parts.items() if not part.is_final]
    if not going:
        raise CommandError(f"run {request.name(args.run.part)} has ended already",
                           ExitCode.REFUSED)
    folder.cancel(args.run.part)
    number = signal.SIGKILL if args.kill else signal.SIGTERM
    for index in going:
        name, part = request.name(index), folder.part_now(request, index)
        if args.kill or part.state == "unsupervised":
            for pid in folder.pids(name):
                _signal(pid, number, partial(folder.is_of, pid, name))
        elif not part.is_final and part.process is not None:
            _signal(part.process.pid, number, partial(is_alive, part.process))
    print(f"cancelled run {request.name(args.run.part)}")


def _signal(pid: int, number: signal.Signals, is_still: Callable[[], bool]) -> None:
    """Signal a process by its pidfd, and check it through that: it cannot be another process."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if is_still():
                signal.pidfd_send_signal(pidfd, number)
        finally:
            os.close(pidfd)


def _requeue(args: argparse.Namespace) -> None:
    folders = RunFolders(os.environ)
    folder, request = folders.find(args.run.number)
    parts = {index: folder.part_now(request, index)
             for index in parts_of(request, args.run.part)}
    if going := [index for index, part in parts.items() if not part.is_final]:
        raise CommandError(f"run {request.name(going[0])} has not ended yet", ExitCode.REFUSED)
    failed = [index for index, part in parts.items() if not part.is_good]
    if not failed and args.run.part is None and request.indices:
        raise CommandError(f"all of run {request.number} ended with status 0; name an index to run "
                           "it again", ExitCode.REFUSED)
    indices = failed or list(parts)
    later, new = folders.make(msgspec.structs.replace(
        request, submitted_at=time.time(), after=(),
        indices=tuple(index for index in indices if index is not None)))
    print(f"run {new.number} is queued; {start(later, os.environ)}")


def _remove(args: argparse.Namespace) -> None:
    folders = RunFolders(os.environ)
    folder, request = folders.find(args.run.number)
    if args.run.part is not None:
        raise CommandError("a run is removed as a whole", ExitCode.USAGE)
    if any(not part.is_final for part in folder.parts_now(request).values()):
        raise CommandError(f"run {request.number} has not ended yet; `gpudeck runs cancel "
                           f"{request.number}` ends it", ExitCode.REFUSED)
    folders.remove(folder)
    print(f"removed run {request.number}")


VERBS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "list": _list, "logs": _logs, "cancel": _cancel, "again": _requeue, "remove": _remove}
