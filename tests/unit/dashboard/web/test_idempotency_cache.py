"""Answers kept by key: done once, bounded, and nobody pushes out another's."""

import random

from hypothesis import given
from hypothesis import strategies as st

from dashboard.web.idempotency_cache import (
    KEPT_S,
    MOST_BYTES,
    MOST_KEPT_OF_ONE,
    IdempotencyCache,
    IdempotencyStatus,
    IdempotentResponse,
)

DONE = IdempotentResponse(201, (("Content-Type", "application/json"),), b"{}")
STEP = st.tuples(st.sampled_from(["ask", "end", "fail"]), st.sampled_from("ab"),
                 st.sampled_from("xyz"), st.sampled_from([b"1", b"2"]))


@given(st.lists(STEP, max_size=40))
def test_done_once_unless_nothing_was_done(steps: list[tuple[str, str, str, bytes]]) -> None:
    answers, stored = IdempotencyCache(), dict[tuple[str, str],
                                               tuple[bytes, IdempotentResponse | None]]()
    for what, asker, key, body in steps:
        name = (asker, key)
        if what == "ask":
            status, response = answers.begin(asker, key, body, 0.0)
            before = stored.get(name)
            if before is None:
                assert status is IdempotencyStatus.NEW
                stored[name] = (body, None)
            elif before[0] != body:
                assert (status, response) == (IdempotencyStatus.OTHER, None)
            else:
                assert response is before[1]
                assert status is (IdempotencyStatus.UNDER_WAY if response is None
                                  else IdempotencyStatus.ANSWERED)
        elif name in stored and stored[name][1] is None:
            answers.end(asker, key, DONE if what == "end" else None)
            if what == "end":
                stored[name] = (stored[name][0], DONE)
            else:
                del stored[name]


def test_a_day_old_one_is_forgotten() -> None:
    answers = IdempotencyCache()
    answers.begin("a", "x", b"1", 0.0)
    answers.end("a", "x", DONE)
    assert answers.begin("a", "x", b"1", KEPT_S)[0] is IdempotencyStatus.ANSWERED
    assert answers.begin("a", "x", b"1", KEPT_S + 1)[0] is IdempotencyStatus.NEW


def test_one_who_asks_much_pushes_out_their_own_oldest_only() -> None:
    answers = IdempotencyCache()
    for asker in ("quiet", *(["loud"] * (MOST_KEPT_OF_ONE + 50))):
        key = "first" if asker == "quiet" else str(random.random())
        answers.begin(asker, key, b"1", 0.0)
        answers.end(asker, key, DONE)
    assert answers.begin("quiet", "first", b"1", 1.0)[0] is IdempotencyStatus.ANSWERED
    assert len(answers._entries) == MOST_KEPT_OF_ONE + 1


def test_what_is_under_way_is_never_pushed_out() -> None:
    answers = IdempotencyCache()
    answers.begin("a", "slow", b"1", 0.0)
    for at in range(MOST_KEPT_OF_ONE * 2):
        answers.begin("a", str(at), b"1", 1.0)
        answers.end("a", str(at), DONE)
    assert answers.begin("a", "slow", b"1", KEPT_S * 2)[0] is IdempotencyStatus.UNDER_WAY


def test_bytes_are_bounded() -> None:
    answers, large = IdempotencyCache(), IdempotentResponse(200, (), bytes(MOST_BYTES // 4))
    for at in range(9):
        answers.begin(str(at), "x", b"1", 0.0)
        answers.end(str(at), "x", large)
    assert answers._bytes <= MOST_BYTES
    assert answers.begin("8", "x", b"1", 1.0) == (IdempotencyStatus.ANSWERED, large)
    assert answers.begin("0", "x", b"1", 1.0)[0] is IdempotencyStatus.NEW
