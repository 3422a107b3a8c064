"""Groups that the provider gave each user at the last sign-in, by which teams are formed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..store import OidcStore, User


@dataclass(frozen=True, slots=True)
class UserGroups:
    created_at: float  # of the user: one who was removed and added again is another
    names: tuple[str, ...]


class ProviderGroups:
    """Held in memory, because teams are asked for each second."""

    def __init__(self, store: OidcStore, users: Callable[[], Mapping[str, User]]) -> None:
        """Load them. `users`: those of the hub; who was removed is in no group."""
        self._store, self._users = store, users
        there = users()
        self._groups = {name: UserGroups(there[name].created_at, groups)
                        for name, groups in store.groups().items() if name in there}

    def of_users(self) -> Mapping[str, tuple[str, ...]]:
        users = self._users()
        return {name: groups.names for name, groups in self._groups.items()
                if name in users and users[name].created_at == groups.created_at}

    def put(self, name: str, groups: Iterable[str]) -> None:
        user = self._users().get(name)
        if user is None:
            return
        put = UserGroups(user.created_at, tuple(groups))
        if put != self._groups.get(name):
            self._store.put_groups(name, put.names)
            self._groups[name] = put
