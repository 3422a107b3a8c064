"""The pool at a past moment: leases that were held then, and claims that waited."""

from types import SimpleNamespace
from typing import Any

from dashboard.pool.lease_map import PoolPast
from gpudeck.pool.core.claims import Claim


def claim_of(name: str, submitted_at: float, **more: Any) -> Claim:
    return Claim(id=name, owner=f"owner of {name}", gpus=2, submitted_at=submitted_at, **more)


def test_a_claim_waited_once_over_however_many_nodes_and_a_reservation_from_its_time_on() -> None:
    wide, due = claim_of("wide", 100.0, nodes=2), claim_of("due", 50.0, starts_at=200.0)
    over, still = claim_of("over", 90.0), claim_of("still", 120.0)
    nodes = [SimpleNamespace(id=f"n{at}", report=SimpleNamespace(leases=[
        SimpleNamespace(claim=wide, uuids=(f"G{at}",), since=300.0)])) for at in range(2)]
    past_leases = [SimpleNamespace(claim=claim, since=since, ended_at=ends_at,
                             grants=[SimpleNamespace(node="n0", uuids=("G2",))])
             for claim, since, ends_at in ((due, 250.0, 400.0), (over, 150.0, 240.0))]
    service: Any = SimpleNamespace(nodes=nodes, waiting=lambda _: [still],
                                   ended=SimpleNamespace(recent=past_leases))

    def waiting(at: float) -> list[tuple[str, int]]:
        return [(lease.owner.removeprefix("owner of "), lease.gpus)
                for lease in PoolPast(service).at(at).waiting]

    assert waiting(130.0) == [("over", 2), ("wide", 4), ("still", 2)]
    assert waiting(210.0) == [("due", 2), ("wide", 4), ("still", 2)]
    assert waiting(320.0) == [("still", 2)]
    assert [lease.uuids for lease in PoolPast(service).at(310.0).leases] == [
        ("G0",), ("G1",), ("G2",)]
