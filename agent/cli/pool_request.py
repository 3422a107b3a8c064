"""Flags of a claim, which `gpudeck run` and `claim` share."""

import argparse
import os
from collections.abc import Callable, Sequence
from uuid import uuid4

from gpudeck.cli.command_parser import parsed
from gpudeck.contract.pool_messages import AskClaim
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.sizes import parse_size
from gpudeck.language.times import parse_span, span_words
from gpudeck.pool.core.claims import (
    CPU_MILLI,
    CPUS_MOST,
    PRIORITIES,
    TERM_LEAST_S,
    TERM_MOST_S,
    WHOLE_MILLI,
)
from gpudeck.pool.hami import hami_library

from .runs.request import parse_array, parse_run

WAIT_MOST_S = 365 * 86_400.0
ASKS = {"--gpus": "gpus", "--share": "share", "--model": "model", "--mem": "mem", "--cpus": "cpus",
        "--ram": "ram", "--nodes": "nodes", "--for": "term_s", "--wait": "wait_s",
        "--priority": "priority", "--preemptible": "preemptible", "--suspendable": "suspendable"}


def add_gpu_flags(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("--gpus", metavar="N", type=number(1, 1_024), help="number of GPUs; "
                       "1 unless --share is given")
    flags.add_argument("--share", metavar="PCT", type=number(1, 99),
                       help="instead: a share of one GPU, through MPS")
    flags.add_argument("--model", metavar="NAME", default="",
                       help="words of the model's name, such as h100; 'a100|h100' takes either")
    flags.add_argument("--mem", metavar="SIZE", type=parsed(parse_size),
                       help="minimum memory per GPU, such as 40G (GiB), or 80GB as boards are "
                            "sold; with --share: of the share")
    flags.add_argument("--for", metavar="SPAN", dest="term_s",
                       type=parsed(span_within(TERM_LEAST_S, TERM_MOST_S)),
                       help="for how long, such as 90m or 8h; renewed while in use")


def add_host_flags(flags: argparse.ArgumentParser, cpus: str, ram: str) -> None:
    flags.add_argument("--cpus", metavar="N", type=number(1, CPUS_MOST), help=cpus)
    flags.add_argument("--ram", metavar="SIZE", type=parsed(parse_size), help=ram)


def add_claim_flags(flags: argparse.ArgumentParser) -> None:
    add_gpu_flags(flags)
    add_host_flags(flags, "so many CPUs of the node, that no other lease has; a command that run "
                          "starts runs on cores near its GPUs alone",
                   "so much memory of the node, such as 64G, that no other lease has; a command "
                   "that run starts gets no more, where your systemd gives it a scope")
    flags.add_argument("--wait", metavar="SPAN", dest="wait_s",
                       type=parsed(span_within(0.0, WAIT_MOST_S)),
                       help="give up after this long; default: wait until GPUs are free")
    flags.add_argument("--no-wait", dest="wait_s", action="store_const", const=0.0,
                       help="only if available now; do not queue")
    flags.add_argument("--priority", metavar="0-4", type=number(PRIORITIES.start,
                                                                 PRIORITIES.stop - 1),
                       help="4 goes first; default: 2")
    flags.add_argument("--preemptible", action="store_true",
                       help="claims of higher priority may take its GPUs back")
    flags.add_argument("--suspendable", action="store_true",
                       help="with --preemptible: for that it is suspended instead of ended, where "
                            "its node can, and restored when its GPUs are free again")


def add_lease_flag(flags: argparse.ArgumentParser, text: str) -> None:
    flags.add_argument("--lease", metavar="LEASE", help=text)


def add_detach_flags(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("--detach", action="store_true",
                       help="queue it and return; `gpudeck runs` lists it and has its output")
    flags.add_argument("--array", metavar="LIST[%N]", type=parsed(parse_array),
                       help="with --detach: once for each index, such as 0-49%%4, at most 4 at "
                            "once; GPUDECK_ARRAY_INDEX is the index")
    flags.add_argument("--after", metavar="RUN", action="append", default=[],
                       type=parsed(parse_run),
                       help="with --detach: begin when this run has ended with status 0; may be "
                            "repeated")
    flags.add_argument("--mail", metavar="ADDRESS", default="",
                       help="with --detach: also mail how it ended, by this machine's sendmail")


def check_detached_flags(args: argparse.Namespace) -> None:
    """Raise CommandError if a flag for a run in the background is given without --detach."""
    for flag, value in (("--array", args.array), ("--after", args.after), ("--mail", args.mail)):
        if value:
            raise CommandError(f"{flag} goes with --detach", ExitCode.USAGE)


def check_lease_flag(args: argparse.Namespace) -> None:
    """Raise CommandError if GPUs are requested along with a lease, which already has its own."""
    requests = [flag for flag, name in ASKS.items()
                if getattr(args, name, None) not in (None, "", False)]
    if args.lease is not None and requests:
        raise CommandError(f"a lease already has its GPUs: leave {', '.join(requests)} out",
                           ExitCode.USAGE)


def _check_suspendable(args: argparse.Namespace) -> None:
    if args.suspendable and not args.preemptible:
        raise CommandError("--suspendable says how its GPUs are taken back: add --preemptible",
                           ExitCode.USAGE)


def models_of(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the models. Raises CommandError where other flags do not go together."""
    if args.share is not None and args.gpus not in (None, 1):
        raise CommandError("--share is a share of one GPU; leave --gpus out", ExitCode.USAGE)
    return tuple(word.strip() for word in args.model.split("|") if word.strip())


def claim_of(args: argparse.Namespace, is_run: bool, shape: str = "",
             again_of: str | None = None, starts_at: float | None = None) -> AskClaim:
    _check_suspendable(args)
    return AskClaim(
        request_id=uuid4().hex[:16], is_run=is_run, gpus=args.gpus or 1, models=models_of(args),
        nodes=(args.nodes or 1) if is_run else 1,
        share_milli=WHOLE_MILLI if args.share is None else args.share * 10,
        mem_bytes=args.mem, cpu_milli=None if args.cpus is None else args.cpus * CPU_MILLI,
        ram_bytes=args.ram,
        term_s=args.term_s, wait_s=args.wait_s, priority=args.priority,
        is_preemptible=args.preemptible, is_suspendable=args.suspendable, again_of=again_of,
        shape=shape, starts_at=starts_at,
        limits_itself=args.share is not None and bool(hami_library(os.environ)))


def span_within(least_s: float, most_s: float) -> Callable[[str], float]:
    """Return a parser of spans between these; it raises ValueError with a sentence."""
    def read(text: str) -> float:
        span_s = parse_span(text)
        if not least_s <= span_s <= most_s:
            raise ValueError(f"{text[:40]!r}: from {span_words(least_s)} to {span_words(most_s)}")
        return span_s
    return read


def number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r}: a number from {least} to {most}")
        return int(text)
    return read


def split_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split at `--` into words before and after it."""
    if "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1:])
