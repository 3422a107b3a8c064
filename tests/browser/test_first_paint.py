"""The first words of a fresh demo: which GPU is wasted, whose it is, since when, and its alert."""

import os
import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.demos import Demo, soon

pytestmark = [pytest.mark.browser, pytest.mark.soak]
TIMES = int(os.environ.get("GPUDECK_SOAK_FIRST_PAINTS", "10"))
HISTORY_HOURS = {8: "2", 125: "1"}  # as the demo chooses by itself
LEAST_S = 3_000
# Keeps all that the card and its neighbour say, from the first paint on.
WATCH = """
globalThis.painted = {};
new MutationObserver(() => {
  for (const key of ["wasted", "attention"]) {
    const text = document.getElementById(`card-${key}`)?.innerText.replace(/\\s+/g, " ");
    const texts = (painted[key] ??= []);
    if (text && text !== texts.at(-1)) texts.push(text);
  }
}).observe(document, {childList: true, subtree: true, characterData: true});
"""
LABELS = {"wasted": "Wasted", "attention": "Needs attention"}
HOG = re.compile(r"\d+ GPUs? (\S+) on n001 GPU 5, idle (\d+) (min|h)\b")
UNITS = {"min": 60, "h": 3_600}


@pytest.mark.parametrize("attempt", range(TIMES))
@pytest.mark.parametrize("nodes", [8, 125], ids=["64", "1000"])
def test_the_first_words_name_the_hog_its_owner_and_since_when(
        browser: Browser, tmp_path: Path, nodes: int, attempt: int) -> None:
    began = time.monotonic()
    with Demo(tmp_path / "demo", "--nodes", str(nodes), "--history-hours",
              HISTORY_HOURS[nodes]) as demo:
        link_s = time.monotonic() - began
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.add_init_script(WATCH)
        page.goto(demo.info()["sign_in_url"])

        def words(key: str) -> list[str]:
            texts: list[str] = page.evaluate("key => globalThis.painted?.[key] ?? []", key)
            after_label = [text.removeprefix(LABELS[key]).strip() for text in texts]
            return [text for text in after_label if any(map(str.isalnum, text))]

        assert soon(lambda: words("wasted")), page.content()[:2_000]
        first, at = words("wasted")[0], time.time()
        [hog] = [gpu for gpu in demo.ask("gpus?limit=1000&filter=state:wasted")
                 if (gpu["host"], gpu["index"]) == ("n001", 5)]
        [task] = [task for task in demo.ask("tasks?limit=1000&filter=node:n001")
                  if hog["uuid"] in [gpu["uuid"] for gpu in task["gpus"]]]
        [alert] = [alert for alert in demo.ask("alerts") if alert["rule"] == "idle-held"]
        print(f"{nodes * 8} GPUs: link after {link_s:.1f} s, {first!r}")
        match = HOG.match(first)
        assert match is not None, (first, words("wasted"))
        assert match[1] == task["user"]
        unit_s = UNITS[match[3]]
        assert int(match[2]) * unit_s == pytest.approx(hog["wasted_s"], abs=unit_s)
        assert hog["wasted_s"] >= LEAST_S
        assert (alert["gpus"], alert["users"], alert["state"]) == (
            [hog["uuid"]], [task["user"]], "firing")
        assert alert["fired_at"] <= at
        assert soon(lambda: words("attention"))
        assert not words("attention")[0].startswith("none")
        page.context.close()
