"""Warnings of quotas without a hub, on a disk that refuses."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.journal.facts import Fact
from agent.journal.store import ActionJournal, ActionStore, JournalError
from agent.quotas.service import QuotaSample, QuotaService
from agent.tasks.seen import GpuTask
from gpudeck.contract.desired_state import SignedDesired, desired_statement, encode_desired
from gpudeck.contract.ladder import AGAIN_AFTER_S, LadderRung
from gpudeck.contract.wire import Task
from gpudeck.network.keys import SigningKey, fingerprint
from tests.patience import GIVE_UP_S

from .test_evaluate import desired, quota

KEY = SigningKey(b"k" * 32)
TASK = GpuTask(Task("t", 1, 1, 1.0, "alice", None, job_id="t"), "G0", 1.0, None, None)


class FullDisk(ActionJournal):
    is_full = False

    def keep(self, fact: Fact, *rest: Any, **name: Any) -> None:
        if self.is_full:
            raise JournalError("the disk is full")
        super().keep(fact, *rest, **name)


class BusyNode:
    """Node whose owners cannot be notified now. `notified`: how often that was tried."""

    def __init__(self, folder: Path) -> None:
        self.store = ActionStore(folder / "acts.db", durable=False)
        self.journal = FullDisk(self.store)
        self.notified = 0
        self.context = SimpleNamespace(
            node=SimpleNamespace(node_id="n", boot_id="boot"),
            guards=SimpleNamespace(
                ceiling=lambda: SimpleNamespace(trouble="", actions={"notify"}),
                holds=lambda: (), why_rules_end_nothing=lambda: ""))
        self.woken = threading.Event()
        self.service = QuotaService(
            self, fingerprint(KEY.public), "host", True,  # type: ignore[arg-type]
            self.woken.set, lambda: (), False, cut_off_after_s=0.0)
        self.began_at = time.monotonic()

    def notify(self, task_id: str, asker: str, reason: str) -> tuple[str, str]:
        self.notified += 1
        return "put_off", "another action was in progress on this node"

    def take(self, message: SignedDesired) -> None:
        self.service.set_hub_key(KEY.public)
        self.service.receive(message)
        assert self.woken.wait(GIVE_UP_S)

    def step(self, after_s: float, is_notified: bool = False) -> None:
        now = self.began_at + after_s
        self.woken.clear()
        self.service.step(now, QuotaSample((TASK,), now), False, None, ())
        if is_notified:
            assert self.woken.wait(GIVE_UP_S)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BusyNode]:
    node = BusyNode(tmp_path)
    yield node
    node.service.close()
    node.store.close()


def test_what_was_put_off_is_not_lost_while_the_disk_refuses(node: BusyNode) -> None:
    body = encode_desired(desired(quota(ladder=(LadderRung("tell"), LadderRung("end", 60.0)))))
    node.take(SignedDesired(body, KEY.sign(desired_statement(body))))
    node.step(1.0, is_notified=True)
    node.journal.is_full = True
    node.step(3.0)
    node.journal.is_full = False
    node.step(5.0)
    assert node.notified == 1
    node.step(6.0 + AGAIN_AFTER_S, is_notified=True)
    assert node.notified == 2
