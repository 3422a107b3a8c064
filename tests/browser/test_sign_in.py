"""Coming in through the page, in a real browser: what it sends along is not what a test would."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.fakes.oidc import SiteProvider
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.visitors import PASSWORD, add_person, link_for

pytestmark = pytest.mark.browser


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "data") as hub:
        yield hub


def open_page(browser: Browser, url: str, width: int = 1_200) -> Page:
    page = browser.new_context(viewport={"width": width, "height": 760}).new_page()
    page.goto(url)
    return page


def is_in(page: Page, hub: HubProcess) -> bool:
    page.wait_for_url(f"{hub.url}/")
    return page.request.get(f"{hub.url}/api/v1/me").status == 200


def test_the_first_admin_on_a_phone(browser: Browser, hub: HubProcess) -> None:
    page = open_page(browser, hub.sign_in_url, width=360)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for repeated in (PASSWORD + "x", PASSWORD):
        page.get_by_label("Name").fill("alice")
        page.get_by_label("Password", exact=True).fill(PASSWORD)
        page.get_by_label("Repeat the password").fill(repeated)
        page.get_by_role("button").click()
        if repeated != PASSWORD:
            assert page.get_by_role("alert").inner_text() == "The passwords do not match."
    assert is_in(page, hub)
    page.context.close()


def test_password_sign_out_and_a_link(browser: Browser, hub: HubProcess) -> None:
    add_person(hub, "alice", "admin")
    # Within a second a running hub notices that it has somebody now.
    wait_for(lambda: b"current-password" in hub.ask("/sign-in").body, why="the password form")
    page = open_page(browser, hub.url)
    for password in ("wrong wrong wrong", PASSWORD):
        page.get_by_label("Name").fill("Alice")
        page.get_by_label("Password", exact=True).fill(password)
        page.keyboard.press("Enter")
        if password != PASSWORD:
            assert "not right" in page.get_by_role("alert").inner_text()
    assert is_in(page, hub)
    page.locator("#account").click()
    page.locator("#sign-out").click()
    page.wait_for_url("**/sign-in")
    page.goto(hub.url + link_for(hub, "alice"))
    assert is_in(page, hub)
    page.context.close()


def test_a_link_that_another_site_holds(browser: Browser, hub: HubProcess) -> None:
    """A click there is a cross-site navigation, and Strict cookies do not follow its redirects."""
    add_person(hub, "alice", "admin")
    page = open_page(browser, "about:blank")
    page.route("http://mail.example/", lambda route: route.fulfill(
        content_type="text/html", body=f'<a href="{hub.url}{link_for(hub, "alice")}">in</a>'))
    page.goto("http://mail.example/")
    page.get_by_text("in").click()
    assert is_in(page, hub)
    page.context.close()


@pytest.mark.soak
def test_who_came_by_the_provider_confirms_there(browser: Browser, tmp_path: Path) -> None:
    """A person confirms in another tab, while the action begun here waits."""
    secret = tmp_path / "secret"
    secret.write_text("of the tests")
    secret.chmod(0o600)
    config = tmp_path / "hub.toml"
    with SiteProvider("deck", secret.read_text()) as site:
        config.write_text(f'[hub]\noidc_issuer = "{site.issuer}"\noidc_client_id = "deck"\n'
                          f'oidc_client_secret_file = "{secret}"\noidc_roles = "ops=admin"\n')
        confirmed_at(browser, site, tmp_path / "hub", config)


def confirmed_at(browser: Browser, site: SiteProvider, folder: Path, config: Path) -> None:
    with HubProcess(folder, 0, "--config", str(config)) as hub:
        site.person = {"sub": "1", "preferred_username": "uma", "groups": ["ops"],
                       "auth_time": int(time.time()) - 3_600}
        page = open_page(browser, f"{hub.url}/sign-in/oidc")
        assert is_in(page, hub)
        page.goto(f"{hub.url}/settings#users")
        page.locator("#add-user").click()
        page.get_by_role("textbox", name="Name", exact=True).fill("bob")
        page.get_by_role("dialog").get_by_role("button", name="Add").click()
        dialog = page.get_by_role("dialog").filter(has_text="Sign in once more")
        dialog.get_by_role("button", name="Continue").click()
        assert "not signed in again yet" in dialog.get_by_role("alert").inner_text()
        site.person["auth_time"] = int(time.time())
        with page.context.expect_page() as opened:
            dialog.get_by_role("link", name="Sign in again").click()
        opened.value.wait_for_url(f"{hub.url}/")
        dialog.get_by_role("button", name="Continue").click()
        wait_for(lambda: "bob" in {user["name"] for user in hub.get("/api/v1/users")["items"]},
                 why="he was added")
        page.context.close()
