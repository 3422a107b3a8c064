"""Work that the pool has suspended is restored once its lease has its GPUs again: once at a time,
and again until it is."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.actions.lifecycle import CommandRecord
from dashboard.automation.suspension_returns import AGAIN_AFTER_S, SuspensionReturns
from dashboard.pool.plan import PoolNode
from gpudeck.contract.actions import Refusal
from gpudeck.contract.pool_link import PoolReport, ReportedLease
from tests.unit.gpudeck.pool.inventories import claim


@dataclass
class Dispatcher:
    """Orders that are noted. `refusal`: why a node refuses its preview."""

    refusal: Refusal | None = None
    busy: set[str] = field(default_factory=set)
    orders: list[CommandRecord] = field(default_factory=list)

    def preview(self, node_id: str, task_id: str, action: str, params: object) -> Any:
        refusals = () if self.refusal is None else (self.refusal,)
        victim = SimpleNamespace(task_id=task_id, command="python train.py", held=())
        return SimpleNamespace(refusals=refusals, victims=(victim,), job_id="j", owner="ann",
                               bystanders=())

    def order(self, record: CommandRecord, preview: object, condition: Any, detail: Any
              ) -> CommandRecord:
        assert condition.bounds == ()
        self.orders.append(record)
        return record

    def busy_nodes(self) -> set[str]:
        return set(self.busy)


def returns(dispatcher: Dispatcher, state: str = "restoring",
            suspended: tuple[str, ...] = ("t1",)) -> SuspensionReturns:
    lease = ReportedLease(claim(1, owner="ann"), ("GPU-0",), state, 0.0, 9e4, 0.0, ("t1", "t2"))
    pool: Any = SimpleNamespace(nodes=[PoolNode("n1", "host", PoolReport((), (), (lease,)))])
    fleet: Any = SimpleNamespace(nodes={"n1": SimpleNamespace(suspended=suspended)})
    return SuspensionReturns(pool, fleet, dispatcher)  # type: ignore[arg-type]


def test_it_is_ordered_once_in_the_name_of_what_suspended_it() -> None:
    dispatcher = Dispatcher()
    service = returns(dispatcher)
    for mono in (0.0, 2.0, 4.0):
        service.step(1_000.0, mono)
    [record] = dispatcher.orders
    assert (record.action, record.task_id, record.node_id) == ("restore", "t1", "n1")
    assert (record.asker.kind, record.asker.name) == ("rule", "pre-emption of c1")
    service.step(1_000.0, AGAIN_AFTER_S + 1.0)
    assert len(dispatcher.orders) == 2, "it is suspended still"


@pytest.mark.parametrize(("state", "suspended", "busy"), [
    ("active", ("t1",), ()), ("restoring", (), ()), ("restoring", ("other",), ()),
    ("restoring", ("t1",), ("n1",))])
def test_nothing_is_ordered(state: str, suspended: tuple[str, ...], busy: tuple[str, ...]) -> None:
    dispatcher = Dispatcher(busy={*busy})
    returns(dispatcher, state, suspended).step(1_000.0, 0.0)
    assert dispatcher.orders == []


def test_what_its_node_refuses_is_tried_again() -> None:
    dispatcher = Dispatcher(Refusal("hold", "all actions on this node are stopped"))
    service = returns(dispatcher)
    service.step(1_000.0, 0.0)
    assert dispatcher.orders == []
    dispatcher.refusal = None
    service.step(1_000.0, AGAIN_AFTER_S - 1.0)
    assert dispatcher.orders == []
    service.step(1_000.0, AGAIN_AFTER_S + 1.0)
    assert len(dispatcher.orders) == 1
