"""Debian's chromium, headless."""

import os
import shutil

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run"]


def required() -> str:
    found = shutil.which("chromium")
    if found is None and os.environ.get("CI"):
        pytest.fail("chromium is needed and not there")
    if found is None:
        pytest.skip("chromium is not there: no browser test runs")
    return found
