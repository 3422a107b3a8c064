"""A hub that views other hubs: what it shows of them, and what it must never do."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.settings import hub_settings
from gpudeck.errors import CommandError
from tests.integration.hubs import HubProcess, RawSocket, wait_for
from tests.integration.viewed_sites import Site, viewing
from tests.integration.visitors import add_program


@pytest.fixture(name="sites")
def _sites(tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    # The same boards at both: what each site calls its own stays its own.
    sites = Site(tmp_path, "lyon", agent="same"), Site(tmp_path, "oslo", agent="same")
    yield sites
    for site in sites:
        site.close()


def gpus(hub: HubProcess, query: str = "") -> dict[str, dict[str, Any]]:
    return {gpu["uuid"]: gpu for gpu in hub.get(f"/api/v1/gpus?limit=1000{query}")["items"]}


def wait_for_gpus(hub: HubProcess, count: int) -> dict[str, dict[str, Any]]:
    def live() -> dict[str, dict[str, Any]] | None:
        by_uuid = gpus(hub)
        return by_uuid if len(by_uuid) == count and all(
            gpu["state"] == "ok" for gpu in by_uuid.values()) else None

    by_uuid: dict[str, dict[str, Any]] = wait_for(live, why="all GPUs live")
    return by_uuid


def test_all_sites_are_shown_and_one_that_is_away_hurts_no_other(
    tmp_path: Path, sites: tuple[Site, Site]
) -> None:
    lyon, oslo = sites
    with viewing(tmp_path, lyon, oslo) as hub:
        by_uuid = wait_for_gpus(hub, 4)
        assert {gpu["site"] for gpu in by_uuid.values()} == {"lyon", "oslo"}
        assert {"lyon:GPU-same-0", "oslo:GPU-same-0"} < by_uuid.keys()
        assert by_uuid["lyon:GPU-same-1"]["link"] == f"{lyon.hub.url}/?gpu=GPU-same-1"
        assert gpus(hub, "&filter=site:lyon").keys() == {"lyon:GPU-same-0", "lyon:GPU-same-1"}
        assert gpus(hub, "&filter=user:alice").keys() == {"lyon:GPU-same-1", "oslo:GPU-same-1"}
        assert gpus(hub, "&filter=state:free").keys() == {"lyon:GPU-same-0", "oslo:GPU-same-0"}

        lyon.hub.kill()
        wait_for(lambda: gpus(hub)["lyon:GPU-same-0"]["values"] == {}, why="lyon away")
        away = totals(hub)["sites"]
        assert [(site["name"], site["state"]) for site in away] == [
            ("lyon", "away"), ("oslo", "live")]
        assert time.time() - 60 < away[0]["since"] <= time.time()
        assert "util_pct" in gpus(hub)["lyon:GPU-same-0"]["missing"]
        assert totals(hub)["gpus"]["offline"] == 2
        assert {uuid for uuid, gpu in gpus(hub).items() if gpu["state"] == "ok"} == {
            "oslo:GPU-same-0", "oslo:GPU-same-1"}

        lyon.hub.start()
        lyon.connect()
        wait_for_gpus(hub, 4)
        assert {site["state"] for site in totals(hub)["sites"]} == {"live"}


def totals(hub: HubProcess) -> Any:
    viewer = RawSocket(hub, "/live", hub.api_token)
    viewer.emit("watch", {"metric": "util_pct", "filter": ""})
    message = viewer.event("totals")
    viewer.close()
    return message


def request_preview(hub: HubProcess, target: str, params: dict[str, Any], action: str) -> Any:
    return hub.ask("/api/v1/previews", "POST", body=json.dumps(
        {"action": action, "targets": [target], "params": params}).encode(),
        Content_Type="application/json")


def test_nothing_acts_on_what_is_only_viewed(tmp_path: Path) -> None:
    """Try as the viewing hub's admin, by its rules, and with a token that would have the right."""
    lyon = Site(tmp_path, "lyon")
    try:
        with viewing(tmp_path, lyon) as hub:
            wait_for_gpus(hub, 2)
            before = len(lyon.hub.get("/api/v1/audit?limit=200")["items"])
            task = next(iter(lyon.hub.get("/api/v1/tasks")["items"]))["id"]
            answer = request_preview(hub, "lyon:GPU-lyon-0", {"setting": {
                "type": "power_cap", "gpu_uuid": "lyon:GPU-lyon-0", "watts": 300, "lease_s": 600}},
                "set_power_cap")
            assert (answer.status, lyon.hub.url in answer.json["detail"]) == (409, True), answer
            for target, action in ((task, "end_gracefully"), (f"lyon:{task}", "pause")):
                assert request_preview(hub, target, {}, action).status in (400, 404)
            assert hub.get("/api/v1/commands")["items"] == []
            assert len(lyon.hub.get("/api/v1/audit?limit=200")["items"]) == before
            assert hub.get("/api/v1/alerts")["items"] == []
            # What the viewing hub exports and checks are its own GPUs: it has none.
            assert b"GPU-lyon" not in hub.ask("/metrics").body
    finally:
        lyon.close()


@pytest.mark.parametrize("role", ["user", "operator", "admin"])
def test_a_token_that_may_act_is_not_used(tmp_path: Path, role: str) -> None:
    lyon = Site(tmp_path, "lyon")
    try:
        lyon.token_file.write_text(add_program(lyon.hub, role))
        with viewing(tmp_path, lyon) as hub:
            away = wait_for(lambda: [site for site in hub.get("/api/v1/sites")["items"]
                                     if site["state"] == "away"], why="away")
            assert "only a viewer's is used" in away[0]["why"]
            assert gpus(hub) == {}
            lyon.token_file.write_text(add_program(lyon.hub))
            wait_for_gpus(hub, 2)  # the file is read again
    finally:
        lyon.close()


@pytest.mark.parametrize(("flags", "says"), [
    (("--view", "lyon=http://hub.example.org"), "plain http"),
    (("--view", "lyon=https://hub.example.org"), "needs a token"),
    (("--view", "lyon=https://hub.example.org", "--view-token-file", "lyon=/none"), "cannot read"),
    (("--view-token-file", "lyon=/none"), "there is no --view"),
    (("--view", "https://hub.example.org"), "NAME=https://HUB is needed"),
    (("--view", "here=https://hub.example.org", "--view-token-file", "here=/none"),
     "another name"),
    (("--view", "a=https://b.example", "--view", "a=https://c.example"), "twice")])
def test_settings_that_cannot_be(flags: tuple[str, ...], says: str) -> None:
    with pytest.raises(CommandError, match=re.escape(says)):
        hub_settings(("--cluster", "here", *flags), {})


def test_settings_of_all_sources(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("token")
    files = [f"{name}={tmp_path / name}" for name in ("a", "b")]
    pairs = (("a", "https://a.example"), ("b", "https://b.example:8443"))
    urls = ["a=https://a.example", "b=https://b.example:8443"]
    toml = tmp_path / "gpudeck.toml"
    toml.write_text(f"[hub]\nview = {json.dumps(urls)}\nview_token_file = {json.dumps(files)}\n")
    for argv, env in (
        (("--view", urls[0], "--view", urls[1], "--view-token-file", ",".join(files)), {}),
        ((), {"GPUDECK_VIEW": ",".join(urls), "GPUDECK_VIEW_TOKEN_FILE": ",".join(files)}),
        (("--config", str(toml)), {}),
    ):
        assert hub_settings(argv, env).view == pairs
