"""The table of pages is the only list of them: what it says must be there."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask

from dashboard.access.policy import Actor, Role
from dashboard.pages import ASSETS, PAGES
from dashboard.pages.frame import Frame, Router, framed
from dashboard.pages.graphs import GRAPHS
from dashboard.pages.parts import READ_PAGE, Page
from dashboard.pages.router import GRAPH, PageRouter
from dashboard.pages.shell import PAGE_ROWS, index, page_rows
from dashboard.pages.site import SitePages
from dashboard.pages.site_hub import SiteThreads, ViewersHub, _OwnConnection
from gpudeck.components import BrowserComponent, LiveHeatmap
from gpudeck.errors import CommandError
from gpudeck.markup import make, markup


def test_each_page_has_a_module_with_a_class_for_its_frame() -> None:
    for page in PAGES:
        text = (ASSETS / page.module).read_text()
        assert re.search(r"^export default class \w+", text, re.M), page.module
        assert page.frame().id == page.key  # type: ignore[attr-defined]


def test_no_two_pages_share_an_address_or_a_key() -> None:
    for names in ([page.key for page in PAGES],
                  [page.address for page in PAGES if page.address is not None],
                  [page.go[0] for page in PAGES if page.go is not None]):
        assert len(set(names)) == len(names)
    assert PAGES[0].address == "/"
    assert not any(re.search(page.addresses, other.address) for page in PAGES
                   for other in PAGES if page.addresses and other.address)


def test_the_index_brings_the_table_to_the_browser() -> None:
    table = re.search(r'id="page-table">(.*?)</script>', index().replace(
        PAGE_ROWS, page_rows(PAGES)))
    assert table is not None
    assert json.loads(table[1]) == [page.row() for page in PAGES]


def test_a_page_that_was_renamed_is_at_its_old_address_too() -> None:
    assert [page.key for page in PAGES if page.addresses and re.search(page.addresses, "/record")
            ] == ["audit"]


def test_the_docs_count_callbacks_and_components() -> None:
    text = (ASSETS.parent / "docs/internals/pages.md").read_text()
    documented = {word for row in re.findall(r"^\| components .*", text, re.M)
                  for word in re.findall(r"`(\w+)`", row)}
    classes: set[type] = set()
    waiting = [BrowserComponent]
    while waiting:
        classes.update(some := waiting.pop().__subclasses__())
        waiting += some
    assert documented == {kind.__name__ for kind in classes if kind.__module__.startswith(
        ("gpudeck.", "dashboard."))}
    assert f"| callbacks | {2 + len(GRAPHS)}: " in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.key)
def test_a_page_is_sent_alone_and_as_few_components(page: Page) -> None:
    """Thousands block a browser for seconds; and what another page shows is not sent."""
    path = page.address or {"missing": "/nowhere", "lines": "/compare", "job": "/job/b:1:1",
                            "slurm": "/slurm", "kubernetes": "/kubernetes"}[page.key]
    router = PageRouter(PAGES, SitePages([], SiteThreads(), ViewersHub(lambda: None)),  # type: ignore[arg-type, return-value]
                        lambda: Actor("person", role=Role.VIEWER))
    with Flask("pages").test_request_context(headers={"Referer": f"http://hub{path}?a=b"}):
        layout = router.layout()
    assert sum(1 for _ in layout._traverse()) < 40
    main: Any = next(part for part in layout.children if isinstance(part, Router))
    assert main.pathname == path
    frame, *_ = main.children
    assert frame.traits["id"] == page.key
    with Flask("pages").test_request_context():
        main = next(part for part in router.layout().children if isinstance(part, Router))
    assert main.children == []


def test_only_a_page_with_a_figure_loads_what_draws_it() -> None:
    router = PageRouter(PAGES, SitePages([], SiteThreads(), ViewersHub(lambda: None)),  # type: ignore[arg-type, return-value]
                        lambda: Actor("person", role=Role.VIEWER))
    assert router.modules("/reports")[1][1:] == (GRAPH,)
    assert router.modules("/qos") == ("qos", (READ_PAGE,))


@pytest.mark.parametrize(("key", "components"), [
    ("fleet", {"AttentionStrip", "LiveHeatmap", "TimeBar"}),
    ("lines", {"AlertLane", "LiveTimeline", "TimeBar"}),
    ("history", {"AnsweredFigure"}), ("tasks", {"TaskTable"}),
    ("job", {"RankMap"}), ("pool", {"PoolWeek"})])
def test_a_page_is_a_layout_of_live_components(key: str, components: set[str]) -> None:
    [page] = [candidate for candidate in PAGES if candidate.key == key]
    layout = framed(page.frame())
    assert components <= {type(part).__name__ for part in layout._traverse()}


def test_what_a_page_begins_with_is_a_property_of_its_component() -> None:
    """assets/fleet/view_choices.mjs reads it."""
    heatmap: Any = LiveHeatmap("map", metric="power_w", group="owner", driver="page")
    assert heatmap.traits["data-metric"] == "power_w"
    assert heatmap.traits["data-group"] == "owner"
    assert "style" not in heatmap.traits


def test_markup_is_what_was_made_and_its_text_is_text() -> None:
    element = make("p#words.note.big", ["<b>&", make("img", src="/a?b=1&c=2", alt='"')],
                   aria_label="it's", hidden=True)
    assert markup(element) == (
        '<p id="words" class="note big" aria-label="it&#x27;s" hidden="hidden">&lt;b&gt;&amp;'
        '<img src="/a?b=1&amp;c=2" alt="&quot;"></p>')
    frame: Any = Frame(element)
    assert (frame.tag, frame.traits["className"]) == ("p", "note big")
    assert f">{frame.inside}</p>" in markup(element)


def test_a_hub_that_takes_too_long_is_an_error_of_the_page_in_words() -> None:
    loop = SimpleNamespace(run_callback_threadsafe=lambda *_: None)  # it never comes to it
    connection = _OwnConnection(lambda *_: [], {"wsgi.url_scheme": "http", "HTTP_HOST": "h"}, loop)
    with pytest.raises(CommandError, match="took too long"), connection.opened(
            "GET", "me", timeout_s=0.01):
        pass
