"""`gpudeck mps` and `gpudeck gpu`: what is set, and setting it, with the same preview, gate and
audit as any act."""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gpudeck.act_views import PreviewView
from gpudeck.act_words import moment, preview_lines, printable
from gpudeck.acts import GRACE_S, NO_TASK, ShownAction
from gpudeck.client import Client
from gpudeck.errors import CommandError, ExitCode
from gpudeck.limits import (
    GPU_SETTINGS,
    PRESETS,
    ClockLock,
    Lease,
    LimitOff,
    MpsDaemon,
    MpsMemory,
    MpsPercent,
    MpsPreset,
    MpsPriority,
    MpsRestart,
    MpsStart,
    MpsStop,
    PowerCap,
    Setting,
    action_of,
)
from gpudeck.settings import parser

from . import mps_view
from .act_settings import TABLE, Reach, read_reach
from .acts_cli import Teller, client_of, desk_of, followed, is_sure, is_sure_despite
from .acts_journal import ActsJournal, ActsStore
from .autotune import Seen, tune
from .backends.nvml_session import module_version
from .lease_book import GivenBook, LeaseBook
from .limiter import Limiter
from .local import Local
from .locked import agent_pid
from .mps import Mps
from .mps_doctor import Finding, findings
from .tasks import boot_id

UNITS_S = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_SETTINGS: msgspec.json.Decoder[Setting] = msgspec.json.Decoder(Setting)


def mps(argv: Sequence[str]) -> int:
    asked = _mps_parser().parse_args(list(argv))
    reach = read_reach("mps", TABLE, asked, os.environ)
    match asked.verb:
        case "show":
            return _show_mps(reach, asked)
        case "doctor":
            return _doctor(reach, asked)
        case "tune":
            return _tune(reach, asked)
        case "terminate":
            return _do(reach, asked, "terminate_client", asked.task, None)
    setting = _checked(_mps_setting(asked, reach))
    return _do(reach, asked, action_of(setting), None, setting)


def gpu(argv: Sequence[str]) -> int:
    asked = _gpu_parser().parse_args(list(argv))
    reach = read_reach("gpu", TABLE, asked, os.environ)
    if asked.verb == "show":
        return _show_limits(reach, asked)
    setting = _checked(_gpu_setting(asked))
    if reach.hub is None and not isinstance(setting, LimitOff) and agent_pid(reach.data) is None:
        raise CommandError("no agent runs on this machine's folder: nobody would take the limit "
                           "back when its time is over. Start the agent, or act through --hub",
                           ExitCode.CANNOT_START)
    return _do(reach, asked, action_of(setting), None, setting)


# -- what can be told


def _mps_parser() -> argparse.ArgumentParser:
    made = parser("mps", TABLE, "MPS: what is set, and setting it.")
    verbs = made.add_subparsers(dest="verb", metavar="VERB", required=True)
    _verb(verbs, "show", "daemons, servers, clients, and what is set").add_argument(
        "--node", metavar="NODE", help="with --hub: this node, by name or id")
    share = _act(verbs, "set", "a value, for clients that come next")
    share.add_argument("what", choices=("share", "memory", "priority", "preset"))
    share.add_argument("value", metavar="VALUE",
                       help="share: whole percent; memory: 2GiB, 900MiB or none; priority: 0 or 1; "
                            f"preset: {', '.join(PRESETS)}")
    share.add_argument("--server", metavar="PID", type=int, default=None,
                       help="this server's new clients; without it, the next server's")
    share.add_argument("--device", metavar="N", type=int, default=None,
                       help="of memory: the device, as MPS numbers them")
    for name, words in (("start", "the control daemon"), ("stop", "it, and with it its servers"),
                        ("restart", "it, and set its defaults again")):
        _act(verbs, name, words)
    out = _act(verbs, "terminate", "take a client out of MPS; its process goes on", pipes=False)
    out.add_argument("task", metavar="TASK", help="the client's task id, as `gpudeck tasks` "
                     "lists it")
    doctor = _act(verbs, "doctor", "what is wrong, and what to do about it")
    doctor.add_argument("--fix", action="store_true", help="do it, where a setting mends it")
    auto = _act(verbs, "tune", "keep the share of new clients near 100 / clients; a dry run, "
                "unless told otherwise")
    auto.add_argument("--apply", action="store_true", help="set it, with --yes --reason TEXT")
    auto.add_argument("--every", metavar="S", type=float, default=30.0)
    auto.add_argument("--rounds", metavar="N", type=int, default=10)
    return made


def _gpu_parser() -> argparse.ArgumentParser:
    made = parser("gpu", TABLE, "Limits of Gpus, each for a time and with its undo.")
    verbs = made.add_subparsers(dest="verb", metavar="VERB", required=True)
    _verb(verbs, "show", "the limits that gpudeck holds, and whether they are in force"
          ).add_argument("--node", metavar="NODE", help="with --hub: this node, by name or id")
    for name, words in (("cap", "the power, in watts"), ("lock", "the SM clock, in MHz"),
                        ("release", "what gpudeck has set; what was before is set again")):
        made_act = _act(verbs, name, words, pipes=False)
        made_act.add_argument("uuid", metavar="UUID", help="of the Gpu, as `gpudeck status --json` "
                              "lists it")
        if name == "cap":
            made_act.add_argument("watts", metavar="WATTS", type=int)
        elif name == "lock":
            made_act.add_argument("low", metavar="FROM", type=int)
            made_act.add_argument("high", metavar="TO", type=int)
        else:
            made_act.add_argument("what", choices=("power", "clocks"))
        if name != "release":
            made_act.add_argument("--for", dest="time", metavar="TIME", required=True,
                                  help="90s, 30min, 2h, 1d; at most 30d")
    return made


def _verb(verbs: Any, name: str, words: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(name, help=words, description=words)
    return made


def _act(verbs: Any, name: str, words: str, pipes: bool = True) -> argparse.ArgumentParser:
    made = _verb(verbs, name, words)
    if pipes:
        made.add_argument("--pipes", metavar="DIR", default=None,
                          help="the daemon's pipe directory; needed where there are several")
        made.add_argument("--node", metavar="NODE", help="with --hub: the node, by name or id")
    made.add_argument("--reason", metavar="TEXT", help="why; it is recorded")
    made.add_argument("--grace", metavar="S", type=float, default=GRACE_S,
                      help="of stop and restart: seconds for clients to leave")
    made.add_argument("--yes", action="store_true",
                      help="do not ask; only where nobody's work is ended")
    return made


def seconds(word: str) -> float:
    found = re.fullmatch(r"(\d{1,6})(s|min|h|d)", word)
    if found is None:
        raise CommandError(f"{word!r} is no time: say 90s, 30min, 2h or 1d", ExitCode.USAGE)
    return float(int(found[1]) * UNITS_S[found[2]])


def mebibytes(word: str) -> int | None:
    """Whole ones: MPS reads 2.5G as 2 MB."""
    if word == "none":
        return None
    found = re.fullmatch(r"([1-9]\d{0,8})(MiB|GiB)", word)
    if found is None:
        raise CommandError(f"{word!r} is no memory limit: say 2GiB, 1536MiB or none, in whole "
                           "numbers", ExitCode.USAGE)
    return int(found[1]) * (1_024 if found[2] == "GiB" else 1)


def _number(word: str, what: str) -> int:
    if not re.fullmatch(r"\d{1,6}", word):
        raise CommandError(f"{word!r} is no {what}: a whole number is needed", ExitCode.USAGE)
    return int(word)


def _mps_setting(asked: argparse.Namespace, reach: Reach) -> Setting:
    pipes = _pipes(asked, reach)
    plain: dict[str, Callable[[str], Setting]] = {
        "start": MpsStart, "stop": MpsStop, "restart": MpsRestart}
    if asked.verb in plain:
        return plain[asked.verb](pipes)
    if asked.device is not None and asked.what != "memory":
        raise CommandError("--device goes with memory alone", ExitCode.USAGE)
    match asked.what:
        case "share":
            return MpsPercent(pipes, _number(asked.value, "share in %"), asked.server)
        case "priority":
            return MpsPriority(pipes, _number(asked.value, "priority"))  # type: ignore[arg-type]
        case "preset":
            return MpsPreset(pipes, asked.value, asked.server)
    if asked.device is None:
        raise CommandError("say of which device with --device N", ExitCode.USAGE)
    return MpsMemory(pipes, asked.device, mebibytes(asked.value), asked.server)


def _gpu_setting(asked: argparse.Namespace) -> Setting:
    match asked.verb:
        case "cap":
            return PowerCap(asked.uuid, asked.watts, seconds(asked.time))
        case "lock":
            return ClockLock(asked.uuid, asked.low, asked.high, seconds(asked.time))
    return LimitOff(asked.uuid, asked.what)


def _checked(setting: Setting) -> Setting:
    """Types alone check nothing: the strict reader does."""
    try:
        return _SETTINGS.decode(msgspec.json.encode(setting))
    except msgspec.ValidationError as error:
        raise CommandError(f"this cannot be set: {error}", ExitCode.USAGE) from error


def _pipes(asked: argparse.Namespace, reach: Reach) -> str:
    if asked.pipes is not None:
        return str(asked.pipes)
    if reach.hub is None:
        return str(Mps().daemons()[0].folder)
    daemons = _node_mps(client_of(reach, reach.hub), asked.node)["daemons"]
    if len(daemons) != 1:
        raise CommandError("say which pipe directory with --pipes; there are "
                           f"{', '.join(each['pipes'] for each in daemons) or 'none'}",
                           ExitCode.USAGE)
    return str(daemons[0]["pipes"])


# -- acts


@dataclass(frozen=True, slots=True)
class Wanted:
    action: ShownAction
    target: str
    params: dict[str, Any]


def _do(reach: Reach, asked: argparse.Namespace, action: ShownAction, task_id: str | None,
        setting: Setting | None) -> int:
    if asked.yes and not asked.reason:
        raise CommandError("say why with --reason", ExitCode.USAGE)
    if not (asked.yes or sys.stdin.isatty()):
        raise CommandError("this asks before it acts, and there is no terminal to ask at; with "
                           "--yes --reason TEXT it does not ask, where nobody's work is ended",
                           ExitCode.USAGE)
    return _act_on(reach, asked, Wanted(action, _target(reach, asked, task_id, setting),
                                        _params(setting, asked.grace)))


def _params(setting: Setting | None, grace_s: float) -> dict[str, Any]:
    if setting is None:
        return {}
    if not 1 <= grace_s <= 600:
        raise CommandError("--grace is from 1 to 600 seconds", ExitCode.USAGE)
    return {"grace_s": grace_s, "setting": msgspec.to_builtins(setting)}


def _target(reach: Reach, asked: argparse.Namespace, task_id: str | None,
            setting: Setting | None) -> str:
    if task_id is not None:
        return task_id
    if reach.hub is None:
        return NO_TASK
    if isinstance(setting, GPU_SETTINGS):
        return setting.gpu_uuid
    return node_id(client_of(reach, reach.hub), asked.node)


def _act_on(reach: Reach, asked: argparse.Namespace, wanted: Wanted) -> int:
    teller = Teller(reach.json)
    with desk_of(reach) as desk:
        view = desk.preview(wanted.action, [wanted.target], wanted.params, False)
        teller.tell("preview", preview=view)
        teller.say(*preview_lines(view))
        if not view.possible:
            teller.say("", "nothing was done: it would be refused")
            return ExitCode.REFUSED
        if asked.yes and _ends_work(view):
            raise CommandError("somebody's work would be ended: that is confirmed at a terminal, "
                               "without --yes", ExitCode.USAGE)
        if not asked.yes and not is_sure(view, teller):
            teller.say("nothing was done")
            return ExitCode.FAILED
        if view.needs.maintenance and (asked.yes or not is_sure_despite(teller)):
            teller.say("nothing was done: people work on this node; without --yes it is asked "
                       "for twice")
            return ExitCode.REFUSED
        return followed(teller, desk, desk.order(
            view.id, asked.reason or "from the terminal", view.needs.maintenance))


def _ends_work(view: PreviewView) -> bool:
    return any(item.processes for item in view.items)


def node_id(client: Client, name: str | None) -> str:
    if name is None:
        raise CommandError("name the node with --node", ExitCode.USAGE)
    found = [node for node in client.nodes() if name in (node["id"], node["host"])]
    if len(found) != 1:
        raise CommandError(f"{len(found)} nodes are called {printable(name)!r}; `gpudeck status "
                           "--hub URL` lists them", ExitCode.USAGE)
    return str(found[0]["id"])


# -- looking


def _show_mps(reach: Reach, asked: argparse.Namespace) -> int:
    if reach.hub is not None:
        items = client_of(reach, reach.hub).mps(_of_node(reach, asked))
        return _out(reach, items, (line for item in items for line in (
            printable(item["host"]), *mps_lines(
                msgspec.convert(item["daemons"], tuple[MpsDaemon, ...]), item["trouble"]))))
    known = Mps()
    store = ActsStore(reach.data / "acts.db")
    try:
        given = GivenBook(ActsJournal(store), boot_id()) if reach.data.is_dir() else None
        daemons = mps_view.daemons(known, range(8), given.of if given else lambda *_: None)
    finally:
        store.close()
    trouble = mps_view.why_not(known)
    items = [{"host": "here", "trouble": trouble, "daemons": msgspec.to_builtins(daemons)}]
    return _out(reach, items, mps_lines(daemons, trouble))


def _node_mps(client: Client, name: str | None) -> dict[str, Any]:
    items = client.mps(node_id(client, name))
    if not items:
        raise CommandError("this node has not said whether MPS is there")
    return items[0]


def _of_node(reach: Reach, asked: argparse.Namespace) -> str | None:
    if asked.node is None or reach.hub is None:
        return None
    return node_id(client_of(reach, reach.hub), asked.node)


def mps_lines(daemons: Sequence[MpsDaemon], trouble: str) -> Iterable[str]:
    if not daemons:
        yield f"  {printable(trouble) or 'no MPS control daemon runs'}"
    for daemon in daemons:
        state = "answers" if daemon.is_alive else "does not answer"
        yield f"  {printable(daemon.pipes)}  {state}  {printable(daemon.user or 'owner unknown')}"
        if daemon.trouble:
            yield f"    note      {printable(daemon.trouble)}"
        if daemon.is_alive:
            yield (f"    next server {_share(daemon.default_pct)}, priority "
                   f"{_known(daemon.default_priority)}{_memory(daemon.default_memory)}")
        for server in daemon.servers:
            yield (f"    server {server.pid}  {printable(server.user or 'unknown')}  "
                   f"{_share(server.pct)} for new clients{_memory(server.memory)}")
            for client in server.clients:
                yield (f"      client {client.pid}  {printable(client.user or 'unknown')}  "
                       f"{_share(client.pct)}  {printable(client.command or 'unknown')[:60]}")


def _share(pct: float | None) -> str:
    return "share unknown" if pct is None else f"{pct:g} %"


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)


def _memory(limits: Iterable[Any]) -> str:
    return "".join(f", {each.limit} on device {each.ordinal}" for each in limits)


def _show_limits(reach: Reach, asked: argparse.Namespace) -> int:
    if reach.hub is not None:
        items = client_of(reach, reach.hub).limits(_of_node(reach, asked))
    else:
        store = ActsStore(reach.data / "acts.db")
        try:
            leases = LeaseBook(ActsJournal(store)).all() if reach.data.is_dir() else ()
        finally:
            store.close()
        items = [{"host": "here", "trouble": "", "leases": msgspec.to_builtins(leases)}]
    lines = [line for item in items for line in _limit_lines(item)]
    return _out(reach, items, lines or ["gpudeck holds no limit"])


def _limit_lines(item: dict[str, Any]) -> Iterable[str]:
    for lease in msgspec.convert(item["leases"], tuple[Lease, ...]):
        unit = "W" if lease.what == "power" else "MHz"
        wanted = " to ".join(f"{each:.0f}" for each in lease.wanted)
        yield (f"{printable(item['host'])}  {lease.gpu_uuid}  {wanted} {unit} until "
               f"{moment(lease.ends_at)}  {lease.state.replace('_', ' ')}: "
               f"{printable(lease.words)}  ({printable(lease.by)})")


def _out(reach: Reach, items: list[dict[str, Any]], lines: Iterable[str]) -> int:
    print(json.dumps({"items": items}) if reach.json else "\n".join(lines))
    return ExitCode.OK


# -- doctor


def _doctor(reach: Reach, asked: argparse.Namespace) -> int:
    _only_here(reach, "doctor")
    found = findings(Mps(), *_machine(reach))
    if reach.json:
        print(json.dumps({"items": [_finding(each) for each in found]}))
    for each in () if reach.json else found:
        print(f"{each.code}: {printable(each.cause)}.\n  do: {printable(each.remedy)}"
              + ("  (gpudeck mps doctor --fix does it)" if each.fix else ""))
    if not found and not reach.json:
        print("nothing is wrong with MPS here")
    codes = [_do(reach, asked, action_of(each.fix), None, each.fix)
             for each in found if asked.fix and each.fix is not None]
    if codes:
        return max(codes)
    return ExitCode.FAILED if any(each.code != "not_installed" for each in found) else ExitCode.OK


def _machine(reach: Reach) -> tuple[str | None, tuple[Any, ...]]:
    """The driver's version and its Gpus, where there are any."""
    limiter = Limiter(reach.backend, reach.simulate)
    if limiter.trouble() or module_version() is None:
        return None, ()
    with Local(reach.data, reach.backend, reach.simulate) as local:
        uuids = local.gpus()
    return module_version(), tuple(limiter.read(uuids).values())


def _finding(each: Finding) -> dict[str, Any]:
    return {"code": each.code, "cause": each.cause, "remedy": each.remedy,
            "fix": None if each.fix is None else msgspec.to_builtins(each.fix)}


def _only_here(reach: Reach, verb: str) -> None:
    if reach.hub is not None:
        raise CommandError(f"`gpudeck mps {verb}` looks at this machine alone; run it on the node, "
                           "without --hub", ExitCode.USAGE)


# -- tuning


def _tune(reach: Reach, asked: argparse.Namespace) -> int:
    _only_here(reach, "tune")
    if asked.apply and not (asked.yes and asked.reason):
        raise CommandError("to set it, say --apply --yes --reason TEXT; without --apply it only "
                           "tells what it would do", ExitCode.USAGE)
    for number in range(asked.rounds):
        if number:
            time.sleep(asked.every)
        code = _tune_once(reach, asked)
        if code != ExitCode.OK:
            return code
    return ExitCode.OK


def _tune_once(reach: Reach, asked: argparse.Namespace) -> int:
    """Each change is an act of its own: the Audit is the record of what was done."""
    daemon = Mps().daemon(_pipes(asked, reach))
    seen = mps_view.view(daemon)
    if not seen.is_alive:
        raise CommandError(seen.trouble)
    server = seen.servers[0].pid if len(seen.servers) == 1 else None
    now_pct = seen.default_pct if server is None else seen.servers[0].pct
    with Local(reach.data, reach.backend, reach.simulate, reach.ceiling) as local:
        load_pct = local.load_pct()
    found = tune(Seen(len(seen.clients), load_pct, now_pct))
    told = {"at": time.time(), "clients": len(seen.clients), "load_pct": load_pct,
            "now_pct": now_pct, "pct": found.pct, "goal": found.goal, "why": found.why,
            "is_dry": not asked.apply}
    print(json.dumps(told) if reach.json else
          f"{'' if asked.apply else 'dry run: '}{found.why}"
          + ("" if found.pct is None else f": {found.pct} %"), flush=True)
    if found.pct is None or not asked.apply:
        return ExitCode.OK
    setting = _checked(MpsPercent(str(daemon.folder), found.pct, server))
    return _do(reach, asked, action_of(setting), None, setting)
