"""All that rules and quotas want done now."""

from collections.abc import Callable, Iterable

from .intents import ActionIntent

Source = Callable[[], Iterable[ActionIntent]]


class IntentSources:
    """A source that raises fails the whole reading: then nothing acts."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._sources = tuple(sources)
        self.newest: dict[tuple[str, str], ActionIntent] = {}

    def read(self) -> dict[tuple[str, str], ActionIntent]:
        self.newest = {intent.key: intent for source in self._sources for intent in source()}
        return self.newest
