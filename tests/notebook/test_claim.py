"""`claim()` in a real Notebook 7: waits in its cell, holds GPUs, and gives them back with the
kernel at the latest."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from gpudeck.contract.pool_messages import SOCKET_ENV
from tests.fakes.hub import wait_for
from tests.integration.pools import WAITS, PoolUnderTest
from tests.notebook.servers import Jupyter

CLAIM = "from gpudeck.notebook import claim\nmine = claim(gpus=2)"
SAYS = "import os; print(os.environ.get('GPUDECK_GPU_UUIDS'))"


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolUnderTest]:
    pool = PoolUnderTest(tmp_path)
    yield pool
    pool.close()


def test_a_kernel_holds_gpus_until_it_gives_them_back_or_ends(pool: PoolUnderTest, tmp_path: Path,
                                                              browser: Browser) -> None:
    other = pool.start("run", "--", sys.executable, "-c", WAITS)
    assert other.stdout is not None
    assert other.stdout.readline() == "on\n"
    root = tmp_path / "books"
    root.mkdir()
    jupyter = Jupyter("notebook", root, {SOCKET_ENV: str(pool.socket)})
    try:
        book = jupyter.open(browser, (CLAIM, SAYS, CLAIM))
        book.run(0, r"\*")
        widget = book.page.locator(".gpudeck").first
        book.page.get_by_text("number 1 in the queue: it asks for 2 GPUs").wait_for()
        other.terminate()
        widget.get_by_text("GPUs of this kernel").wait_for()
        assert widget.locator("li").all_inner_texts() == ["GPU 0 H100", "GPU 1 H100"]
        book.run(1)
        book.output(1, "GPU-0,GPU-1")
        [lease] = pool.leases.all.values()
        widget.locator("[data-act=extend]").click()
        wait_for(lambda: pool.leases.all[lease.id].until >= lease.until + 3_600)
        widget.locator("[data-act=give_back]").click()
        widget.get_by_text("No GPUs held").wait_for()
        assert not pool.leases.all
        book.run(1)
        book.output(1, "None")
        book.run(2)
        wait_for(lambda: len(pool.leases.all) == 1)
        jupyter.restart(jupyter.kernel_of("book.ipynb"))
        wait_for(lambda: not pool.leases.all)
    finally:
        jupyter.close()
