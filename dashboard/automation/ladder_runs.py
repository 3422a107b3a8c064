"""The ladders that run, in memory and on the disk."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpudeck.ladder import LadderClimb

from .brake_limits import CountedAction
from .intents import ActionIntent
from .ladder_state import Place, SavedLadderClimb, place_of, restored, saved_state
from .store import AutomationStore, CannotStore

log = logging.getLogger("gpudeck.ladders")

SAVE_EVERY_S = 30.0
Key = tuple[str, str]  # cause and target


class LadderClock:
    """Reads like UTC and never steps."""

    def __init__(self, mono: Callable[[], float]) -> None:
        self.mono = mono
        self._base = time.time() - mono()

    def now(self) -> float:
        return self._base + self.mono()

    def utc(self, at: float) -> float:
        return at - self.now() + time.time()


@dataclass(slots=True)
class LadderRun:
    climb: LadderClimb
    intent: ActionIntent
    command_id: str | None = None  # of the current step
    counted: CountedAction | None = None  # given back if the step touched nothing
    recalled_mono: float | None = None  # of the last recall
    recall_reason: str = ""  # recall the current step even if its condition still holds
    is_dropped: bool = False  # ends with the current step


class LadderRuns:
    def __init__(self, store: AutomationStore, clock: LadderClock) -> None:
        self._store = store
        self._clock = clock
        self._runs: dict[Key, LadderRun] = {}
        self._before: dict[Place, SavedLadderClimb] = restored(store.climbs(), time.time())
        self.is_unsaved = False
        self._save_error = ""
        self._saved_mono = 0.0

    # -- queries

    def __iter__(self) -> Iterator[LadderRun]:
        """Over a copy: a run may be removed meanwhile."""
        return iter([*self._runs.values()])

    def find(self, key: Key) -> LadderRun | None:
        return self._runs.get(key)

    def by_alert(self) -> dict[str, LadderRun]:
        return {run.intent.alert_id: run for run in self}

    def of(self, source: str) -> dict[Key, LadderRun]:
        return {key: run for key, run in self._runs.items() if run.intent.source == source}

    # -- changes

    def add(self, run: LadderRun) -> None:
        self._runs[run.intent.key] = run

    def remove(self, run: LadderRun) -> None:
        if self._runs.get(run.intent.key) is run:
            del self._runs[run.intent.key]

    def drop(self) -> None:
        """Forget everything except steps in progress, whose outcome is still awaited."""
        self._before.clear()
        self.is_unsaved = True
        for run in self:
            if run.climb.state == "acting":
                run.is_dropped = True
            else:
                self.remove(run)

    # -- across a restart

    def take_saved(self, intent: ActionIntent) -> SavedLadderClimb | None:
        """Where this ladder was before the hub restarted."""
        return self._before.pop(place_of(intent), None)

    def forget_saved(self, source: str) -> None:
        """On the disk too: the next start must not take them for current."""
        current = {place: was for place, was in self._before.items() if was.source != source}
        self.is_unsaved = self.is_unsaved or len(current) < len(self._before)
        self._before = current

    def save_if_due(self) -> None:
        is_due = self._clock.mono() - self._saved_mono >= SAVE_EVERY_S
        if self.is_unsaved or (is_due and (self._runs or self._before)):
            self.save()

    def save(self) -> str:
        """Return why it failed, or ''."""
        self._saved_mono = self._clock.mono()
        try:
            self._store.put_climbs(saved_state(
                ((run.climb, run.intent, run.command_id) for run in self),
                self._before.values(), time.time()))
        except CannotStore as error:
            if str(error) != self._save_error:
                log.warning("climbs_not_kept why=%r", str(error))
            self.is_unsaved, self._save_error = True, str(error)
            return self._save_error
        self.is_unsaved, self._save_error = False, ""
        return ""
