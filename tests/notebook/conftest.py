from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.notebook.servers import required_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = required_chromium()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()
