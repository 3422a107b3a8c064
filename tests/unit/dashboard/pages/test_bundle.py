"""A page's modules and style sheets as one file of each."""

import random
import re
import string
from pathlib import Path

import pytest
from flask import Flask

from dashboard.pages import ASSETS, PAGES
from dashboard.pages.bundle import FOR_EVER, Bundles, closure, join_modules
from dashboard.pages.router import GRAPH
from dashboard.pages.site import SITE_MODULES

NAMES = ["".join(random.sample(string.ascii_lowercase, 6)) for _ in range(4)]


def sources(**more: str) -> dict[str, str]:
    one, two, *_ = NAMES
    return {
        "deck.mjs": f'import Shown from "./{one}/a.mjs";\nimport "./vendor/old.js";\nShown();\n',
        f"{one}/a.mjs": f'import {{ b as c }} from "../{two}/b.mjs";\n\nexport default class A {{\n'
                        '  go() { return import("./late.mjs").then(() => c); }\n}\n',
        f"{one}/late.mjs": "export async function late() {}\n",
        f"{two}/b.mjs": "export const b = 1;\n",
        "vendor/old.js": "globalThis.old = 1;\n",
        **more,
    }


def test_a_module_stands_after_those_that_it_needs_and_brings_what_it_imports_later() -> None:
    one, two, *_ = NAMES
    names = [*closure(sources(unused="export const x = 1;"), ["deck.mjs"])]
    assert names.index(f"{two}/b.mjs") < names.index(f"{one}/a.mjs") < names.index("deck.mjs")
    assert {*names} == {*sources()}
    text = join_modules(closure(sources(), ["deck.mjs"]), "deck.mjs")
    assert f'const {{ b: c }} = use("{two}/b.mjs");' in text
    assert f'const Shown = use("{one}/a.mjs").default;' in text
    assert "return { default: A };" in text
    assert "return { late };" in text
    assert 'later("./late.mjs")' in text
    assert text.rstrip().endswith('use("deck.mjs");')


def test_comments_stay_at_home() -> None:
    """A tenth of what a page loads. What is behind code stays, and so does another's licence."""
    commented = sources(**{"deck.mjs": '// why\n/** Returns it.\n * Twice. */\n'
                                       'export const a = "// no"; // here\n'
                                       'export const c = [\n/** @type {D} */ (1),\n];\n/** d */\n',
                           "vendor/old.js": "/** Somebody's. */\n// MIT\n"})
    text = join_modules(commented, "deck.mjs")
    assert 'const a = "// no"; // here\n' in text
    assert "const c = [\n/** @type {D} */ (1),\n];\n" in text
    assert ("// why" in text, "Twice" in text) == (False, False)
    assert "/** Somebody's. */\n// MIT\n" in text


def test_no_text_looks_like_a_comment() -> None:
    """A line of a template that begins as a comment does would be lost."""
    for path in ASSETS.glob("**/*.mjs"):
        for text in path.read_text().split("`")[1::2]:
            assert not any(line.lstrip().startswith(("//", "/**")) for line in text.splitlines()
                           ), path


@pytest.mark.parametrize("line", [
    'import * as all from "./b.mjs";', 'export * from "./b.mjs";', "export let b = 1;",
    'import { b } from "bare";'])
def test_a_form_that_is_not_known_is_refused_by_name(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)):
        join_modules(sources(**{"deck.mjs": line}), "deck.mjs")


def test_modules_that_need_each_other_are_refused() -> None:
    circle = {"a.mjs": 'import { b } from "./b.mjs";', "b.mjs": 'import { a } from "./a.mjs";'}
    with pytest.raises(ValueError, match="circle"):
        closure(circle, ["a.mjs"])


def test_all_that_lies_in_assets_belongs_to_a_page() -> None:
    bundles = Bundles(ASSETS)
    server = Flask(__name__)
    bundles.serve(server)
    client = server.test_client()
    bundled = set()
    for name, modules in [*((page.key, (page.module,)) for page in PAGES), ("site", SITE_MODULES),
                          ("graph", (GRAPH,))]:
        response = client.get(bundles.script(name, modules))
        assert response.status_code == 200
        assert response.headers["Cache-Control"] == FOR_EVER
        lines = response.text.splitlines()
        assert [line for line in lines if re.match(r"(import|export)\b", line)] == [
            'export async function load(path, from = "deck.mjs") {']
        bundled |= set(re.findall(r'^"([^"]+)"\(later\) \{$', response.text, re.M))
    own_modules = {path.relative_to(ASSETS).as_posix() for path in ASSETS.rglob("*.mjs")
                   if "vendor" not in path.parts}
    assert own_modules <= bundled
    style = client.get(bundles.style).text
    assert all(path.read_text().strip()[-30:] in style for path in (ASSETS / "css").glob("*.css"))
    assert client.get(bundles.style.replace("gpudeck", "else")).status_code == 404


def test_another_source_has_another_address(tmp_path: Path) -> None:
    for name, text in sources().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    first = Bundles(tmp_path).script("x", ())
    assert Bundles(tmp_path).script("x", ()) == first
    (tmp_path / f"{NAMES[1]}/b.mjs").write_text(f"export const b = {random.randrange(2, 99)};\n")
    assert Bundles(tmp_path).script("x", ()) != first
