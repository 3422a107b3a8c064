"""Pages of a site: what is loaded, and what is left out and why."""

import random
import sys
from pathlib import Path

import dash
import pytest
from dash._hooks import HooksManager

from dashboard.pages.site import load_site_pages
from gpudeck.errors import CommandError
from gpudeck.pages import SitePage

PAGE = """
from dash import Input, Output, html
from gpudeck.pages import SitePage
page = SitePage("{key}", "Some page", role="{role}")
page.layout(lambda hub: html.P("x"))
{more}
"""


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    (tmp_path / "pages").mkdir(mode=0o700)
    return tmp_path


def write(folder: Path, name: str = "some", key: str = "some", role: str = "viewer",
          more: str = "") -> Path:
    path = folder / "pages" / f"{name}.py"
    path.write_text(PAGE.format(key=key, role=role, more=more))
    path.chmod(0o600)
    return path


def words(folder: Path) -> str:
    """Return the text of the page that stands in for a file that could not be loaded."""
    [page] = load_site_pages(folder)
    assert (page.role, page.callbacks) == ("admin", [])
    return page.about


def test_a_file_of_the_hubs_user_is_a_page(folder: Path) -> None:
    role = random.choice(("viewer", "user", "operator", "admin"))
    write(folder, role=role, more="page.callback(Output('a', 'title'), Input('b', 'title'))(str)")
    [page] = load_site_pages(folder)
    assert (page.key, page.role, len(page.callbacks)) == ("some", role, 1)
    assert load_site_pages(folder / "nowhere") == []


@pytest.mark.parametrize(("more", "why"), [
    ("raise KeyError('lost')", "KeyError: 'lost'"),
    ("import sys; sys.exit(3)", "SystemExit: 3"),
    ("page.key = '../..'", "characters other than"),
    ("page.make = None", "has no layout"),
    ("page = None", "does not define a SitePage"),
    ("import dash; dash.callback(Output('a', 'title'), Input('b', 'title'))(str)", "page.callback"),
    ("import dash; dash.clientside_callback('x', Output('a', 'b'), Input('b', 'b'))",
     "page.callback"),
    ("page.callback(Output('a', 'title'), Input('b', 'title'), background=True)(str)",
     "does not take background"),
    ("page.callback(Input('b', 'title'))(str)", "needs an output"),
    ("page.callback(Output('main', 'children'), Input('b', 'title'))(str)", "main.children"),
])
def test_what_is_wrong_with_one_is_said(folder: Path, more: str, why: str) -> None:
    write(folder, more=more)
    assert why in words(folder)
    assert not dash._callback.GLOBAL_CALLBACK_LIST
    assert not dash._callback.GLOBAL_INLINE_SCRIPTS


def test_a_role_is_one_of_ours(folder: Path) -> None:
    write(folder, role="root")
    assert "'root' is not a role" in words(folder)


def test_two_pages_have_two_keys_and_two_callbacks_two_outputs(folder: Path) -> None:
    more = "page.callback(Output('a', 'title'), Input('b', 'title'))(str)"
    write(folder, "first", "first", more=more)
    write(folder, "second", "first")
    write(folder, "third", "third", more=more)
    pages = {page.key: page for page in load_site_pages(folder)}
    assert pages["first"].role == "viewer"
    assert "there is one with this key" in pages["second"].about
    assert "a.title" in pages["third"].about


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_can_write_is_not_run(folder: Path, mode: int) -> None:
    path = write(folder)
    path.chmod(mode)
    assert "can be written by others" in words(folder)
    path.chmod(0o600)
    path.parent.chmod(0o700 | mode & 0o022)
    assert "can be written by others" in words(folder)


def test_hooks_of_dash_refuse_the_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dist_info = folder / "other-1.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Name: other\nVersion: 1.0\n")
    (dist_info / "entry_points.txt").write_text("[dash_hooks]\nother = os:getcwd\n")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    with pytest.raises(CommandError, match=r"dash_hooks.*other"):
        load_site_pages(folder)


def test_hooks_that_a_page_brings_refuse_it_too(folder: Path, monkeypatch: pytest.MonkeyPatch
                                                ) -> None:
    hooks = HooksManager.hooks
    monkeypatch.setattr(hooks, "_ns", {name: [*handlers] for name, handlers in hooks._ns.items()})
    write(folder, more="import dash; dash.hooks.layout()(lambda layout: layout)")
    with pytest.raises(CommandError, match="registered by a page"):
        load_site_pages(folder)


def test_a_package_has_pages_by_its_entry_points(folder: Path, monkeypatch: pytest.MonkeyPatch
                                                 ) -> None:
    dist_info = folder / "ours-1.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Name: ours\nVersion: 1.0\n")
    (dist_info / "entry_points.txt").write_text(
        "[gpudeck.pages]\nheat = ours_pages:page\nlost = no_such_module_here\n")
    (folder / "ours_pages.py").write_text(PAGE.format(key="heat", role="user", more=""))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.delitem(sys.modules, "ours_pages", raising=False)
    heat, broken = load_site_pages(folder)
    assert isinstance(heat, SitePage)
    assert (heat.key, heat.role) == ("heat", "user")
    assert "ModuleNotFoundError" in broken.about
