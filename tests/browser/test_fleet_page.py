"""The Fleet page against the real demo: what was set is what is drawn, and nothing else moved."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.demos import Demo, soon

from .conftest import Fleet

pytestmark = pytest.mark.browser


def test_a_layout_that_never_shifts_begins(steady_fleet: Fleet) -> None:
    """Opens the page that test_nothing_shifts_in_half_a_minute reads at the end."""
    assert steady_fleet.stats()["link"] == "live"


def test_what_control_sets_is_what_the_page_and_the_api_show(demo: Demo, fleet: Fleet) -> None:
    uuids = list(demo.gpus())
    busy, lost_uuid, unsupported = random.sample(uuids, 3)
    value = random.choice([93, random.randint(2, 99)])
    before = {uuid: cell["state"] for uuid, cell in fleet.cells(uuids).items()}
    assert set(before.values()) == {"ok"}

    demo.control({busy: {"util_pct": value}, lost_uuid: {"state": "lost"},
                  unsupported: {"unsupported": ["util_pct"]}})

    def shown_cells() -> list[tuple[str, str]]:
        cells = fleet.cells([busy, lost_uuid, unsupported])
        return [(cells[uuid]["text"], cells[uuid]["state"])
                for uuid in (busy, lost_uuid, unsupported)]

    expected_cells = [(str(value), "ok"), ("lost", "lost"), ("not supported", "unsupported")]
    assert soon(lambda: shown_cells() == expected_cells), shown_cells()
    assert fleet.cells([busy])[busy]["level"] == round(value * 2.39)
    changed = {uuid for uuid, cell in fleet.cells(uuids).items() if cell["state"] != before[uuid]}
    assert changed == {lost_uuid, unsupported}

    gpus_by_uuid = demo.gpus()
    assert gpus_by_uuid[busy]["values"]["util_pct"] == value
    assert gpus_by_uuid[lost_uuid]["state"] == "lost"
    assert gpus_by_uuid[lost_uuid]["missing"]["util_pct"] == "lost"
    assert gpus_by_uuid[unsupported]["missing"]["util_pct"] == "unsupported"
    assert {uuid for uuid, gpu in gpus_by_uuid.items() if gpu["state"] != "ok"} == {lost_uuid}
    assert soon(lambda: fleet.text("#chip-failed b") == "1")
    assert soon(lambda: fleet.cells([lost_uuid])[lost_uuid]["alerts"] == ["gpu-lost"]), (
        "marked when lost")
    assert [alert["gpus"] for alert in demo.ask("alerts")] == [[lost_uuid]]


def test_a_filter_lights_exactly_what_matches(demo: Demo, fleet: Fleet) -> None:
    uuids = list(demo.gpus())
    lost_uuids = set(random.sample(uuids, 2))
    demo.control({uuid: {"state": "lost"} for uuid in lost_uuids})
    fleet.page.keyboard.press("/")
    fleet.page.keyboard.type("state:lost")

    def lit() -> set[str]:
        return {uuid for uuid, cell in fleet.cells(uuids).items() if cell["matched"]}

    assert soon(lambda: lit() == lost_uuids), lit() ^ lost_uuids
    assert fleet.text("#filter-words") == f"2 of {len(uuids)} match"
    assert "filter=state%3Alost" in fleet.page.url


def test_a_mistaken_filter_says_where_and_leaves_the_last_one(demo: Demo, fleet: Fleet) -> None:
    uuids = list(demo.gpus())
    one = random.choice(uuids)
    box = fleet.page.locator("#filter")
    box.fill(f"gpu:{one}")
    assert soon(lambda: fleet.text("#filter-words").startswith("1 of"))
    box.fill(f"gpu:{one} & utl<5")
    assert soon(lambda: "utl" in fleet.text("#filter-words"))
    assert f"at {len(f'gpu:{one} & ') + 1}" in fleet.text("#filter-words")
    assert box.get_attribute("aria-invalid") == "true"
    assert [uuid for uuid, cell in fleet.cells(uuids).items() if cell["matched"]] == [one]
    # A new metric is shown all the same, with the last good filter.
    fleet.page.locator("#metric").select_option("temp_c")
    assert soon(lambda: "Temperature" in (fleet.page.locator("#heatmap .heatmap").get_attribute(
        "aria-label") or ""))
    assert [uuid for uuid, cell in fleet.cells(uuids).items() if cell["matched"]] == [one]


def rows(fleet: Fleet) -> list[list[str]]:
    table: list[list[str]] = fleet.page.evaluate(
        "[...document.querySelectorAll('#table-view tbody tr')]"
        ".map(row => [...row.children].map(cell => cell.textContent))")
    return table


def test_sorting_and_grouping_order_the_gpus(open_fleet: Callable[..., Fleet]) -> None:
    fleet = open_fleet("?view=table&group=none&sort=high&metric=power_w")
    watts: list[int] = []

    def is_sorted() -> bool:
        """Allow for neighbours that passed each other within a second's noise."""
        for order in ("low", "high"):
            fleet.page.locator("#sort").select_option(order)
        watts[:] = [int(row[5].removesuffix(" W").replace(",", "")) for row in rows(fleet)]
        return all(high >= low - 60 for high, low in pairwise(watts))

    assert soon(is_sorted)
    assert len(watts) == 64
    assert max(watts[:8]) > max(watts[-8:])
    fleet.page.locator("#sort").select_option("low")
    assert soon(lambda: rows(fleet)[0] != rows(fleet)[-1] and int(
        rows(fleet)[0][5].removesuffix(" W")) <= min(watts) + 60)

    fleet.page.locator("#group").select_option("owner")
    # Without who holds a lease: those without a task are one group.
    assert soon(lambda: blocks(owners := [row[3].split(",")[0] for row in rows(fleet)]) == len(
        set(owners)))
    fleet.page.locator("#group").select_option("node")
    assert soon(lambda: blocks([row[0] for row in rows(fleet)]) == 8)
    assert "group" not in fleet.page.url


def blocks(words: list[str]) -> int:
    return sum(one != other for one, other in zip(words, [None, *words], strict=False))


def test_the_keyboard_alone_does_all(demo: Demo, fleet: Fleet) -> None:
    page = fleet.page
    page.locator("#heatmap .heatmap").focus()
    page.keyboard.press("Home")
    assert soon(lambda: "GPU 0:" in fleet.text("#heatmap .live-spoken"))
    first = fleet.text("#heatmap .live-spoken").split(":")[0]
    page.keyboard.press("ArrowRight")
    assert "GPU 1: GPU utilization" in fleet.text("#heatmap .live-spoken")
    page.keyboard.press("ArrowDown")
    assert "GPU 1:" in fleet.text("#heatmap .live-spoken")
    assert not fleet.text("#heatmap .live-spoken").startswith(first.split(",")[0] + ",")
    assert page.locator("#heatmap .mark").is_visible()
    node = fleet.text("#heatmap .live-spoken").split(",")[0]

    page.keyboard.press("Space")
    assert "1 GPU selected" in fleet.text("#selection")
    page.keyboard.press("Shift+ArrowRight")
    assert "2 GPUs selected" in fleet.text("#selection")
    page.keyboard.press("ArrowLeft")

    page.keyboard.press("Enter")
    assert soon(lambda: fleet.text("#drawer-title") == f"{node} · GPU 1")
    page.keyboard.press("Escape")
    assert page.locator("#drawer").is_hidden()
    page.keyboard.press("Escape")
    assert fleet.text("#selection") == ""

    page.keyboard.press("?")
    assert page.locator("#help-dialog").is_visible()
    assert "map drawn in" in page.locator("#help-cost").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#help-dialog").is_hidden()
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.keyboard.press("v")
    assert page.locator("#table-view table").is_visible()
    assert page.locator(".legend").is_hidden()  # a table has no colours to explain
    page.keyboard.press("g")
    with page.expect_navigation():
        page.keyboard.press("f")
    fleet.wait_live()
    assert page.url == f"{demo.url}/"
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_the_drawer_shows_what_the_api_says(demo: Demo, fleet: Fleet) -> None:
    gpus = demo.gpus()
    task = random.choice(demo.get("/api/v1/tasks?limit=1000")["items"])
    uuid = task["gpus"][0]["uuid"]
    temp_c = random.randint(30, 79)
    demo.control({uuid: {"temp_c": temp_c, "unsupported": ["fan_pct", "mem_temp_c"]}})
    fleet.open(f"?gpu={uuid}")
    lines = fleet.page.locator("#drawer .metrics > div")

    def value(label: str) -> str:
        return lines.filter(has_text=label).first.locator("dd").inner_text().strip()

    assert soon(lambda: value("Temperature") == f"{temp_c} °C"), value("Temperature")
    absent = fleet.page.locator("#drawer .not-here").first
    assert soon(lambda: "Memory temperature" in absent.inner_text()), absent.inner_text()
    missing = absent.inner_text()
    assert "SM clock" not in missing
    assert "does not report it" in missing
    assert not lines.filter(has_text="Memory temperature").first.is_visible()
    assert uuid in fleet.page.locator("#drawer .facts").all_inner_texts()[1]
    assert fleet.text("#drawer-subtitle") == gpus[uuid]["name"]
    assert soon(lambda: f"pid {task['pid']} " in fleet.text("#drawer .tasks"))
    assert fleet.page.locator(f'#drawer .tasks [title$="{task["command"]}"]').count() > 0
    assert (task["user"] or "owner unknown") in fleet.text("#drawer .tasks")
    # What is read each quarter minute stands among what is read each second, with its age.
    slow = fleet.page.locator("#drawer [data-metric='gr_active_pct'] .value-age")
    assert soon(lambda: slow.inner_text().endswith(" s ago"))
    assert fleet.text("#drawer [data-metric='util_pct'] .value-age") == ""


def test_a_link_brings_back_the_whole_view(demo: Demo, open_fleet: Callable[..., Fleet]) -> None:
    uuid = random.choice(list(demo.gpus()))
    fleet = open_fleet(f"?metric=temp_c&group=model&sort=low&filter=temp%3E1&gpu={uuid}")
    page = fleet.page
    choices = [page.locator(f"#{name}").input_value() for name in ("metric", "group", "sort")]
    assert choices == ["temp_c", "model", "low"]
    assert page.locator("#filter").input_value() == "temp>1"
    assert page.locator("#drawer").is_visible()
    assert soon(lambda: fleet.text("#filter-words") == "64 of 64 match")


def test_a_click_opens_and_the_pointer_shows_exact_values(demo: Demo, fleet: Fleet) -> None:
    box: Any = fleet.page.locator("#heatmap canvas").bounding_box()
    fleet.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    fleet.page.mouse.move(box["x"] + box["width"] / 2 + 30, box["y"] + 30)
    assert soon(lambda: "s old" in fleet.text("#hover"))
    assert "Temperature" in fleet.text("#hover")
    title = fleet.text("#hover header strong")
    fleet.page.mouse.click(box["x"] + box["width"] / 2 + 30, box["y"] + 30)
    assert soon(lambda: fleet.text("#drawer-title") == title)


def test_a_hub_that_goes_is_told_and_one_that_comes_back_is_used(
        demo: Demo, open_fleet: Callable[..., Fleet]) -> None:
    fleet = open_fleet()
    demo.kill_hub()
    banner = fleet.page.locator("#banner")
    assert soon(banner.is_visible)
    assert "Not connected to the hub" in banner.inner_text()
    assert "Live" not in fleet.text("#time-words")
    assert fleet.page.locator("#time-words .time-moment").inner_text() == "Not connected"
    assert soon(lambda: "old" in banner.inner_text())

    def is_back() -> bool:
        # Pressed from within: the button goes as soon as the hub is back.
        fleet.page.evaluate("document.querySelector('.banner-retry')?.click()")
        return fleet.stats()["link"] == "live" and not banner.is_visible()

    assert soon(is_back), (fleet.stats(), fleet.text('#banner'), fleet.trouble)
    assert all(cell is not None for cell in fleet.cells(list(demo.gpus())).values())
    # That the socket and the requests of a dead hub failed is what was asked for.
    fleet.trouble[:] = [line for line in fleet.trouble
                        if "WebSocket" not in line and "net::ERR_" not in line]


def test_signing_out_ends_the_page(demo: Demo, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(demo.url)
    page.get_by_label("Name").fill(demo.info()["user"])
    page.get_by_label("Password", exact=True).fill(demo.info()["password"])
    page.get_by_role("button", name="Sign in").click()
    assert soon(lambda: page.evaluate("globalThis.gpudeck?.stats.link") == "live")
    page.locator("#account").click()
    page.locator("#sign-out").click()
    page.wait_for_url("**/sign-in")
    assert page.get_by_role("heading", name="Sign in").is_visible()
    page.goto(demo.url)
    assert page.url.endswith("/sign-in")
    context.close()
