"""`gpudeck claim` and `gpudeck pool`: GPUs for commands to come, and who holds what."""

import argparse
import os
import time
from collections.abc import Sequence
from datetime import datetime

import msgspec

from gpudeck.cli.command_parser import parsed, verb_first
from gpudeck.contract.pool_messages import (
    EXTEND_MOST_S,
    CancelClaim,
    ClaimRefused,
    Extend,
    GiveBack,
    Leased,
    LeaseEnded,
    PoolShown,
    ShowPool,
)
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.times import parse_until, span_words
from gpudeck.pool.connection import PoolConnection, reserve, use_lease, wait_for
from gpudeck.pool.core.host_resources import only_counted
from gpudeck.settings import Setting, flag, hub_url, parser
from gpudeck.words.actions import printable

from ..settings import CA_FILE, TOKEN_FILE, read_reach
from . import pool_of_hub
from .pool_request import (
    add_claim_flags,
    add_lease_flag,
    check_lease_flag,
    claim_of,
    span_within,
)
from .run import say, say_place
from .run_environment import add_environment_flags, command_environment

TABLE = (Setting("hub", hub_url, None, "the hub to ask; default: the pool of this machine"),
         TOKEN_FILE, CA_FILE, Setting("json", flag, False, "JSON instead of a table"))
EXTEND_LEAST_S = 1.0
# What a shell evaluates where nothing was leased: it ends a script that heeds statuses, and the
# others see no GPU.
NO_LEASE = """export CUDA_VISIBLE_DEVICES=-1 ROCR_VISIBLE_DEVICES=-1
unset GPUDECK_LEASE GPUDECK_GPU_UUIDS
false"""


def claim(argv: Sequence[str]) -> int:
    try:
        return _claim(argv)
    except BaseException:
        if "--export" in argv:
            print(NO_LEASE)
        raise


def _claim(argv: Sequence[str]) -> int:
    flags = parser("claim", (), "Lease GPUs of this node for commands you start yourself.")
    add_claim_flags(flags)
    add_lease_flag(flags, "instead: use this lease of yours, such as a reservation that has begun")
    add_environment_flags(flags)
    flags.add_argument("--export", action="store_true",
                       help='print shell lines: eval "$(gpudeck claim --export)"')
    flags.add_argument("--from", metavar="TIME", dest="start", type=parsed(_future_time),
                       help="reserve them: such as 18:00, 'tomorrow 09:00', +2h")
    flags.add_argument("--give-back", metavar="LEASE", help="end a lease of yours")
    flags.add_argument("--extend", nargs=2, metavar=("LEASE", "SPAN"), help="extend it")
    args = flags.parse_args(list(argv))
    check_lease_flag(args)
    pool = PoolConnection(os.environ)
    if args.give_back:
        pool.send(GiveBack(args.give_back))
        return _answer(pool, "given back")
    if args.extend:
        lease_id, span = args.extend
        try:
            pool.send(Extend(lease_id, span_within(EXTEND_LEAST_S, EXTEND_MOST_S)(span)))
        except ValueError as error:
            raise CommandError(f"--extend: {error}", ExitCode.USAGE) from None
        return _answer(pool, "extended")
    if args.start is not None:
        return _reserve(pool, args)
    lease = (wait_for(pool, claim_of(args, is_run=False), say_place) if args.lease is None
             else use_lease(pool, args.lease, is_run=False))
    try:
        change = command_environment(args, lease, ("python",), say)
    except CommandError:
        if args.lease is None:
            pool.send(GiveBack(lease.lease_id))
        raise
    if words := only_counted(lease):
        say(words)
    if args.export:
        print(change.shell())
        return ExitCode.OK
    gpus = ", ".join(str(gpu.index) for gpu in lease.gpus)
    print(f"lease {lease.lease_id}: GPU {gpus} of {lease.host} for "
          f"{span_words(max(lease.until - time.time(), 0.0))}, while it is used\n"
          f"  use it:       {change.shell().replace(chr(10), '; ')}\n"
          f"  give it back: gpudeck claim --give-back {lease.lease_id}")
    return ExitCode.OK


def _future_time(text: str) -> float:
    return parse_until(text, datetime.now().astimezone())


def _reserve(pool: PoolConnection, args: argparse.Namespace) -> int:
    """Reserve GPUs; the hub keeps the reservation, or this node where there is no hub."""
    reservation = reserve(pool, claim_of(args, is_run=False, starts_at=args.start),
                          lambda waits: say(waits.why))
    gpus = ", ".join(str(gpu.index) for gpu in reservation.gpus)
    start = time.strftime("%a %d %b %H:%M", time.localtime(reservation.starts_at))
    print(f"reservation {reservation.claim_id}: GPU {gpus} from {start}; from then on they are "
          "held for you, and go back if nothing uses them\n"
          f"  use it then: gpudeck run --lease {reservation.claim_id} -- COMMAND\n"
          f"  cancel it: gpudeck pool cancel {reservation.claim_id}")
    return ExitCode.OK


def _answer(pool: PoolConnection, outcome: str) -> int:
    answer = pool.receive()
    if isinstance(answer, ClaimRefused):
        raise CommandError(answer.why, ExitCode.REFUSED)
    if isinstance(answer, LeaseEnded) and answer.state == "draining":
        raise CommandError(f"it is not over yet: {answer.why}", ExitCode.NOT_EFFECTIVE)
    until = f" until {time.strftime('%H:%M', time.localtime(answer.until))}" if isinstance(
        answer, Leased) else ""
    print(f"{outcome}{until}")
    return ExitCode.OK


def pool(argv: Sequence[str]) -> int:
    verb, *rest = verb_first(argv) or [""]
    # To show a pool, none of these has to be loaded.
    if verb == "simulate":
        from .pool_simulate import simulate

        return simulate(rest)
    if verb == "manifest":
        from .pool_manifest import manifest

        return manifest(rest)
    if verb == "import":
        from .pool_import import import_config

        return import_config(rest)
    if verb == "cancel":
        return _cancel(rest)
    flags = parser("pool", TABLE, "Free GPUs, leases and the queue: of this node, or of a fleet.")
    flags.add_argument("--node", metavar="NODE", help="with --hub: of this node, by name or id")
    args = flags.parse_args(list(argv))
    reach = read_reach("pool", TABLE, args, os.environ)
    if reach.hub is not None:
        document = pool_of_hub.read(reach.client(), args.node)
        print(pool_of_hub.as_json(document) if reach.json else
              "\n".join(pool_of_hub.lines(document, time.time())))
        return ExitCode.OK
    if args.node is not None:
        raise CommandError("--node needs --hub; without --hub it is this machine", ExitCode.USAGE)
    connection = PoolConnection(os.environ)
    connection.send(ShowPool())
    reply = connection.receive()
    if not isinstance(reply, PoolShown):
        raise CommandError("the agent does not understand this request", ExitCode.FAILED)
    if reach.json:
        print(msgspec.json.encode(reply).decode())
        return ExitCode.OK
    print("\n".join(_lines(reply, time.time())))
    return ExitCode.OK


def _cancel(argv: Sequence[str]) -> int:
    flags = parser("pool cancel", (), "Cancel a waiting claim or a reservation of yours.")
    flags.add_argument("claim", metavar="ID", help="as `gpudeck claim --from` and the Pool page "
                                                   "show it; root can cancel any")
    connection = PoolConnection(os.environ)
    connection.send(CancelClaim(flags.parse_args(list(argv)).claim))
    return _answer(connection, "withdrawn")


def _lines(view: PoolShown, now: float) -> list[str]:
    holders: dict[str, list[str]] = {}
    for lease in view.held:
        part = "" if lease.share_milli == 1_000 else f" {lease.share_milli / 10:g} %"
        idle = "" if not lease.unused_s or lease.unused_s < 60 else (
            f", unused for {span_words(lease.unused_s)}")
        until = f"for {span_words(lease.until - now)}" if lease.until > now else (
            f"overdue by {span_words(now - lease.until)}")
        host = f", {printable(lease.host_words)}" if lease.host_words else ""
        for uuid in lease.uuids:
            holders.setdefault(uuid, []).append(
                f"{printable(lease.owner)}{part} {until}{idle}{host} ({lease.lease_id})")
    trouble = {gpu.uuid: gpu.why for gpu in view.unavailable}
    reserved: dict[str, list[str]] = {}
    for reservation in sorted(view.reserved, key=lambda row: row.starts_at):
        since = "now" if reservation.starts_at <= now else time.strftime(
            "%a %d %b %H:%M", time.localtime(reservation.starts_at))
        for uuid in reservation.uuids:
            reserved.setdefault(uuid, []).append(
                f"reserved by {printable(reservation.owner)} from {since} for "
                f"{span_words(reservation.ends_at - reservation.starts_at)} "
                f"({reservation.claim_id})")
    lines = []
    for gpu in view.gpus:
        why = printable(trouble.get(gpu.uuid, ""))
        uses = [*holders.get(gpu.uuid, ()), *filter(None, [why])] or ["free"]
        state = "; ".join((*uses, *reserved.get(gpu.uuid, ())))
        lines.append(f"GPU {gpu.index:<3} {printable(gpu.name):28} {state}")
    free = sum(gpu.uuid not in holders and gpu.uuid not in trouble for gpu in view.gpus)
    kept_free = sum(gpu.uuid in reserved and gpu.uuid not in holders and gpu.uuid not in trouble
                    for gpu in view.gpus)
    lines.append(f"{free} of {len(view.gpus)} GPUs free on {printable(view.host)}" + (
        f", {kept_free} of these reserved" if kept_free else "") + (
        f"; {printable(view.left_words)} not allocated" if view.left_words else ""))
    lines += [f"{waiting.place:>3}. {printable(waiting.owner)} has waited "
              f"{span_words(waiting.waits_s)}: {printable(waiting.why)} ({waiting.claim_id})"
              for waiting in view.waiting]
    return lines
