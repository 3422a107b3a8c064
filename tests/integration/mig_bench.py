"""A node of the C fake whose board can be split by MIG; what the driver and its disk say of it."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from agent.actions.standalone import StandaloneNode
from agent.backends import NVML
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.apply import LimitApplier
from agent.limits.mig_layouts import present, profile_counts
from agent.limits.stores import MigLayoutStore
from agent.readings import MigBoard
from gpudeck.contract.actions import Reply
from gpudeck.contract.limits import Cordon, ManagedMigLayout, MigLayout
from gpudeck.contract.wire import GpuFacts
from tests.fakes.children import Children
from tests.fakes.nvml import FakeGpu, FakeNvml
from tests.integration.limits_bench import Bench, done

ACTIONS = ["cordon", "return_to_service", "set_mig_layout"]
WISH = "2x 2g.20gb + 1x 3g.40gb"


class MigBench(Bench):
    """A node of the C fake whose first board can be split. The driver's child is this process: its
    calls are the real ones, without a start of Python for each."""

    def __init__(self, folder: Path, children: Children) -> None:
        super().__init__(folder, children)
        self.nvml = FakeNvml(folder, gpus=1)
        self.board = self.nvml.gpus[0]
        self.gpu = self.board.uuid
        self.nvml.splittable(self.board)
        self.nvml.save()

    def instance(self, profile: int, start: int) -> FakeGpu:
        instance = self.nvml.instance(self.board, profile, start)
        self.nvml.save()
        return instance

    def act(self, layout: str = WISH) -> Reply:
        with self.node() as here:
            return done(here, MigLayout(self.gpu, layout))

    def cordon(self) -> None:
        with self.node() as here:
            assert done(here, Cordon(self.gpu), "split it").state == "done"

    def node(self) -> AbstractContextManager[StandaloneNode]:
        return self.opened(ACTIONS, [GpuFacts(self.gpu, 0, "H100", minor=200)])

    def driver(self) -> MigBoard:
        return LimitApplier(NVML, "", lambda _: "").mig(self.gpu)

    def there(self) -> dict[int, int]:
        board = self.driver()
        assert all(instance.is_complete for instance in board.instances)
        return dict(profile_counts(present(board)))

    def mode_and_layout(self) -> tuple[bool | None, dict[int, int] | None]:
        """Return the mode (None: it waits for a reset) and the layout (None: not all is whole)."""
        board = self.driver()
        is_whole = all(instance.is_complete for instance in board.instances)
        return (None if board.is_pending else board.is_on,
                dict(profile_counts(present(board))) if is_whole else None)

    def kept(self) -> ManagedMigLayout | None:
        disk = ActionStore(self.data / "acts.db")
        try:
            return MigLayoutStore(ActionJournal(disk)).of(self.gpu)
        finally:
            disk.close()

    def follow(self) -> ManagedMigLayout:
        """Reconcile as the agent does after its start, and return the layout that it reports."""
        with self.keeper(LimitApplier(NVML, "", lambda _: "")) as run:
            run.round()
            [layout] = run.said[-1].layouts
            return layout


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.limits import apply

    def do(self: LimitApplier, order: Any, is_in_window: bool = False) -> Any:
        return apply.obey(self._backend, self._options, order)

    monkeypatch.setattr(LimitApplier, "_do", do)
