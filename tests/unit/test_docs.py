"""The documentation says what the code does: commands, settings, metrics, links, examples."""

import ast
import io
import re
import tokenize
import tomllib
from pathlib import Path

import pytest
from mkdocs.config import load_config
from mkdocs.structure.files import InclusionLevel, get_files, set_exclusions

from agent.backends.simulation.control import parse as parse_control
from dashboard.alerts.rules_file import PACK
from dashboard.alerts.rules_file import parse as parse_rules
from dashboard.fleet.filters import FilterError, parse
from docs.make_architecture import ORDER, SAMPLE, missing, stale
from docs.make_reference import PAGES
from docs.redirects import MOVED, on_post_build
from gpudeck.cli.main import SUMMARY
from gpudeck.errors import ExitCode

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PROSE = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
COMMANDS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
               ["gpudeck.commands"])


@pytest.mark.parametrize("page", PAGES)
def test_reference_pages_are_made_from_the_code(page: str) -> None:
    assert (DOCS / page).read_text() == PAGES[page](), "run: make docs"


def test_the_map_is_made_from_the_code() -> None:
    assert missing((*SAMPLE, *ORDER)) == []
    assert stale() == [], "run: make docs"


def test_every_command_is_documented() -> None:
    documented = set(re.findall(r"^\| `gpudeck (\w+)`", (DOCS / "cli.md").read_text(), re.M))
    assert documented == COMMANDS


def test_every_command_has_its_line_in_the_overview() -> None:
    assert set(SUMMARY) == COMMANDS


def test_exit_codes_are_documented() -> None:
    documented = re.findall(r"^\| (\d+) \|", (DOCS / "cli.md").read_text(), re.M)
    assert {int(code) for code in documented} == {*ExitCode, 130}


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text())
    local = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (path.parent / target).exists()] == []


def test_every_command_named_in_prose_exists() -> None:
    words = {word for path in PROSE if path.name != "CHANGELOG.md"
             for word in re.findall(r"`gpudeck ([a-z]+)", path.read_text())}
    assert words - COMMANDS == set()


def test_every_make_target_named_in_prose_exists() -> None:
    rules = re.findall(r"^([a-z ]+):", (ROOT / "Makefile").read_text(), re.M)
    targets = {target for rule in rules for target in rule.split()}
    words = {word for path in PROSE for word in re.findall(r"`make ([a-z]+)", path.read_text())}
    assert words - targets == set()


def test_every_page_is_in_the_menu_and_on_the_first_page() -> None:
    menu, first = (ROOT / "mkdocs.yml").read_text(), (DOCS / "index.md").read_text()
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in pages if page not in menu} == set()
    assert {page for page in pages if f"]({page})" not in first} == {"index.md"}
    assert "plugins: [search]" in menu, "a list of plugins without it leaves the site without one"


def test_the_site_has_no_scripts_that_make_it() -> None:
    config = load_config(str(ROOT / "mkdocs.yml"))
    files = get_files(config)
    set_exclusions(files, config)
    published = {file.src_uri for file in files if file.inclusion is not InclusionLevel.EXCLUDED}
    assert "index.md" in published
    assert [name for name in published if name.endswith(".py")] == []


def test_pages_that_moved_lead_to_where_they_are(tmp_path: Path) -> None:
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path))
    assert "docs/redirects.py" in config["hooks"]
    on_post_build(config)
    pages = {path.parent.relative_to(tmp_path).as_posix(): path.read_text()
             for path in tmp_path.rglob("index.html")}
    assert pages.keys() == MOVED.keys()
    for old, text in pages.items():
        assert not (DOCS / f"{old}.md").exists(), "a page that is there must not be covered"
        [to] = set(re.findall(r'(?:url=|href=")([^"]+)"', text))
        target = (tmp_path / old / to).resolve().relative_to(tmp_path.resolve())
        assert (DOCS / target).with_suffix(".md").is_file()


def filter_examples() -> list[tuple[str, str | None]]:
    """Return filters that docs/filters.md shows, and sentences that it promises for wrong ones."""
    text = (DOCS / "filters.md").read_text()
    table = [code.replace("\\|", "|") for line in text.splitlines()
             if line.startswith("| `") for code in re.findall(r"`([^`]+)`", line.split(" | ")[0])]
    wrong = re.findall(r"^(\S+) {2,}(.+)$", text.split("with the place:")[1], re.M)
    return [(code, None) for code in table if "…" not in code] + list(wrong)


@pytest.mark.parametrize(("text", "sentence"), filter_examples())
def test_filter_examples_are_true(text: str, sentence: str | None) -> None:
    if sentence is None:
        assert parse(text) is not None
        return
    with pytest.raises(FilterError) as failure:
        parse(text)
    assert failure.value.sentence == sentence


def test_there_are_filter_examples() -> None:
    assert len(filter_examples()) > 12


def test_the_control_file_example_is_obeyed_without_complaint() -> None:
    example = re.findall(r"```json\n(.*?)```", (DOCS / "demo.md").read_text(), re.S)[-1]
    control, complaints = parse_control(example)
    assert complaints == []
    assert control.gpus
    assert control.hung_nodes == {"n002"}
    assert control.leaking_tasks


def test_the_number_of_rules_that_come_along_is_true() -> None:
    counts = set(re.findall(r"the (\d+) rules that come", (DOCS / "rules.md").read_text()))
    counts |= set(re.findall(r"(\d+) shipped rules", (ROOT / "README.md").read_text()))
    assert counts == {str(len(parse_rules(PACK.read_text()).rules))}


def written_by(path: Path) -> str:
    """Comments and docstrings of Python; of other files all."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    comments = [token.string for token in tokenize.generate_tokens(io.StringIO(text).readline)
                if token.type == tokenize.COMMENT]
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text))
                  if isinstance(node, kinds)]
    return "\n".join([*comments, *docstrings])


FOLDERS = ("agent", "assets", "bench", "dashboard", "docs", "gpudeck", "packaging", "tests",
           "widget")
SOURCES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")
           if path.suffix in (".py", ".mjs", ".js", ".css", ".md", ".toml", ".c", ".h", ".yaml")
           and not {"vendor", "captures", "node_modules"} & {*path.parts}] + [ROOT / "Makefile"]
PAGE_NAMES = {path.name for path in SOURCES if path.suffix == ".md"} | {
    path.name for path in ROOT.glob("*.md")}
OF_OTHERS = {"speed_benchmark.md", "resource-tables.md"}  # of repositories that are named with them
CITED = re.compile(r"(?<![\w*/-])[\w-]+\.md\b")
SECTIONS = re.compile(r"\b([\w-]+\.md),? ([A-Z]\.\d+|\d+(?:\.\d+)*)\b")
FILES = re.compile(rf"(?<![\w/.:-])(?:{'|'.join(FOLDERS[:2] + FOLDERS[3:])}|facts|design|findings)/"
                   r"[\w./-]*\.(?:py|mjs|js|md|css|toml|yaml|json|c|h|sh|csv)(?![\w{*])")


def absent(text: str, base: Path) -> list[str]:
    """Pages, their numbered sections, and files that a text cites and that are not in the
    checkout."""
    pages = {name for name in CITED.findall(text) if name not in PAGE_NAMES | OF_OTHERS}
    files = {name for name in FILES.findall(text)
             if not (ROOT / name).exists() and not (base / name).exists()}
    sections = {f"{page} {number}" for page, number in SECTIONS.findall(text)
                if page in PAGE_NAMES and not has_section(page, number)}
    return sorted(pages | sections | {
        name for name in files if Path(name).name not in OF_OTHERS})


def has_section(page: str, number: str) -> bool:
    """Return whether a heading or the row of a table of that page begins with the number."""
    begin = re.compile(rf"^(?:#+|\|) {re.escape(number)}\b", re.M)
    return any(begin.search(path.read_text()) for path in SOURCES if path.name == page)


def test_no_comment_and_no_page_cites_a_file_that_is_not_there() -> None:
    """A reader has this checkout, and no notes of those who wrote it."""
    broken = {path.relative_to(ROOT).as_posix(): names for path in SOURCES
              if (names := absent(written_by(path), path.parent))}
    assert broken == {}


@pytest.mark.parametrize(("text", "names"), [
    ("# As nvml-notes.md A.1 says", ["nvml-notes.md"]), ("see docs/pool.md and pool.md", []),
    ("facts/pool.md 5", ["facts/pool.md", "pool.md 5"]), ("`agent/gone.py`", ["agent/gone.py"]),
    ("pitfalls.md A.1, pitfalls.md 20", []), ("hardware.md 1.2", ["hardware.md 1.2"]),
    ("agent/node.py, dashboard/app.py", [])])
def test_a_file_that_is_not_there_is_seen(text: str, names: list[str]) -> None:
    assert absent(text, ROOT) == names


MODULES = re.compile(r"(?<![\w/.:~-])(?:[\w-]+/)*[\w-]+\.(?:py|mjs)\b(?![\w{*])")
ELSEWHERE = {"train.py", "torchrun.py", "apps/gpu.py"}  # examples, and files of other programs
MODULE_PATHS = [f"/{path.relative_to(ROOT).as_posix()}" for path in SOURCES
                if path.suffix in (".py", ".mjs")]


def absent_modules(text: str) -> list[str]:
    """Return modules that a comment names by the end of their path, and that are not there."""
    return sorted({name for name in MODULES.findall(text) if name not in ELSEWHERE
                   and not any(path.endswith(f"/{name}") for path in MODULE_PATHS)})


def test_no_comment_names_a_module_that_is_not_there() -> None:
    broken = {path.relative_to(ROOT).as_posix(): names for path in SOURCES
              if path.suffix in (".py", ".mjs") and (names := absent_modules(written_by(path)))}
    assert broken == {}


@pytest.mark.parametrize(("text", "names"), [
    ("# as core/slow.py: two may be lost", ["core/slow.py"]), ("see gone.mjs", ["gone.mjs"]),
    ("fleet/gpu_table.py, waste.py and dom.mjs", []), ("/home/a/train.py, kernel.pyc", [])])
def test_a_module_that_is_not_there_is_seen(text: str, names: list[str]) -> None:
    assert absent_modules(text) == names


IN_THE_CHECKOUT = re.compile(
    r"\b((?:packaging|tests|docs|bench|dashboard|agent|widget|assets)/[\w./-]*\w)")


def test_no_sentence_of_a_program_sends_to_what_an_install_has_not() -> None:
    """Found by visitors: three sentences spoke of a unit in packaging/, where none was, and which
    no wheel has. Services are installed by a command."""
    hits = {f"{path.relative_to(ROOT)}: {text}" for program in ("agent", "dashboard", "gpudeck")
            for path in (ROOT / program).rglob("*.py")
            for text in re.findall(r".*packaging/.*", path.read_text())}
    assert hits == set()
    assert [path for path in PROSE if re.search(r"unit in .?packaging", path.read_text())] == []


@pytest.mark.parametrize("path", [page for page in PROSE if page.name != "CHANGELOG.md"],
                         ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_that_prose_names_are_there(path: Path) -> None:
    text = re.sub(r"https?://\S+", "", path.read_text())
    mentioned = {name for code in re.findall(r"`([^`]+)`", text)
                 for name in IN_THE_CHECKOUT.findall(code)}
    assert [name for name in sorted(mentioned) if not any(
        (base / name).exists() for base in (ROOT, path.parent))] == []
