"""Source of what `top` shows of this machine, read from its driver."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from gpudeck.errors import CommandError
from gpudeck.words.actions import many

from ..actions.hold_files import driver_order, hold_files, holds, hub_holds
from ..backends import backend_named
from ..cli.available_here import with_availability
from ..cli.local_reading import OTHERS_WITHIN_S
from ..reader.watchdog import ThreadedReaderProcess
from ..readings import ProcessReading, Reading, with_slow
from ..settings import ConnectionSettings, this_host
from ..telemetry import status_table as show
from .idle_watch import IdleWatch
from .model import Item, TopModel, gpu_rows, job_key, job_rows
from .sources import PoolPoller, TopSource, host_words, leases_of, models_of, queue_of

if TYPE_CHECKING:
    from ..cli.actions import ActionTarget
    from ..tasks.task_table import TaskTable


class LocalSource(TopSource):
    """Source that reads as `gpudeck status` and `gpudeck tasks` do."""

    def __init__(self, reach: ConnectionSettings) -> None:
        super().__init__(reach, this_host())
        self._backend = backend_named(reach.backend)
        self._source = ThreadedReaderProcess(
            self._backend.name, reach.simulate, partial(driver_order, reach.data), self._news.set,
            begin_within_s=OTHERS_WITHIN_S)
        self._before: Reading | None = None
        self._processes: tuple[ProcessReading, ...] = ()
        self._table: TaskTable | None = None
        self._unseen = ""
        self._pool = PoolPoller()
        self._idle = IdleWatch()

    def close(self) -> None:
        super().close()
        self._source.close()

    @contextmanager
    def target(self) -> "Iterator[ActionTarget]":
        from ..actions.standalone import StandaloneNode
        from ..cli.local_target import LocalTarget
        from ..tasks.terminals import who_is_here

        reach = self.reach
        with StandaloneNode(reach.data, reach.backend, reach.simulate, reach.ceiling,
                            source=self._source,
                            facts=() if self._before is None else self._before.facts) as local:
            yield LocalTarget(local, this_host(), who_is_here())

    def wait(self) -> None:
        self._news.wait(1.0)
        self._news.clear()

    def read_model(self) -> TopModel | None:
        if (reading := self._source.latest()) is not None:
            self._before = with_slow(reading, self._before)
            if reading.processes is not None:
                self._processes = reading.processes
        elif self._source.state not in ("starting", "ok"):
            raise CommandError(self._source.detail or self._source.state)
        if self._before is None:
            return None
        return self._model(self._before)

    def _model(self, reading: Reading) -> TopModel:
        host = this_host()
        tasks = self._tasks(host)
        pool = self._pool.newest()
        gpus = with_availability(show.gpu_items(reading, host), reading, self._processes, pool)
        gpus = self._idle.with_waste(gpus, tasks, time.monotonic())
        rows = gpu_rows(gpus, tasks, leases_of(pool))
        jobs = job_rows(tasks, rows)
        if self._filter or self._is_mine:
            from .local_filter import matching

            uuids, tasks = matching(gpus, tasks, self._filter)
            if self._is_mine:
                tasks = [task for task in tasks if task["owner"].get("uid") == os.getuid()]
                uuids &= {use["uuid"] for task in tasks for use in task["gpus"]}
            rows = tuple(row for row in rows if row.uuid in uuids)
            keys = {job_key(task) for task in tasks}
            jobs = tuple(job for job in jobs if job.key in keys)
        hold_words = "; ".join((*hub_holds(), *holds(hold_files(self.reach.data))))
        notes = [f"STOPPED, no actions here: {hold_words}"] if hold_words else []
        notes += [note for note in (self._unseen, reading.detail) if note]
        return TopModel(
            f"{host}  " + many(len(gpus), "GPU"), False, rows, jobs, queue_of(pool),
            models_of(gpus), host_words(), tuple(notes), "", reading.taken_at)

    def _tasks(self, host: str) -> list[Item]:
        if self._table is None:
            # Loaded after the first reading was requested: that is under way meanwhile.
            from ..actions.ceiling import foreign_pids
            from ..limits.mps import LocalMpsDaemons
            from ..limits.suspensions import suspended_here
            from ..tasks.boot_id import boot_id
            from ..tasks.name_cache import WorkloadNameCache
            from ..tasks.task_table import TaskTable

            self._unseen = foreign_pids(self._backend, self.reach.ceiling)
            self._table = TaskTable(boot_id(), names=WorkloadNameCache(),
                                    clients=LocalMpsDaemons().clients,
                                    suspended=lambda: suspended_here(self.reach.data))
        return [] if self._unseen else show.task_items(self._table.describe(self._processes), host)
