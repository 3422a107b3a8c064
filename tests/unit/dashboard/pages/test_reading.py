"""Pages that Python writes: what is hostile stays text, a view from anywhere is valid, and an error
is a sentence."""

import json
import random
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest

from dashboard.access.policy import Role
from dashboard.pages import ASSETS
from dashboard.pages.element_tree import trees
from dashboard.pages.parts import READ_PAGE, Page, literal
from dashboard.pages.reading import (
    FAILED,
    PageAnswer,
    PageCallbacks,
    Reading,
    View,
    Viewer,
    changed,
    view_from,
)
from gpudeck.components import Stat
from gpudeck.errors import CommandError
from gpudeck.markup import make, markup
from tests.hostile import strings

from .read_parts import wire_parts, words

NOW = 1_795_000_000.0
LINKS = ["javascript:alert(1)", "JavaScript:alert(1)", " javascript:alert(1)",
         "java\nscript:alert(1)", "data:text/html,<script>", "vbscript:x", "//elsewhere.example",
         "/\\elsewhere.example", "\x00javascript:x", "settings"]


class ShownView(View):
    UNADDRESSED: ClassVar[frozenset[str]] = frozenset({"config"})
    by: Literal["user", "team"] = "user"
    gpu: tuple[str, ...] = ()
    opened: tuple[int, ...] = ()
    most: int = 8
    price: float | None = None
    is_all: bool = False
    config: str = ""


def test_text_stays_text() -> None:
    for name in strings():
        [node] = trees(make("a", [name, make("b", name, title=name)], data_key=name))
        assert isinstance(node, list)
        assert node[2] == [name, ["b", {"title": name}, [name]]]
        assert node[1]["data-key"] == name
        assert json.loads(json.dumps(node)) == node


def test_nothing_is_left_of_nothing() -> None:
    assert trees([None, "", [None, ["a", 3, None]]]) == ["a", "3"]
    assert trees(None) == []


@pytest.mark.parametrize("link", LINKS)
def test_a_link_that_could_run_a_script_is_no_link(link: str) -> None:
    assert trees(make("a", "x", href=link)) == [["a", {}, ["x"]]]
    assert markup(make("a", "x", href=link)) == "<a>x</a>"


@pytest.mark.parametrize("link", ["/node/a?b=c#d", "#part", "?by=team", "https://runbook.example/",
                                  "http://runbook.example", "mailto:ops@example.org"])
def test_other_links_stay(link: str) -> None:
    assert trees(make("a", "x", href=link)) == [["a", {"href": link}, ["x"]]]


@pytest.mark.parametrize("trait", ["onclick", "onfocus", "onInput", "ONERROR"])
def test_no_element_has_a_script(trait: str) -> None:
    with pytest.raises(ValueError, match="no scripts"):
        trees(make("input", **{trait: "alert(1)"}))


@pytest.mark.parametrize("part", [make("script", "alert(1)"), make("iframe", src="/"), Stat()])
def test_an_answer_has_plain_elements_only(part: Any) -> None:
    with pytest.raises(ValueError, match="plain elements"):
        trees(make("div", part))


def test_traits_are_written_as_html_has_them() -> None:
    part = make("input#a.b", type="number", required=True, disabled=False, aria_pressed=False,
                data_set={"a": None}, tabIndex="0", value=3, maxLength=8)
    [node] = trees([part])
    assert node == ["input", {
        "id": "a", "class": "b", "type": "number", "required": "", "aria-pressed": "false",
        "data-set": '{"a":null}', "tabindex": "0", "value": "3", "maxlength": "8"}, []]
    assert markup(part).startswith('<input id="a" class="b" type="number" ')
    assert trees(make("i", style={"width": "12.5%", "minWidth": "2px"})) == [
        ["i", {"style": "width: 12.5%; min-width: 2px"}, []]]
    with pytest.raises(ValueError, match="style"):
        trees(make("i", style={"width": "1px; background: url(/x)"}))


def test_a_view_is_read_from_an_address() -> None:
    view = view_from(ShownView, {"by": "team", "gpu": ["a", "b"], "opened": ["1", "2"],
                                 "most": "12", "price": "0.5", "is_all": "true",
                                 "zone": "Europe/Berlin", "config": "{}"})
    assert view == ShownView("Europe/Berlin", "team", ("a", "b"), (1, 2), 12, 0.5, True, "{}")


GARBAGE: tuple[Any, ...] = (
    None, True, -1, 1e308, float("nan"), "", "x" * 10_000, "nan", "inf", "1e999",
    "../../etc/passwd", "\ud800", "\x00", [], ["x", None], {}, {"a": []}, [[[]]], *strings())


def test_a_field_that_is_not_valid_has_its_default() -> None:
    requests: tuple[Any, ...] = (None, [], "by=team", 7)
    for request in requests:
        assert view_from(ShownView, request) == ShownView()
    for _ in range(2_000):
        view = view_from(ShownView, {name: random.choice(GARBAGE) for name in (
            *ShownView.__struct_fields__, "unknown")})
        assert view.by in ("user", "team")
        assert view.zone == "UTC"
        assert all(isinstance(name, str) for name in view.gpu)
        assert all(isinstance(at, int) for at in view.opened)
        assert view.price is None or abs(view.price) <= 1e308
        assert isinstance(view.most, int)


def test_a_browser_gets_the_defaults_and_what_the_page_changed() -> None:
    reading: Any = PageAnswer(Reading(ShownView, lambda *_: {}, 10.0, "report"))
    facts = json.loads(reading.reading)
    assert facts == {"everyS": 10.0, "what": "report", "path": "",
                     "unaddressed": ["config"], "usual": {
        "by": "user", "gpu": [], "opened": [], "most": 8, "price": None, "is_all": False,
        "config": ""}, "events": [], "choices": {"by": ["user", "team"]}, "anchor": ""}
    live: Any = PageAnswer(Reading(ShownView, lambda *_: {}, events=("alert",), anchor="by"))
    facts = json.loads(live.reading)
    assert (facts["events"], facts["anchor"]) == (["alert"], "by")
    before = {"config": "{}"}
    assert "config" not in changed(ShownView(config="{}"), before)
    assert changed(ShownView(config=""), before)["config"] == ""


class HubOfNobody:
    """Stands in for threads and hub: the answers here ask nothing."""

    def frames(self) -> Any:
        return SimpleNamespace(client=None)

    def run(self, answer: Callable[..., Any], *arguments: Any) -> Any:
        return answer(*arguments)


def answer_to(answer: Callable[..., Any], question: object) -> dict[str, Any]:
    """Return the answer of the callback that is registered for a page `shown`."""
    callbacks: list[Callable[[object], dict[str, Any]]] = []
    hub: Any = HubOfNobody()
    app: Any = SimpleNamespace(callback=lambda *_, **__: callbacks.append)
    PageCallbacks(hub, hub, [("shown", Reading(ShownView, answer))], lambda: NOW).register(app)
    return callbacks[0](question)


def test_an_answer_has_the_view_that_it_is_of() -> None:
    def answer(client: object, view: ShownView, now: float) -> dict[str, Any]:
        assert now == NOW
        view.most = 3
        return {"a": ["x", make("b", view.by)], "b": None, "c": True}

    question = {"number": 7, "page": "shown", "view": {"by": "team", "most": "5"}}
    assert answer_to(answer, question) == {
        "number": 7, "parts": {"a": ["x", ["b", {}, ["team"]]], "b": None, "c": True},
        "view": {"by": "team", "gpu": (), "opened": (), "most": 3, "price": None,
                 "is_all": False}}


def test_what_the_browser_has_is_not_sent_again() -> None:
    texts = {"a": "x", "b": ""}

    def ask(have: object) -> tuple[dict[str, Any], Any]:
        reply = answer_to(lambda *_: texts | {"c": None, "d": True}, {
            "number": 1, "page": "shown", "view": {}, "have": have})
        return reply["parts"], reply.get("digests")

    parts, digests = ask({})
    assert parts == {"a": ["x"], "b": [], "c": None, "d": True}
    assert ask(digests) == ({}, {})
    texts["b"] = "y"
    assert ask(digests)[0] == {"b": ["y"]}
    # What is no digest, or of another part, is not had; a page that names none gets all.
    assert ask({"a": digests["b"], "c": 3, "d": None})[0] == {**parts, "b": ["y"]}
    assert ask("a") == ({**parts, "b": ["y"]}, None)


def test_an_error_is_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> dict[str, Any]:
        raise CommandError("the hub refuses")

    def fail(*_: object) -> dict[str, Any]:
        raise KeyError("secret")

    question = {"number": 1, "page": "shown", "view": {}}
    assert answer_to(refuse, question) == {"number": 1, "problem": "the hub refuses"}
    assert answer_to(fail, question) == {"number": 1, "problem": FAILED}
    assert "the page shown failed" in caplog.text
    unknown: tuple[Any, ...] = (None, [], "x", {}, {"page": []}, {"page": "other"}, {"page": {}})
    for wrong in unknown:
        assert "problem" in answer_to(fail, wrong)


def test_what_a_page_offers_follows_from_who_views_it() -> None:
    person = Viewer(Role.USER, ["ana"])
    assert [person.may(role) for role in Role] == [True, True, False, False]
    assert [person.may_change(owner) for owner in ("ana", "ben", None)] == [True, False, False]
    assert Viewer(Role.OPERATOR).may_change(None)
    assert not Viewer(Role.VIEWER, ["ana"]).may_change("ana")


def test_a_page_of_our_own_takes_few_lines() -> None:
    """The example of the docs is a page: it is drawn from what the hub answers."""
    text = (ASSETS.parent / "docs/internals/pages.md").read_text()
    [code] = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) < 40
    module: dict[str, Any] = {"__name__": "dashboard.pages.wasters",
                              "__package__": "dashboard.pages"}
    exec(compile(code, "wasters.py", "exec", dont_inherit=True), module)
    page: Page = module["PAGE"]
    assert page.reading is not None
    query_sent: dict[str, str] = {}
    client: Any = SimpleNamespace(hub=SimpleNamespace(get=lambda path, **query: (
        query_sent.update(query, path=path) or {"items": [
            {"of": "<b>", "name": "<b>", "idle_hours": 3.21},
            {"of": "ben", "name": "ben", "idle_hours": None}]})))
    view = view_from(page.reading.view, {"by": "team"})
    parts = wire_parts(page, page.reading.answer(client, view, NOW))
    assert query_sent == {"path": "reports", "by": "team", "start": str(int(NOW) - 7 * 86_400)}
    assert parts == {"wasters-none": None, "wasters-place": [
        ["li", {"data-key": "<b>"}, ["<b>: 3.2 idle GPU-hours"]]]}
    assert words(wire_parts(page, module["parts"]([]))["wasters-none"]) == (
        "Nobody held a GPU idle.")
    assert page.module == READ_PAGE


def test_a_text_that_looks_like_a_field_is_sent_as_it_is() -> None:
    """assets/reading/orders.mjs puts the value of the field `reason` for `$reason`, and `$` for
    `$$`: an undo once sent null for a group that is called `$lab`."""
    body = {"group": "$lab", "names": ("$a", "b"), "$gpus": 2, "inner": {"reason": "costs $5"}}
    assert literal(body) == {"group": "$$lab", "names": ["$$a", "b"], "$gpus": 2,
                             "inner": {"reason": "costs $5"}}
