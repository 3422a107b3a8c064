"""Debian's chromium as its headless shell: the same engine without what surrounds a window, at half
of the processor time."""

from tests.machine import required as program

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run"]


def required() -> str:
    return program("chromium-headless-shell")
