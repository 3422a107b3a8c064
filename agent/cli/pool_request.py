"""What `gpudeck run` and `claim` share: flags to a claim."""

import argparse
import os
from collections.abc import Callable, Sequence
from uuid import uuid4

from gpudeck.command_parser import parsed
from gpudeck.errors import CommandError, ExitCode
from gpudeck.pool.core.claims import (
    CPU_MILLI,
    CPUS_MOST,
    PRIORITIES,
    TERM_LEAST_S,
    TERM_MOST_S,
    WHOLE_MILLI,
)
from gpudeck.pool.hami import hami_library
from gpudeck.pool.messages import AskClaim
from gpudeck.sizes import parse_size
from gpudeck.times import parse_span, span_words

from .runs.request import parse_array, parse_run

WAIT_MOST_S = 365 * 86_400.0
ASKS = {"--gpus": "gpus", "--share": "share", "--model": "model", "--mem": "mem", "--cpus": "cpus",
        "--ram": "ram", "--nodes": "nodes", "--for": "term_s", "--wait": "wait_s",
        "--priority": "priority", "--preemptible": "preemptible"}


def add_gpu_flags(made: argparse.ArgumentParser) -> None:
    made.add_argument("--gpus", metavar="N", type=number(1, 1_024), help="number of GPUs; "
                      "1 unless --share is given")
    made.add_argument("--share", metavar="PCT", type=number(1, 99),
                      help="instead: a share of one GPU, through MPS")
    made.add_argument("--model", metavar="NAME", default="",
                      help="words of the model's name, such as h100; 'a100|h100' takes either")
    made.add_argument("--mem", metavar="SIZE", type=parsed(parse_size),
                      help="minimum memory per GPU, such as 40G (GiB), or 80GB as boards are sold; "
                           "with --share: of the share")
    made.add_argument("--for", metavar="SPAN", dest="term_s",
                      type=parsed(span_within(TERM_LEAST_S, TERM_MOST_S)),
                      help="for how long, such as 90m or 8h; renewed while in use")


def add_host_flags(made: argparse.ArgumentParser, cpus: str, ram: str) -> None:
    made.add_argument("--cpus", metavar="N", type=number(1, CPUS_MOST), help=cpus)
    made.add_argument("--ram", metavar="SIZE", type=parsed(parse_size), help=ram)


def add_claim_flags(made: argparse.ArgumentParser) -> None:
    add_gpu_flags(made)
    add_host_flags(made, "so many CPUs of the node, that no other lease has; a command that run "
                         "starts runs on cores near its GPUs alone",
                   "so much memory of the node, such as 64G, that no other lease has; a command "
                   "that run starts gets no more, where your systemd gives it a scope")
    made.add_argument("--wait", metavar="SPAN", dest="wait_s",
                      type=parsed(span_within(0.0, WAIT_MOST_S)),
                      help="give up after this long; default: wait until GPUs are free")
    made.add_argument("--no-wait", dest="wait_s", action="store_const", const=0.0,
                      help="only if available now; do not queue")
    made.add_argument("--priority", metavar="0-4", type=number(PRIORITIES.start,
                                                                 PRIORITIES.stop - 1),
                      help="4 goes first; default: 2")
    made.add_argument("--preemptible", action="store_true",
                      help="claims of higher priority may take its GPUs back")


def add_lease_flag(made: argparse.ArgumentParser, text: str) -> None:
    made.add_argument("--lease", metavar="LEASE", help=text)


def add_detach_flags(made: argparse.ArgumentParser) -> None:
    made.add_argument("--detach", action="store_true",
                      help="queue it and return; `gpudeck runs` lists it and has its output")
    made.add_argument("--array", metavar="LIST[%N]", type=parsed(parse_array),
                      help="with --detach: once for each index, such as 0-49%%4, at most 4 at "
                           "once; GPUDECK_ARRAY_INDEX is the index")
    made.add_argument("--after", metavar="RUN", action="append", default=[],
                      type=parsed(parse_run),
                      help="with --detach: begin when this run has ended with status 0; may be "
                           "repeated")
    made.add_argument("--mail", metavar="ADDRESS", default="",
                      help="with --detach: also mail how it ended, by this machine's sendmail")


def check_detached_flags(asked: argparse.Namespace) -> None:
    """Raises CommandError: what is for a run in the background, without --detach."""
    for flag, value in (("--array", asked.array), ("--after", asked.after), ("--mail", asked.mail)):
        if value:
            raise CommandError(f"{flag} goes with --detach", ExitCode.USAGE)


def check_lease_flag(asked: argparse.Namespace) -> None:
    """Raises CommandError: what asks for GPUs means nothing where they are there."""
    said = [flag for flag, name in ASKS.items()
            if getattr(asked, name, None) not in (None, "", False)]
    if asked.lease is not None and said:
        raise CommandError(f"a lease already has its GPUs: leave {', '.join(said)} out",
                           ExitCode.USAGE)


def models_of(asked: argparse.Namespace) -> tuple[str, ...]:
    """Raises CommandError where its other flags do not go together."""
    if asked.share is not None and asked.gpus not in (None, 1):
        raise CommandError("--share is a share of one GPU; leave --gpus out", ExitCode.USAGE)
    return tuple(word.strip() for word in asked.model.split("|") if word.strip())


def claim_of(asked: argparse.Namespace, is_run: bool, shape: str = "",
             again_of: str | None = None, starts_at: float | None = None) -> AskClaim:
    return AskClaim(
        request_id=uuid4().hex[:16], is_run=is_run, gpus=asked.gpus or 1, models=models_of(asked),
        nodes=(asked.nodes or 1) if is_run else 1,
        share_milli=WHOLE_MILLI if asked.share is None else asked.share * 10,
        mem_bytes=asked.mem, cpu_milli=None if asked.cpus is None else asked.cpus * CPU_MILLI,
        ram_bytes=asked.ram,
        term_s=asked.term_s, wait_s=asked.wait_s, priority=asked.priority,
        is_preemptible=asked.preemptible, again_of=again_of, shape=shape, starts_at=starts_at,
        limits_itself=asked.share is not None and bool(hami_library(os.environ)))


def span_within(least_s: float, most_s: float) -> Callable[[str], float]:
    """Raises ValueError with a sentence."""
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
    """Before and after `--`."""
    if "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1:])
