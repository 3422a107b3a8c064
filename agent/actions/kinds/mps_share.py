"""Lowers the share of the threads that MPS gives to next clients of a task's server, for a time.

MPS changes nothing for a client that runs: what is limited is what its owner starts there from then
on. So a server that serves others too is left alone, and what runs is said to keep its share."""

from collections.abc import Iterator

from gpudeck.contract.action_table import LIMIT_LASTS_S, MPS_SHARE_LEAST_PCT, MPS_SHARE_PART
from gpudeck.contract.actions import ActionVerification, Refusal
from gpudeck.contract.limits import TimedLimit
from gpudeck.words.actions import many

from ...journal.store import JournalError
from ...limits.apply import clock_now
from ...limits.mps import LocalMpsDaemons, MpsDaemonHandle, believed, multiuser_pipes
from ...limits.mps_shares import judged, set_share, undo
from ...tasks.processes import about
from ..context import TaskSnapshot
from ..targets import TargetProcessSet
from .execution import ActionRefusedError, Outcome
from .setting_kind import span
from .task_kind import TaskExecution, are_alive

NOT_SERVED = "no MPS server that answers here lists it as a client: it has no share to limit"


def clients_of(snapshot: TaskSnapshot, pids: frozenset[int]) -> frozenset[int]:
    """Return the processes of it that are clients of MPS."""
    return frozenset(entry.task.pid for entry in snapshot.gpu_tasks
                     if entry.task.pid in pids and entry.task.kind == "mps_client")


def limit_share(act: TaskExecution, targets: TargetProcessSet, snapshot: TaskSnapshot) -> Outcome:
    mps, store = act.context.limits.mps, act.context.limits.timed
    daemon, server, before = _server(mps, targets, clients_of(snapshot, targets.pids))
    pct = max(round(before * MPS_SHARE_PART), MPS_SHARE_LEAST_PCT)
    if pct >= before:
        raise ActionRefusedError(Refusal("setting", f"its MPS server gives {before} % already, and "
                                                    "gpudeck goes no lower"))
    gpu = min(entry.gpu_uuid for entry in snapshot.gpu_tasks if entry.task.pid in targets.pids)
    limit = _timed(act, gpu, daemon, server, (pct, before))
    try:
        for other in store.all():
            if other.what == "mps_share" and (other.gpu_uuid == gpu or other.server == server):
                raise ActionRefusedError(Refusal("setting", "a share of MPS is limited for a time "
                                                            "there already, and stays as it is"))
        # What running clients keep is noted first; both are on disk before anything is set.
        act.context.limits.mps_settings.note(str(daemon.folder), server, float(before),
                                             daemon.clients(server))
        store.begin(limit)
        if wrong := set_share(daemon, server, pct):
            if not undo(mps, limit):
                store.end(limit, wrong)
            raise ActionRefusedError(Refusal("setting", wrong[:1_024]))
        store.note(judged(limit, float(pct), limit.began_at))
    except JournalError as why:
        raise ActionRefusedError(Refusal("journal", str(why))) from why
    words = (f"its MPS server gives next clients {pct} % of the threads instead of {before} %, for "
             f"{span(LIMIT_LASTS_S)} at most; {many(len(daemon.clients(server)), 'running client')}"
             " of it are as before")
    act.tell_owner(targets, words[:1].upper() + words[1:] + ".")
    vanished = targets.vanished()
    return "done", None, ActionVerification(
        applied=True, in_force=True, vanished=vanished,
        bystanders_alive=are_alive(targets, vanished)), words


def _server(mps: LocalMpsDaemons, targets: TargetProcessSet, clients: frozenset[int]
            ) -> tuple[MpsDaemonHandle, int, int]:
    """Return the server of these clients, and the share that it gives in whole percents. Raises
    ActionRefusedError."""
    if mps.trouble():
        raise ActionRefusedError(Refusal("mps", mps.trouble()))
    servers = list(_serving(mps, clients))
    if len(servers) != 1:
        raise ActionRefusedError(Refusal("mps", NOT_SERVED if not servers else (
            f"it has clients of {len(servers)} MPS servers, and a limit is of one")))
    [(daemon, server)] = servers
    owners = {None if (process := about(pid)) is None else process.uid
              for pid in daemon.clients(server)}
    if str(daemon.folder) in multiuser_pipes() or owners != {targets.uid}:
        raise ActionRefusedError(Refusal("mps", "its MPS server serves others as well, and a lower "
                                                "share would limit them too"))
    pct = daemon.percent(server)
    if pct is None or pct != round(pct):
        raise ActionRefusedError(Refusal("mps", "its MPS server does not say its share in whole "
                                                "percents, so that it could not be set back"))
    return daemon, server, round(pct)


def _serving(mps: LocalMpsDaemons, clients: frozenset[int]
             ) -> Iterator[tuple[MpsDaemonHandle, int]]:
    for daemon in mps.daemons():
        for server in daemon.servers() or ():
            if clients & {*believed(daemon, daemon.clients(server))}:
                yield daemon, server


def _timed(act: TaskExecution, gpu: str, daemon: MpsDaemonHandle, server: int,
           pcts: tuple[int, int]) -> TimedLimit:
    clock = clock_now(act.context.node.boot_id)
    return TimedLimit(
        act.command.command_id, gpu, "mps_share", (float(pcts[0]),), (float(pcts[1]),),
        act.command.asker.name, act.command.reason, clock.wall, clock.wall + LIMIT_LASTS_S,
        clock.boot_id, clock.boottime_s + LIMIT_LASTS_S, "beginning",
        pipes=str(daemon.folder), server=server)
