"""Floods from a hub: orders and questions without end are counted, not recorded one by one."""

import logging
import secrets
from types import SimpleNamespace
from typing import Any

import pytest

from agent.actions.judge import CommandJudge
from agent.actions.replies import UNKNOWN_AT_ONCE, ReplyOutbox
from gpudeck.contract.wire import SignedCommand
from gpudeck.rate import REFUSALS_AT_ONCE

MANY = 2_000


def test_orders_that_are_none_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    recorded: list[dict[str, Any]] = []
    audit = SimpleNamespace(record=recorded.append)
    node = SimpleNamespace(hub=SimpleNamespace(begin=lambda: None, key=None),
                           journal=SimpleNamespace(audit=audit))
    judge = CommandJudge(node, *[None] * 3)  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO):
        for _ in range(MANY):
            judge.judge(SignedCommand(secrets.token_bytes(200), secrets.token_bytes(64)))
    assert 1 <= len(recorded) <= REFUSALS_AT_ONCE + 1
    assert len(caplog.records) == len(recorded)
    left_out = judge.strays.due("stray", 1e12)
    assert left_out is not None
    assert left_out + sum(entry["count"] for entry in recorded) == MANY


def test_questions_about_what_never_came_are_kept_up_to_a_bound() -> None:
    recorded_ids: list[str] = []

    def record(reply: Any) -> Any:
        recorded_ids.append(reply.command_id)
        return reply

    journal = SimpleNamespace(find_command=lambda _: None, record_never_came=record)
    replies = ReplyOutbox(journal, lambda: None)  # type: ignore[arg-type]
    replies.answer(secrets.token_hex(16) for _ in range(MANY))
    assert 1 <= len(recorded_ids) <= UNKNOWN_AT_ONCE + 1
