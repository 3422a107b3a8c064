"""Rights to see a quota: sums of others only for those who see all of them."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpudeck.client.hub import Client
from gpudeck.errors import CommandError
from tests.integration.hubs import HubProcess, WireAgent, one_task, wait_for


class Site:
    """A fleet with alice on a node and bob on one of another group, each over the quota of all."""

    def __init__(self, hub: HubProcess) -> None:
        self.hub = hub
        self.client = Client(hub.url, hub.api_token)
        self.agents = {user: WireAgent(f"{user}s") for user in ("alice", "bob")}
        for at, (user, agent) in enumerate(self.agents.items()):
            agent.connect(hub)
            agent.tick(one_task(f"boot-{at}:100:5", user))
        wait_for(lambda: len(self.client.nodes()) == 2)
        self.node = {user: agent.node_id for user, agent in self.agents.items()}
        self.client.hub.ask_for("PATCH", f"nodes/{self.node['alice']}", {"group": "hers"})
        self.client.put_quota("all", {"subject": "*", "gpus": 0})
        self.client.put_quota("sum", {"subject": "*", "gpus": 1, "count": "together"})

    def tick(self) -> None:
        for agent in self.agents.values():
            agent.tick()

    def as_one(self, role: str, groups: list[str], *names: str) -> Client:
        token = self.client.hub.ask_for("POST", "tokens", {
            "name": "-".join(("t", *names)), "role": role, "groups": groups,
            "unix_names": [*names], "expires_at": time.time() + 600})
        return Client(self.hub.url, token["token"])


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with HubProcess(tmp_path_factory.mktemp("rights") / "hub") as hub:
        site = Site(hub)

        def is_summed_up() -> bool:
            site.tick()
            return {*holders(site.client)} == {"alice", "bob", "everyone together"}

        wait_for(is_summed_up, why="sums")
        yield site


def holders(client: Client) -> list[str]:
    return [balance["holder"] for quota in client.quotas() for balance in quota["balances"]]


def here(client: Client, node_id: str) -> list[str]:
    items = client.hub.ask_for("GET", f"nodes/{node_id}/quotas")["items"]
    return [holder["holder"] for item in items for holder in item["holders"]]


def past(client: Client, holder: str) -> dict[str, Any]:
    return client.hub.ask_for("GET", f"quotas/all/past?holder={holder}&limit=gpus&last=3h")


def test_who_sees_a_part_is_told_of_themselves_alone(site: Site) -> None:
    alice = site.as_one("user", ["hers"], "alice")
    assert holders(alice) == ["alice"]
    assert here(alice, site.node["alice"]) == ["alice"]
    assert [(row["quota"], row["holder"], row["used"]) for row in alice.quotas_of("alice")] == [
        ("all", "alice", 1.0)]
    assert alice.quotas_of("bob") == []
    assert past(alice, "alice")["why"] == ""
    for request in (lambda: past(alice, "bob"), lambda: here(alice, site.node["bob"])):
        with pytest.raises(CommandError, match=r"is seen here|no node"):
            request()
    text = site.hub.ask("/metrics", token=alice.hub._token).body.decode()
    assert 'holder="alice"' in text
    assert "bob" not in text
    assert "everyone together" not in text
    nobody = site.as_one("viewer", ["hers"])
    assert (holders(nobody), here(nobody, site.node["alice"]), nobody.quotas_of("alice")) == (
        [], [], [])


def test_who_sees_all_is_told_of_all(site: Site) -> None:
    assert sorted(here(site.client, site.node["bob"])) == ["bob", "everyone together"]
    balances = {balance["quota"]: balance for balance in site.client.quotas_of("bob")}
    assert {name: (balance["used"], balance["is_over"]) for name, balance in balances.items()} == {
        "all": (1.0, True), "sum": (2.0, True)}
    assert site.client.hub.ask_for("GET", "nodes/" + site.node["bob"] + "/quotas?gpu="
                             + site.agents["bob"].facts[1].uuid)["items"][0]["holders"] == []
    with pytest.raises(CommandError, match="no GPU"):
        site.client.hub.ask_for("GET", f"nodes/{site.node['bob']}/quotas?gpu=GPU-none")


@pytest.mark.parametrize("query", [
    "", "holder=alice", "limit=gpus", "holder=alice&limit=cakes", "holder=alice&limit=gpus&last=1y",
    "holder=alice&limit=gpus&since=0"])
def test_what_is_asked_wrong_is_said(site: Site, query: str) -> None:
    with pytest.raises(CommandError, match="holder and limit are needed"):
        site.client.hub.ask_for("GET", f"quotas/all/past?{query}")
    site.client.put_quota("off", {"subject": "user:alice", "scope": "node:gone", "gpus": 1})
    path = "quotas/off/past?holder=alice&limit=gpus"
    assert set(site.client.hub.ask_for("GET", path)["used"]) == {None}
    with pytest.raises(CommandError, match="is seen here"):
        site.client.hub.ask_for("GET", "quotas/off/past?holder=bob&limit=gpus")
    with pytest.raises(CommandError, match="does not limit mem_bytes"):
        site.client.hub.ask_for("GET", "quotas/all/past?holder=alice&limit=mem_bytes")


def test_the_preview_counts_hours_of_what_is_seen(site: Site) -> None:
    """Check a quota that nobody has set: its hours have to be counted for it."""
    draft = {"id": "new", "subject": "*", "gpu_hours": 0}

    def over(client: Client) -> set[str]:
        site.tick()
        return {balance["holder"] for balance in client.check_quota(draft)["over"]}

    wait_for(lambda: over(site.client) == {"alice", "bob"}, why="hours")
    assert over(site.as_one("operator", ["hers"], "ops")) == {"alice"}


def test_nothing_is_written_over_that_somebody_else_has_written(site: Site) -> None:
    quota = site.client.put_quota("mine", {"subject": "user:carol", "gpus": 4})

    def put(gpus: int, **headers: str) -> Any:
        return site.hub.ask("/api/v1/quotas/mine", "PUT", body=json.dumps(
            {"subject": "user:carol", "gpus": gpus}).encode(), Content_Type="application/json",
            **headers)

    clash = put(1, If_None_Match="*")
    assert (clash.status, "there is a quota 'mine' already" in clash.json["detail"]) == (412, True)
    assert put(3, If_Match=f'"{quota["generation"]}"').status == 200
    stale = put(2, If_Match=f'"{quota["generation"]}"')
    assert stale.status == 412
    assert "changed in the meantime" in stale.json["detail"]
    assert site.client.quota("mine")["quota"]["gpus"] == 3  # type: ignore[index]
    assert put(5).status == 200, "who names no version changes what there is"
    site.client.remove_quota("mine")
    late = put(6, If_Match=f'"{quota["generation"]}"')
    assert (late.status, "was removed in the meantime" in late.json["detail"]) == (412, True)
    assert put(6, If_None_Match="*").status == 200
    site.client.remove_quota("mine")


def test_who_limits_the_same_twice_reads_so_before_it_is_set(site: Site) -> None:
    """Warn before: else the preview says that nobody is over, because the other quota counts."""
    check = site.client.check_quota({"id": "again", "subject": "*", "gpus": 0})
    [problem] = check["problems"]
    assert problem["message"].startswith("all limits the same")
    assert site.client.check_quota({"id": "all", "subject": "*", "gpus": 0})["problems"] == []


@pytest.mark.parametrize(("field", "value", "says"), [
    ("gpus", "two", "gpus: a whole number"), ("mode", "kill", "mode: observe, warn or act"),
    ("priority", 9, "priority: a whole number, 0 to 4"), ("ladder", "tell", "ladder: 1 to 8 steps"),
    ("gpu", 4, "gpu: there is no such field"), ("id", "other", "id: is given by the URL")])
def test_what_is_wrong_in_a_request_is_said_as_the_page_says_it(
    site: Site, field: str, value: Any, says: str
) -> None:
    with pytest.raises(CommandError, match=f"{says}.*scope: 'moon' is not part"):
        site.client.put_quota("odd", {"subject": "*", "scope": "moon", field: value})


@pytest.mark.parametrize(("scope", "nodes"), [
    ("fleet", 2), ("node:{alice}", 1), ("node:nobodys", 0), ("gpu:GPU-none", 0)])
def test_a_scope_that_names_nothing_is_told_of(site: Site, scope: str, nodes: int) -> None:
    check = site.client.check_quota({"id": "x", "subject": "group:lab", "gpus": 1,
                                     "scope": scope.format(**site.node)})
    assert (check["problems"], check["nodes"]) == ([], nodes)
