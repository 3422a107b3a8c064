"""Two sites in one map: grouped, filtered, one killed and back, and the way to who can act."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.integration.hubs import HubProcess
from tests.integration.viewed_sites import Site, viewing
from tests.integration.visitors import add_person

from .full_agents import _open_page as _open_page

pytestmark = pytest.mark.browser


@pytest.fixture(name="sites", scope="module")
def _sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Site]]:
    folder = tmp_path_factory.mktemp("sites")
    pair = Site(folder, "lyon", agent="same"), Site(folder, "oslo", agent="same")
    yield pair
    for site in pair:
        site.close()


@pytest.fixture(name="hub", scope="module")
def _hub(sites: tuple[Site, Site], tmp_path_factory: pytest.TempPathFactory
         ) -> Iterator[HubProcess]:
    with viewing(tmp_path_factory.mktemp("hub"), *sites) as hub:
        add_person(hub, "root", "admin")
        yield hub


def cell(page: Page, uuid: str, field: str) -> object:
    return page.evaluate("([uuid, field]) => gpudeck.cell(uuid)?.[field]", [uuid, field])


def until(page: Page, uuid: str, state: str) -> None:
    page.wait_for_function("([uuid, state]) => gpudeck.cell(uuid)?.state === state",
                           arg=[uuid, state])


def test_two_sites_one_away_and_back(
        sites: tuple[Site, Site], open_page: Callable[..., Page]) -> None:
    lyon, _ = sites
    page = open_page("/?group=site")
    for name in ("lyon", "oslo"):
        for at in range(2):
            until(page, f"{name}:GPU-same-{at}", "ok")
    line = page.locator("#sites li")
    expect(line).to_have_count(2)
    expect(line.first).to_contain_text("1 node, 2 GPUs")
    assert line.first.locator("a").get_attribute("href") == lyon.hub.url

    line.first.get_by_role("button", name="lyon").click()
    expect(page.locator("#filter-words")).to_have_text("2 of 4 match")
    page.locator("#filter").fill("")

    lyon.hub.kill()
    until(page, "lyon:GPU-same-0", "offline")
    expect(line.first).to_contain_text("away since")
    assert cell(page, "lyon:GPU-same-0", "level") is None
    assert cell(page, "oslo:GPU-same-0", "state") == "ok"
    lyon.hub.start()
    lyon.connect()
    until(page, "lyon:GPU-same-0", "ok")
    expect(line.first).to_contain_text("1 node, 2 GPUs")


def test_a_gpu_of_a_site_leads_to_its_owner(sites: tuple[Site, Site],
                                            open_page: Callable[..., Page]) -> None:
    lyon, _ = sites
    page = open_page("/?gpu=lyon:GPU-same-1")
    drawer = page.locator("#drawer-body")
    way = drawer.get_by_role("link", name="Open at lyon")
    expect(way).to_have_attribute("href", f"{lyon.hub.url}/?gpu=GPU-same-1")
    expect(page.locator("#drawer-lines")).to_have_attribute(
        "href", f"{lyon.hub.url}/gpu/GPU-same-1")
    # Nothing there acts: no panel of limits or service, and no way to stop actions.
    expect(drawer.get_by_role("heading", name="Service")).to_have_count(0)


def test_alerts_of_sites_are_listed_with_the_way(open_page: Callable[..., Page]) -> None:
    page = open_page("/alerts")
    expect(page.locator("#alerts-sites-title")).to_be_visible()
