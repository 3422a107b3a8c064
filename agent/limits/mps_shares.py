"""Shares of the threads that MPS servers give to their next clients, lowered for a time: what to do
about each. Running clients keep what they have, so nothing is ever taken from one of them."""

import time
from dataclasses import dataclass

from msgspec import UNSET
from msgspec.structs import replace

from gpudeck.contract.limits import TimedLimit

from ..tasks.processes import row_of
from .mps import LocalMpsDaemons, MpsControlError, MpsDaemonHandle
from .timed_limits import LimitStep, NodeTime, left_s

SET_WITHIN_S, LOOK_EVERY_S = 0.5, 0.1
NO_ANSWER = "the MPS control daemon does not say the share of this server"


@dataclass(frozen=True, slots=True)
class ServerShare:
    """Share of a server now. `pct` None: it is not known. `is_there`: the server runs."""

    pct: float | None
    is_there: bool


def read(mps: LocalMpsDaemons, limit: TimedLimit) -> ServerShare:
    if limit.pipes is UNSET or limit.server is UNSET or row_of(limit.server) is None:
        return ServerShare(None, False)
    daemon = mps.daemon(limit.pipes)
    servers = daemon.servers()
    if servers is not None and limit.server not in servers:
        return ServerShare(None, False)
    return ServerShare(None if servers is None else daemon.percent(limit.server), True)


def step(limit: TimedLimit, share: ServerShare, clock: NodeTime) -> LimitStep:
    """Decide what to do about a limit."""
    if not share.is_there or limit.boot_id != clock.boot_id:
        return LimitStep("forget", limit, "its MPS server has ended, and its share with it")
    if limit.state == "beginning" and share.pct is None:
        return LimitStep("keep", limit)
    now = judged(limit, share.pct, clock.wall)
    is_over = left_s(limit, clock) <= 0
    if limit.state == "beginning":
        return LimitStep("undo", now, "it was begun and its outcome was never recorded")
    if share.pct is None or not is_over:
        return LimitStep("keep", now)
    if now.state == "drifted":
        return LimitStep("forget", now, f"its time is over; {now.words}, and stays that way")
    return LimitStep("undo", now, "its time is over")


def judged(limit: TimedLimit, pct: float | None, wall: float) -> TimedLimit:
    """Return the limit with its proof."""
    if pct is None:
        return replace(limit, state="unknown", words=NO_ANSWER)
    if pct == limit.wanted[0]:
        return replace(limit, state="in_force", seen=pct, seen_at=wall,
                       words=f"MPS gives next clients {pct:g} %")
    return replace(limit, state="drifted", seen=pct, seen_at=wall,
                   words=f"somebody has set {pct:g} % since")


def undo(mps: LocalMpsDaemons, limit: TimedLimit) -> str:
    """Set the former share again; return what is wrong. What somebody else has set since stays."""
    share = read(mps, limit)
    if not share.is_there:
        return ""
    if share.pct is None:
        return NO_ANSWER
    if share.pct != limit.wanted[0] or limit.pipes is UNSET or limit.server is UNSET:
        return ""
    return set_share(mps.daemon(limit.pipes), limit.server, round(limit.before[0]))


def set_share(daemon: MpsDaemonHandle, server: int, pct: int) -> str:
    """Set the share of a server's next clients; return why it does not read back so."""
    try:
        daemon.set_percent(pct, server)
    except MpsControlError as why:
        return str(why)
    until = time.monotonic() + SET_WITHIN_S
    while (now_pct := daemon.percent(server)) != pct and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
    words = "nothing" if now_pct is None else f"{now_pct:g} %"
    return "" if now_pct == pct else f"it reads back {words}, not {pct} %"
