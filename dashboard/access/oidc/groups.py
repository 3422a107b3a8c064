"""Groups that the provider gave each user at the last sign-in, by which teams are formed."""

from collections.abc import Callable, Container, Iterable, Mapping

from ..store import OidcStore


class ProviderGroups:
    """Held in memory, because teams are asked for each second."""

    def __init__(self, store: OidcStore, users: Callable[[], Container[str]]) -> None:
        """Load them. `users`: those of the hub; who was removed is in no group."""
        self._store, self._users = store, users
        self._groups = store.groups()

    def of_users(self) -> Mapping[str, tuple[str, ...]]:
        users = self._users()
        return {name: groups for name, groups in self._groups.items() if name in users}

    def put(self, name: str, groups: Iterable[str]) -> None:
        names = tuple(groups)
        if names != self._groups.get(name, ()):
            self._store.put_groups(name, names)
            self._groups[name] = names
