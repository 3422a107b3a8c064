"""Groups of the provider: whose they are, and for how long."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.access.oidc.claims import GROUP_CHARS, OidcSettings, grants, identity
from dashboard.access.oidc.groups import ProviderGroups
from dashboard.access.policy import Role, Scope
from dashboard.access.store import AccountsStore, OidcStore, User
from dashboard.state import HubState

ALICE = User("alice", Role.USER, Scope(), None, 1.0)
SETTINGS = OidcSettings("https://id.example.org", "deck", "secret", grants("staff=user"))


class AccessScene:
    def __init__(self, state: HubState) -> None:
        self.accounts, self.store = state.store(AccountsStore), state.store(OidcStore)
        self.groups = self.started()

    def started(self) -> ProviderGroups:
        """Return those of a hub that has started again."""
        return ProviderGroups(self.store, lambda: {
            user.name: user for user in self.accounts.users()})

    def of_users(self) -> list[dict[str, tuple[str, ...]]]:
        """Return the groups now, and after a start."""
        return [dict(groups.of_users()) for groups in (self.groups, self.started())]


@pytest.fixture(name="scene")
def _scene(tmp_path: Path) -> Iterator[AccessScene]:
    with closing(HubState.open(tmp_path)) as state:
        yield AccessScene(state)


def test_who_is_removed_and_added_again_is_another(scene: AccessScene) -> None:
    scene.accounts.add_user(ALICE)
    scene.groups.put("alice", ["physics"])
    assert scene.of_users() == [{"alice": ("physics",)}] * 2
    scene.accounts.remove_user("alice")
    assert scene.of_users() == [{}, {}]
    scene.accounts.add_user(replace(ALICE, created_at=2.0))
    assert scene.of_users() == [{}, {}]
    scene.groups.put("alice", ["physics"])  # stored again, although they are the same
    assert scene.of_users() == [{"alice": ("physics",)}] * 2
    scene.groups.put("alice", [])
    assert [groups.get("alice", ()) for groups in scene.of_users()] == [(), ()]


def test_who_is_removed_while_signing_in_leaves_no_groups(scene: AccessScene) -> None:
    scene.store.put_groups("alice", ["physics"])
    scene.accounts.add_user(ALICE)
    assert scene.started().of_users() == {}


def test_a_name_that_is_too_long_is_no_other_group() -> None:
    longest = "g" * GROUP_CHARS
    person = identity({"iss": "i", "sub": "s", "preferred_username": "alice", "groups": [
        "staff", f"{longest}x", longest[1:], "bad\ud800"]}, SETTINGS)
    assert person.memberships == (longest[1:], "staff")
