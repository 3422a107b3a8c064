"""All Rules over the whole fleet, once a second."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .machine import Moves
from .minutes import Minutes, MinuteScene
from .rule import Of, Ready
from .watch import Scene, Watch


@dataclass(frozen=True, slots=True)
class Moved:
    watch: Watch
    moves: Moves
    at: float  # the moment that was looked at


class Evaluator:
    def __init__(self) -> None:
        self.watches: dict[str, Watch] = {}
        self._minutes: dict[Of, Minutes] = {}

    def set_rules(self, rules: Mapping[str, Ready]) -> list[str]:
        """A Rule that means what it meant goes on; any other begins anew. Which did."""
        begun = [rule_id for rule_id, ready in rules.items()
                 if rule_id not in self.watches
                 or self.watches[rule_id].ready.version != ready.version]
        watches = {}
        for rule_id, ready in rules.items():
            if rule_id in begun:
                watches[rule_id] = Watch(ready)
            else:
                watches[rule_id] = self.watches[rule_id]
                watches[rule_id].ready = ready
        self.watches = watches
        self._ask_for_minutes()
        return begun

    def begin_anew(self, rule_ids: Iterable[str]) -> list[str]:
        """All of them at rest, whatever was so."""
        known = [rule_id for rule_id in rule_ids if rule_id in self.watches]
        for rule_id in known:
            self.watches[rule_id] = Watch(self.watches[rule_id].ready)
        return known

    def _ask_for_minutes(self) -> None:
        wanted: dict[Of, frozenset[str]] = {}
        for watch in self.watches.values():
            if watch.ready.is_by_minutes:
                of = watch.ready.rule.of
                wanted[of] = wanted.get(of, frozenset()) | watch.names
        self._minutes = {
            of: kept if (kept := self._minutes.get(of)) and kept.names == names else Minutes(names)
            for of, names in wanted.items()}

    def step(self, scenes: Mapping[Of, Scene], now: float) -> Iterator[list[Moved]]:
        """Rule by Rule, so that others may have their turn in between."""
        closed = {of: minutes.take(scenes[of], now) for of, minutes in self._minutes.items()
                  if of in scenes}
        for watch in self.watches.values():
            scene = scenes.get(watch.ready.rule.of)
            if watch.ready.is_by_minutes:
                scene = closed.get(watch.ready.rule.of)
            if scene is not None:
                at = scene.ends_at if isinstance(scene, MinuteScene) else now
                yield [Moved(watch, moves, at) for moves in _stepped(watch, scene, at, now)]


def _stepped(watch: Watch, scene: Scene, at: float, now: float) -> list[Moves]:
    """One Rule that fails does not take the others with it, and says so."""
    try:
        return watch.step(scene, at, now)
    except Exception as error:
        watch.failed(error)
        return []
