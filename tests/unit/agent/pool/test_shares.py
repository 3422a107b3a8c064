"""MPS daemons that hold a share, and users for whom none does."""

from dataclasses import replace

import pytest

from agent.pool.lock import NodeLease
from agent.pool.shares import NO_DAEMON, UNKNOWN, MpsFacts, holder_of
from gpudeck.contract.limits import MpsClient, MpsDaemon, MpsServer
from tests.unit.agent.pool.test_lock import lease

ANN = 1_000


def daemon(pipes: str = "/tmp/mps", uid: int = 0, of: int | None = None, clients: int = 1,
           is_alive: bool = True) -> MpsDaemon:
    servers = () if of is None else (MpsServer(7, of, f"user{of}", "ACTIVE", None, clients=tuple(
        MpsClient(100 + number, of, None, None, None, None) for number in range(clients))),)
    return MpsDaemon(pipes, uid, None, is_alive, servers=servers)


BOBS = replace(lease("b", "G1", share=300), uid=2_000, mps_pipes="/tmp/mps",
               claim=replace(lease("b", "G1").claim, owner="bob"))


@pytest.mark.parametrize(("daemons", "leases", "pipes", "why"), [
    (None, (), "", UNKNOWN),
    ((), (), "", NO_DAEMON),
    ((daemon(is_alive=False),), (), "", NO_DAEMON),
    ((daemon(uid=2_000),), (), "", NO_DAEMON),  # bob's own
    ((daemon(),), (), "/tmp/mps", ""),
    ((daemon(of=ANN),), (), "/tmp/mps", ""),
    ((daemon(of=2_000, clients=0),), (), "/tmp/mps", ""),  # the server outlived bob's clients
    ((daemon(of=2_000),), (), "", "here that is user2000 now"),
    ((daemon(),), (BOBS,), "", "here that is bob now"),
    ((daemon("/root"), daemon("/own", ANN)), (), "/own", ""),
])
def test_who_holds_a_share(daemons: tuple[MpsDaemon, ...] | None, leases: tuple[NodeLease, ...],
                           pipes: str, why: str) -> None:
    holder = holder_of(ANN, MpsFacts(daemons), leases)
    assert (holder.pipes, why in holder.why) == (pipes, True)
    assert bool(holder.pipes) != bool(holder.why)


def test_a_multiuser_server_holds_shares_of_several_users() -> None:
    mps = MpsFacts((daemon(of=2_000),), frozenset({"/tmp/mps"}))
    assert holder_of(ANN, mps, (BOBS,)).pipes == "/tmp/mps"
