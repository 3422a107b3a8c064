"""Whom the hub tells how much of a quota: sums of others only whoever sees all of them."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpudeck.client import Client
from gpudeck.errors import CommandError
from tests.integration.hubs import HubProcess, WireAgent, one_task, wait_for


class Site:
    """alice on one node, bob on another in another group, each over the one quota of all."""

    def __init__(self, hub: HubProcess) -> None:
        self.hub = hub
        self.client = Client(hub.url, hub.api_token)
        self.agents = {user: WireAgent(f"{user}s") for user in ("alice", "bob")}
        for at, (user, agent) in enumerate(self.agents.items()):
            agent.connect(hub)
            agent.tick(one_task(f"boot-{at}:100:5", user))
        wait_for(lambda: len(self.client.nodes()) == 2)
        self.node = {user: agent.node_id for user, agent in self.agents.items()}
        self.client._told("PATCH", f"nodes/{self.node['alice']}", {"group": "hers"})
        self.client.put_quota("all", {"subject": "*", "gpus": 0})
        self.client.put_quota("sum", {"subject": "*", "gpus": 1, "count": "together"})

    def tick(self) -> None:
        for agent in self.agents.values():
            agent.tick()

    def as_one(self, role: str, groups: list[str], *names: str) -> Client:
        made = self.client._told("POST", "tokens", {
            "name": "-".join(("t", *names)), "role": role, "groups": groups,
            "unix_names": [*names], "expires_at": time.time() + 600})
        return Client(self.hub.url, made["secret"])


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with HubProcess(tmp_path_factory.mktemp("rights") / "hub") as hub:
        site = Site(hub)

        def is_summed_up() -> bool:
            site.tick()
            return {*holders(site.client)} == {"alice", "bob", "everyone together"}

        wait_for(is_summed_up, 10, "sums")
        yield site


def holders(client: Client) -> list[str]:
    return [each["holder"] for quota in client.quotas() for each in quota["balances"]]


def here(client: Client, node_id: str) -> list[str]:
    items = client._told("GET", f"nodes/{node_id}/quotas")["items"]
    return [each["holder"] for item in items for each in item["holders"]]


def past(client: Client, holder: str) -> dict[str, Any]:
    return client._told("GET", f"quotas/all/past?holder={holder}&limit=gpus&last=3h")


def test_who_sees_a_part_is_told_of_themselves_alone(site: Site) -> None:
    alice = site.as_one("user", ["hers"], "alice")
    assert holders(alice) == ["alice"]
    assert here(alice, site.node["alice"]) == ["alice"]
    assert [(each["quota"], each["holder"], each["used"]) for each in alice.quotas_of("alice")] == [
        ("all", "alice", 1.0)]
    assert alice.quotas_of("bob") == []
    assert past(alice, "alice")["why"] == ""
    for refused in (lambda: past(alice, "bob"), lambda: here(alice, site.node["bob"])):
        with pytest.raises(CommandError, match=r"is seen here|no node"):
            refused()
    text = site.hub.ask("/metrics", token=alice._token).body.decode()
    assert 'holder="alice"' in text
    assert "bob" not in text
    assert "everyone together" not in text
    nobody = site.as_one("viewer", ["hers"])
    assert (holders(nobody), here(nobody, site.node["alice"]), nobody.quotas_of("alice")) == (
        [], [], [])


def test_who_sees_all_is_told_of_all(site: Site) -> None:
    assert sorted(here(site.client, site.node["bob"])) == ["bob", "everyone together"]
    found = {each["quota"]: each for each in site.client.quotas_of("bob")}
    assert {name: (each["used"], each["is_over"]) for name, each in found.items()} == {
        "all": (1.0, True), "sum": (2.0, True)}
    assert site.client._told("GET", "nodes/" + site.node["bob"] + "/quotas?gpu="
                             + site.agents["bob"].facts[1].uuid)["items"][0]["holders"] == []
    with pytest.raises(CommandError, match="no Gpu"):
        site.client._told("GET", f"nodes/{site.node['bob']}/quotas?gpu=GPU-none")


@pytest.mark.parametrize("query", [
    "", "holder=alice", "limit=gpus", "holder=alice&limit=cakes", "holder=alice&limit=gpus&last=1y",
    "holder=alice&limit=gpus&since=0"])
def test_what_is_asked_wrong_is_said(site: Site, query: str) -> None:
    with pytest.raises(CommandError, match="holder and limit are needed"):
        site.client._told("GET", f"quotas/all/past?{query}")
    site.client.put_quota("off", {"subject": "user:alice", "scope": "node:gone", "gpus": 1})
    assert set(site.client._told("GET", "quotas/off/past?holder=alice&limit=gpus")["used"]) == {
        None}
    with pytest.raises(CommandError, match="is seen here"):
        site.client._told("GET", "quotas/off/past?holder=bob&limit=gpus")
    with pytest.raises(CommandError, match="does not limit mem_bytes"):
        site.client._told("GET", "quotas/all/past?holder=alice&limit=mem_bytes")


def test_the_preview_counts_hours_of_what_is_seen(site: Site) -> None:
    """Of a quota that nobody has set: its hours have to be counted for it."""
    draft = {"id": "new", "subject": "*", "gpu_hours": 0}

    def over(client: Client) -> set[str]:
        site.tick()
        return {each["holder"] for each in client.check_quota(draft)["over"]}

    wait_for(lambda: over(site.client) == {"alice", "bob"}, 20, "hours")
    assert over(site.as_one("operator", ["hers"], "ops")) == {"alice"}
