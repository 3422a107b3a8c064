"""A reservation of GPUs that have not been read yet waits for a reading, and is not refused for
good."""

import random
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from dashboard.errors import InvalidChangeError, RecoveringError
from gpudeck.contract.pool_link import ClaimStanding, NodeClaim, OfferedGpu
from gpudeck.measures.availability import UNREAD
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.inventory import FreeGpu, node_of
from tests.unit.dashboard.pool.large_pool import LargePool

NOW = 1_000.0
GPUS = tuple(OfferedGpu(f"G{index}", "H100", index) for index in range(2))
LATER = Claim(id="r", owner="ann", gpus=2, submitted_at=NOW, starts_at=NOW + 600, term_s=3_600.0)


def with_reason(reason: str) -> tuple[OfferedGpu, ...]:
    return tuple(msgspec.structs.replace(gpu, trouble="something is the matter", reason=reason)
                 for gpu in GPUS)


@pytest.fixture
def pool() -> Iterator[LargePool]:
    pool = LargePool([node_of("n1", "n1", [
        (gpu.uuid, FreeGpu("H100", False, None, None, None)) for gpu in GPUS])], (), (), NOW,
        random.Random(1))
    yield pool
    pool.close()


def standing(pool: LargePool) -> ClaimStanding:
    """Return how the claim stands, as its node reads it."""
    pool.turn_ms()
    service = pool.service
    assert service.planned is not None
    [node] = service.nodes
    [standing] = service.planned.plan(node, {}, {}, {}, {}, 0.0).standings
    return standing


@pytest.mark.parametrize("reason", sorted(UNREAD))
def test_on_a_node_it_waits_for_the_reading(pool: LargePool, reason: str) -> None:
    pool.says("n1", gpus=with_reason(reason), claims=(NodeClaim(LATER, False),))
    waits = standing(pool)
    assert (waits.never, waits.kept, waits.wait_s) == ("", (), None)
    assert "have not been read yet" in waits.why
    pool.says("n1", gpus=GPUS)
    assert {*standing(pool).kept} == {"G0", "G1"}


@pytest.mark.parametrize("reason", sorted(UNREAD))
def test_what_is_never_read_is_refused_like_what_is_not_free(pool: LargePool, reason: str) -> None:
    pool.says("n1", gpus=with_reason(reason), claims=(NodeClaim(LATER, False),))
    assert not standing(pool).never
    # Two turns are further apart than a reading takes.
    assert standing(pool).never == "not enough matching GPUs are free for all of that time"
    with pytest.raises(InvalidChangeError, match="not enough matching GPUs"):
        pool.service.claim(replace(LATER, id="other"))


def test_until_then_nobody_is_kept_from_extending(pool: LargePool) -> None:
    pool.says("n1", gpus=with_reason("unknown"), claims=(NodeClaim(LATER, False),))
    standing(pool)
    planned = pool.service.planned
    assert planned is not None
    assert planned.outcome.order == ("r",)
    assert [*planned.outcome.competing] == []


def test_what_was_read_in_between_is_waited_for_again(pool: LargePool) -> None:
    for gpus in (with_reason("unknown"), GPUS):
        pool.says("n1", gpus=gpus)
        pool.turn_ms()
    pool.says("n1", gpus=with_reason("unknown"), claims=(NodeClaim(LATER, False),))
    waits = standing(pool)
    assert not waits.never
    assert "have not been read yet" in waits.why


def test_what_is_not_free_is_refused_for_good(pool: LargePool) -> None:
    pool.says("n1", gpus=(with_reason("lost")[0], with_reason("unknown")[1]),
              claims=(NodeClaim(LATER, False),))
    assert standing(pool).never == "not enough matching GPUs are free for all of that time"


def test_that_its_time_comes_before_the_reading_ends_it(pool: LargePool) -> None:
    pool.says("n1", gpus=with_reason("stale"), claims=(NodeClaim(LATER, False),))
    assert not standing(pool).never
    pool._now += 601
    assert standing(pool).never == "its start is in the past"


def test_who_asks_the_hub_is_to_ask_again(pool: LargePool) -> None:
    pool.says("n1", gpus=with_reason("no_reading"))
    pool.turn_ms()
    with pytest.raises(RecoveringError, match="try again in some seconds") as error:
        pool.service.claim(LATER)
    assert error.value.retry_s > 0
    assert not pool.service.claims
    pool.says("n1", gpus=with_reason("task"))
    with pytest.raises(InvalidChangeError, match="not enough matching GPUs"):
        pool.service.claim(LATER)
    pool.says("n1", gpus=GPUS)
    pool.service.claim(LATER)
    assert pool.service.bookings.kept_gpus("r") == {"G0", "G1"}
