"""A node whose boards are split by MIG, on the Fleet page."""

import random
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import Fleet
from tests.demos import Demo, soon

pytestmark = pytest.mark.browser
PLACES = [*map(str, range(7)), *(f"6/{number}" for number in range(7, 14)), "7", "7/1", "7/2"]


@pytest.fixture(name="mig", scope="module")
def _mig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("mig"), "--nodes", "1", "--gpus", "8", "--faults", "off",
              "--profile", "h100-mig", "--seed", str(random.randrange(10**6))) as running:
        yield running


def test_instances_are_named_and_ordered_by_their_board(mig: Demo, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.new_page().goto(mig.info()["sign_in_url"])
    fleet = Fleet(context, mig.url).open("?view=table&metric=sm_active_pct")
    rows = fleet.page.locator("#table-view tbody tr")
    assert soon(lambda: rows.count() == len(PLACES))
    cells = [row.locator("td").all_inner_texts() for row in rows.all()]
    assert [cell[0] for cell in cells] == PLACES
    for place, _, owner, _, value in cells:
        is_split = place in ("6", "7")
        assert (owner == "split by MIG") == is_split
        assert (value == "not supported") == is_split
    assert "15 of 15 GPUs" in fleet.text("#summary")
    items = mig.get("/api/v1/gpus?limit=100")["items"]
    board = next(item["uuid"] for item in items if item["place"] == "7")
    fleet.open(f"?gpu={board}")
    assert soon(lambda: "on its 2 instances" in fleet.text("#drawer"))
    part = random.choice([item for item in items if item["facts"]["parent_uuid"] == board])
    fleet.open(f"?gpu={part['uuid']}")
    assert soon(lambda: f"GPU {part['place']}" in fleet.text("#drawer-title"))
    assert soon(lambda: part["facts"]["mig_profile"] in fleet.text("#drawer"))
    assert fleet.trouble == []
    context.close()
