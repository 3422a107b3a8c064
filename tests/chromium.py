"""Debian's chromium, headless."""

from tests.machine import required as program

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run"]


def required() -> str:
    return program("chromium")
