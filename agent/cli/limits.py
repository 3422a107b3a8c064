"""`gpudeck mps` and `gpudeck gpu`: show settings, and change them with the same preview, gate and
audit as any action."""

import argparse
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec

from gpudeck.cli.command_parser import parsed
from gpudeck.contract import limits as settings
from gpudeck.contract.action_table import GRACE_S
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.sizes import parse_size
from gpudeck.language.times import SPANS, TIMES, parse_seconds, parse_span
from gpudeck.settings import also_behind, parser
from gpudeck.words.actions import moment, printable

from ..actions.hold_files import driver_order
from ..actions.standalone import StandaloneNode
from ..backends import backend_named
from ..journal.store import ActionJournal, ActionStore, JournalError
from ..limits import mps_view
from ..limits.apply import MODES, LimitApplier
from ..limits.memory_limits import gibibytes
from ..limits.mps import LocalMpsDaemons
from ..limits.mps_doctor import findings, whole_boards
from ..limits.mps_store import Default, MpsSettingStore, devices
from ..limits.stores import (
    ComputeModeStore,
    MemoryLimitStore,
    MigLayoutStore,
    TimedLimitStore,
    unread_words,
)
from ..runtime.data_lock import agent_pid
from ..settings import ConnectionSettings, closed_here, read_reach
from ..tasks.boot_id import boot_id
from . import limit_means
from .action_settings import TABLE
from .actions import answer
from .setting_actions import do, node_id, pipes_of, validate
from .tune import tune_share

LISTS = ("leases", "modes", "layouts", "memory")
# Advice is a choice, such as who else may use a board: nobody makes it by --yes to all.
_MENDS = {"fault": "gpudeck mps doctor --fix", "advice": "gpudeck mps doctor --fix, without --yes,"}


@contextmanager
def _journal_errors() -> Iterator[None]:
    try:
        yield
    except JournalError as why:
        raise CommandError(str(why), ExitCode.CANNOT_START) from why


@_journal_errors()
def mps(argv: Sequence[str]) -> int:
    args = _mps_parser().parse_args(list(argv))
    reach = read_reach("mps", TABLE, args, os.environ)
    match args.verb:
        case "show":
            return _show_mps(reach, args)
        case "doctor":
            return doctor(reach, args)
        case "tune":
            return tune_share(reach, args)
        case "terminate":
            return do(reach, args, "terminate_client", args.task, None)
    setting = validate(_mps_setting(args, reach))
    return do(reach, args, settings.action_of(setting), None, setting)


@_journal_errors()
def gpu(argv: Sequence[str]) -> int:
    args = _gpu_parser().parse_args(list(argv))
    reach = read_reach("gpu", TABLE, args, os.environ)
    if args.verb == "show":
        return _show_limits(reach, args)
    setting = validate(_gpu_setting(args))
    is_lease = isinstance(setting, settings.PowerCap | settings.ClockLock)
    if is_lease and reach.hub is None and agent_pid(reach.data) is None:
        raise CommandError("no agent runs on this machine's folder: nothing would undo the "
                           "limit when its time is over. Start the agent, or act through --hub",
                           ExitCode.CANNOT_START)
    return do(reach, args, settings.action_of(setting), None, setting)


# -- flags


def _mps_parser() -> argparse.ArgumentParser:
    flags = parser("mps", TABLE, "Show and change MPS settings.")
    verbs = flags.add_subparsers(dest="verb", metavar="VERB", required=True)
    _verb(verbs, "show", "daemons, servers, clients and settings").add_argument(
        "--node", metavar="NODE", help="with --hub: this node, by name or id")
    share = _act(verbs, "set", "a value for new clients")
    share.add_argument("what", choices=("share", "memory", "priority", "preset"))
    share.add_argument("value", metavar="VALUE",
                       help="share: whole percent; memory: 2GiB, 900MiB or none; priority: 0 or 1; "
                            f"preset: {', '.join(settings.PRESETS)}")
    share.add_argument("--server", metavar="PID", type=_whole(2, 2**31 - 1), default=None,
                       help="new clients of this server; default: of the next server")
    share.add_argument("--device", metavar="N", type=_whole(0, settings.ORDINALS - 1), default=None,
                       help="of memory: the device, as MPS numbers them")
    for name, words in (("start", "the control daemon"), ("stop", "it, and with it its servers"),
                        ("restart", "it, and set its defaults again")):
        _act(verbs, name, words)
    out = _act(verbs, "terminate", "disconnect a client from MPS; its process keeps running",
               pipes=False)
    out.add_argument("task", metavar="TASK", help="the client's task id, as `gpudeck tasks` "
                     "lists it")
    doctor = _act(verbs, "doctor", "problems, and how to fix them")
    doctor.add_argument("--fix", action="store_true", help="apply the fix where a setting fixes it")
    auto = _act(verbs, "tune", "keep the share of new clients near 100 / clients; a dry run "
                "unless --apply is given")
    auto.add_argument("--apply", action="store_true", help="set it, with --yes --reason TEXT")
    auto.add_argument("--rehearse", action="store_true",
                      help="what it would have done with the hub's history of --node")
    auto.add_argument("--start", metavar="TIME", default="24h",
                      help=f"with --rehearse: {TIMES}; default 24h")
    auto.add_argument("--end", metavar="TIME", default="now", help="default now")
    auto.add_argument("--from", dest="begin_pct", metavar="PCT", type=_whole(1, 100), default=100,
                      help="with --rehearse: the share to start with; default 100")
    auto.add_argument("--every", metavar="SPAN", type=parsed(parse_seconds),
                      default=None,
                      help="seconds between two checks, at least 1; default 30, and 60 with "
                           "--rehearse")
    auto.add_argument("--rounds", metavar="N", type=_whole(0, 10**6), default=10,
                      help="how many checks; 0: until stopped; default 10")
    return flags


def _gpu_parser() -> argparse.ArgumentParser:
    flags = parser("gpu", TABLE, "Timed limits of GPUs, each undone when its time is over.")
    verbs = flags.add_subparsers(dest="verb", metavar="VERB", required=True)
    _verb(verbs, "show", "the limits that gpudeck has set, and whether they are in force"
          ).add_argument("--node", metavar="NODE", help="with --hub: this node, by name or id")
    for name, words in (("cap", "the power, in watts"), ("lock", "the SM clock, in MHz"),
                        ("release", "undo a limit that gpudeck has set; restores the previous "
                                    "value"),
                        ("mode", "whether one process at a time may use it, as MPS should"),
                        ("time-slice", "how long each task on it works before the next one")):
        verb = _act(verbs, name, words, pipes=False)
        verb.add_argument("uuid", metavar="UUID", help="of the GPU, as `gpudeck status --json` "
                          "lists it")
        if name == "cap":
            verb.add_argument("watts", metavar="WATTS", type=_whole(1, 5_000))
        elif name == "lock":
            verb.add_argument("low", metavar="FROM", type=_whole(1, 20_000))
            verb.add_argument("high", metavar="TO", type=_whole(1, 20_000))
        elif name == "mode":
            verb.add_argument("mode", choices=tuple(MODES))
        elif name == "time-slice":
            verb.add_argument("length", choices=get_args(settings.SliceLength))
        else:
            verb.add_argument("what", choices=("power", "clocks", "mps_share"))
        if name in ("cap", "lock"):
            verb.add_argument("--for", dest="time", metavar="SPAN", required=True,
                              type=parsed(parse_span), help=f"{SPANS}; at most 30d")
    return flags


def _verb(verbs: Any, name: str, words: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=words, description=words)
    also_behind(verb, TABLE)
    return verb


def _act(verbs: Any, name: str, words: str, pipes: bool = True) -> argparse.ArgumentParser:
    verb = _verb(verbs, name, words)
    if pipes:
        verb.add_argument("--pipes", metavar="DIR", default=None,
                          help="the daemon's pipe directory; needed where there are several")
        verb.add_argument("--node", metavar="NODE", help="with --hub: the node, by name or id")
    verb.add_argument("--reason", metavar="TEXT", help="why; it goes into the audit log")
    verb.add_argument("--grace", metavar="SPAN", type=parsed(parse_seconds), default=GRACE_S,
                      help="for stop and restart: seconds for clients to finish")
    verb.add_argument("--yes", action="store_true",
                      help="do not ask for confirmation; only where nobody's work is ended")
    return verb


def mebibytes(word: str) -> int | None:
    """Return whole MiB; None: no limit. MPS reads 2.5G as 2 MB."""
    if word == "none":
        return None
    try:
        size = parse_size(word)
    except ValueError as error:
        raise CommandError(f"{error}, or none", ExitCode.USAGE) from error
    if size % 2**20 or not size:
        raise CommandError(f"{word!r} is not a memory limit: whole MiB are needed, such as 2GiB or "
                           "1536MiB, or none", ExitCode.USAGE)
    return size // 2**20


def _number(word: str, what: str, low: int, high: int) -> int:
    """Return a number in plain digits: int() takes digits of all scripts, and 1_0 for ten."""
    if not re.fullmatch(r"[0-9]{1,10}", word) or not low <= int(word) <= high:
        raise CommandError(f"{word[:40]!r} is no {what}: a whole number from {low} to {high} is "
                           "needed", ExitCode.USAGE)
    return int(word)


def _whole(low: int, high: int) -> Callable[[str], int]:
    def number(word: str) -> int:
        try:
            return _number(word, "such number", low, high)
        except CommandError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return number


def _mps_setting(args: argparse.Namespace, reach: ConnectionSettings) -> settings.Setting:
    pipes = pipes_of(args, reach)
    plain: dict[str, Callable[[str], settings.Setting]] = {
        "start": settings.MpsStart, "stop": settings.MpsStop, "restart": settings.MpsRestart}
    if args.verb in plain:
        return plain[args.verb](pipes)
    if args.device is not None and args.what != "memory":
        raise CommandError("--device is only for memory", ExitCode.USAGE)
    match args.what:
        case "share":
            pct = _number(args.value, "share in %", 1, 100)
            return settings.MpsPercent(pipes, pct, args.server)
        case "priority":
            return settings.MpsPriority(pipes, 1 if _number(args.value, "priority", 0, 1) else 0)
        case "preset":
            if args.value not in settings.PRESETS:
                raise CommandError(f"{args.value[:40]!r} is not a preset: there are "
                                   f"{', '.join(settings.PRESETS)}", ExitCode.USAGE)
            return settings.MpsPreset(pipes, args.value, args.server)
    if args.device is None:
        raise CommandError("name the device with --device N", ExitCode.USAGE)
    return settings.MpsMemory(pipes, args.device, mebibytes(args.value), args.server)


def _gpu_setting(args: argparse.Namespace) -> settings.Setting:
    match args.verb:
        case "cap":
            return settings.PowerCap(args.uuid, args.watts, args.time)
        case "lock":
            return settings.ClockLock(args.uuid, args.low, args.high, args.time)
        case "mode":
            return settings.ComputeMode(args.uuid, args.mode)
        case "time-slice":
            return settings.TimeSlice(args.uuid, args.length)
    return settings.LimitRelease(args.uuid, args.what)


# -- show


def _show_mps(reach: ConnectionSettings, args: argparse.Namespace) -> int:
    if reach.hub is not None:
        items = reach.client().mps(_of_node(reach, args))
        lines = [line for item in items for line in (
            printable(item["host"]), *mps_lines(msgspec.convert(
                item["daemons"], tuple[settings.MpsDaemon, ...]), item["trouble"]))]
        return answer(reach, {"items": items}, *lines)
    local_daemons = LocalMpsDaemons()
    daemons, trouble = _daemons_here(reach, local_daemons), mps_view.why_not(local_daemons)
    items = [{"host": "here", "trouble": trouble, "daemons": msgspec.to_builtins(daemons)}]
    return answer(reach, {"items": items}, *mps_lines(daemons, trouble))


def _daemons_here(reach: ConnectionSettings, local_daemons: LocalMpsDaemons
                  ) -> tuple[settings.MpsDaemon, ...]:
    with _journal(reach.data) as journal:
        store = None if journal is None else MpsSettingStore(journal, boot_id())
        defaults = () if store is None else store.defaults()
        return mps_view.daemons(local_daemons, devices(8, defaults),
                                (lambda *_: None) if store is None else store.of,
                                driver=backend_named(reach.backend).driver_version())


def _of_node(reach: ConnectionSettings, args: argparse.Namespace) -> str | None:
    if args.node is None or reach.hub is None:
        return None
    return node_id(reach.client(), args.node)


def mps_lines(daemons: Sequence[settings.MpsDaemon], trouble: str) -> Iterable[str]:
    if not daemons:
        yield f"  {printable(trouble) or 'no MPS control daemon runs'}"
    for daemon in daemons:
        state = "answers" if daemon.is_alive else "does not answer"
        yield f"  {printable(daemon.pipes)}  {state}  {printable(daemon.user or 'owner unknown')}"
        if daemon.trouble:
            yield f"    note      {printable(daemon.trouble)}"
        if daemon.is_alive:
            yield (f"    next server {_share(daemon.default_pct)}, priority "
                   f"{_or_unknown(daemon.default_priority)}{_memory(daemon.default_memory)}")
        for server in daemon.servers:
            yield (f"    server {server.pid}  {printable(server.user or 'unknown')}  "
                   f"{_share(server.pct)} for new clients{_memory(server.memory)}")
            for client in server.clients:
                yield (f"      client {client.pid}  {printable(client.user or 'unknown')}  "
                       f"{_share(client.pct)}  {printable(client.command or 'unknown')[:60]}")


def _share(pct: float | None) -> str:
    return "share unknown" if pct is None else f"{pct:g} %"


def _or_unknown(value: object) -> str:
    return "unknown" if value is None else str(value)


def _memory(limits: Iterable[Any]) -> str:
    return "".join(f", {limit.limit} on device {limit.ordinal}" for limit in limits)


def _show_limits(reach: ConnectionSettings, args: argparse.Namespace) -> int:
    if reach.hub is not None:
        items, means = reach.client().limits(_of_node(reach, args)), {}
    else:
        here = {"host": "here", "trouble": "", **limits_here(reach.data)}
        items, means = [here | ({"unread": closed} if (closed := closed_here(reach)) else {})], {
            "means": limit_means.means_here(reach, _daemons_here(reach, LocalMpsDaemons()),
                                            any(
                limit["state"] == "in_force" for limit in here["memory"]))}
    lines = [line for item in items for line in _limit_lines(item)]
    return answer(reach, {"items": items, **msgspec.to_builtins(means)},
                  *(lines or ["gpudeck has set no limit"]),
                  *(line for mechanisms in means.values()
                    for line in limit_means.means_lines(mechanisms)))


def limits_here(data: Path) -> dict[str, Any]:
    with _journal(data) as journal:
        if journal is None:
            return {**{name: [] for name in LISTS}, "unread": ""}
        stores = (TimedLimitStore(journal), ComputeModeStore(journal), MigLayoutStore(journal),
                  MemoryLimitStore(journal))
        rows = [msgspec.to_builtins(store.all()) for store in stores]
        return {**dict(zip(LISTS, rows, strict=True)),
                "unread": unread_words(*stores)}


@contextmanager
def _journal(data: Path) -> Iterator[ActionJournal | None]:
    """Yield the journal of this folder. None: nothing was ever set from it."""
    if not data.is_dir():
        yield None
        return
    with closing(ActionStore(data / "acts.db")) as store:
        yield ActionJournal(store)


def _limit_lines(item: dict[str, Any]) -> Iterable[str]:
    if unread := item.get("unread"):
        yield f"{printable(item['host'])}  {printable(unread)}"
    for lease in msgspec.convert(item["leases"], tuple[settings.TimedLimit, ...]):
        unit = {"power": "W", "clocks": "MHz", "mps_share": "% of MPS"}[lease.what]
        range_words = " to ".join(f"{value:.0f}" for value in lease.wanted)
        yield (f"{printable(item['host'])}  {lease.gpu_uuid}  {range_words} {unit} until "
               f"{moment(lease.ends_at)}  {lease.state.replace('_', ' ')}: "
               f"{printable(lease.words)}  ({printable(lease.by)})")
    for mode in msgspec.convert(item["modes"], tuple[settings.ManagedComputeMode, ...]):
        yield (f"{printable(item['host'])}  {mode.gpu_uuid}  {mode.mode.replace('_', ' ')}  "
               f"{mode.state.replace('_', ' ')}: {printable(mode.words)}  ({printable(mode.by)})")
    for layout in msgspec.convert(item["layouts"], tuple[settings.ManagedMigLayout, ...]):
        yield (f"{printable(item['host'])}  {layout.gpu_uuid}  MIG {printable(layout.layout)}  "
               f"{layout.state.replace('_', ' ')}: {printable(layout.words)}  "
               f"({printable(layout.by)})")
    for memory in msgspec.convert(item.get("memory", ()), tuple[settings.GroupMemoryLimit, ...]):
        yield (f"{printable(item['host'])}  {memory.gpu_uuid}  memory at most "
               f"{gibibytes(memory.limit_bytes)} for {printable(memory.holder)}  "
               f"{memory.state.replace('_', ' ')}: {printable(memory.words)}  "
               f"({printable(memory.group)})")


def doctor(reach: ConnectionSettings, args: argparse.Namespace) -> int:
    if reach.hub is not None:
        raise CommandError("`gpudeck mps doctor` checks only this machine; run it on the node, "
                           "without --hub. The node's page shows it too", ExitCode.USAGE)
    mps = LocalMpsDaemons() if args.pipes is None else LocalMpsDaemons(pipes=Path(args.pipes),
                                                                       is_alone=True)
    problems = findings(mps, *_machine(reach), _default_settings(reach), quotes_log=True)
    if reach.json:
        print(json.dumps({"items": msgspec.to_builtins(problems)}))
    for problem in () if reach.json else problems:
        print(f"{problem.code}: {printable(problem.cause)}.\n  do: {printable(problem.remedy)}"
              + (f"  ({_MENDS[problem.weight]} does it)" if problem.fixes else ""))
    if not problems and not reach.json:
        print("nothing is wrong with MPS here")
    codes = [do(reach, args, settings.action_of(fix), None, fix)
             for problem in problems if args.fix and not (args.yes and problem.weight == "advice")
             for fix in problem.fixes]
    if codes:
        return max(codes)
    has_fault = any(problem.weight == "fault" for problem in problems)
    return ExitCode.FAILED if has_fault else ExitCode.OK


def _machine(reach: ConnectionSettings) -> tuple[str | None, dict[str, int | None]]:
    """Return the driver's version and the compute mode of each board, as far as there are any."""
    backend = backend_named(reach.backend)
    limiter = LimitApplier(backend, reach.simulate, partial(driver_order, reach.data))
    if limiter.trouble() or backend.needs_driver():
        return None, {}
    with StandaloneNode(reach.data, reach.backend, reach.simulate) as local:
        reading = next(local.readings(0.0), None)
    boards = whole_boards(() if reading is None else reading.facts)
    return backend.driver_version(), {uuid: limits.compute_mode
                                      for uuid, limits in limiter.read(boards).items()}


def _default_settings(reach: ConnectionSettings) -> tuple[Default, ...]:
    with _journal(reach.data) as journal:
        return () if journal is None else MpsSettingStore(journal, boot_id()).defaults()
