"""The pages' JavaScript: pure modules under node, and the types by which `make lint` checks it."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.make_types import FILE, declarations
from tests.javascript import ASSETS, ROOT, TOOLS, main, run
from tests.machine import required_node_modules

CONFIG = json.loads((ROOT / "tsconfig.json").read_text())
MODULES = [path for folder in (ASSETS, ROOT / "widget") for path in folder.rglob("*.*js")
           if "vendor" not in path.parts]


def test_pure_modules() -> None:
    files = sorted((ROOT / "tests/js").glob("*.test.mjs"))
    result = run("--test", "--test-isolation=none", "--test-reporter=tap", *files)
    assert result.returncode == 0, result.stdout
    assert int(re.search(r"^# pass (\d+)$", result.stdout, re.M)[1]) >= 10  # type: ignore[index]


def test_types_are_those_that_the_hub_sends() -> None:
    assert FILE.read_text() == declarations(), "make docs"


def test_all_is_checked() -> None:
    assert CONFIG["include"] == ["types", "assets", "widget"]
    assert CONFIG["compilerOptions"]["strict"]
    assert CONFIG["compilerOptions"]["checkJs"]


@pytest.mark.parametrize("tool", ["tsc", "eslint", "prettier"])
@pytest.mark.parametrize(("status", "output"), [
    (0, ""), (2, "assets/deck.mjs(1,2): error TS1: one"), (1, "error TS5: two"), (2, ""),
    (-9, "assets/deck.mjs(1,2): error TS1: one"), (134, "heap out of memory"), (0, "a warning")])
def test_only_what_ends_well_without_a_word_passes(
        tool: str, status: int, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = {"tsc": ROOT / "package.json", "eslint": ROOT / "eslint.config.mjs",
             "prettier": ROOT / ".prettierrc.json"}  # are there

    def outcome(path: Path, *_: object) -> subprocess.CompletedProcess[str]:
        is_it = path == tools[tool]
        return subprocess.CompletedProcess([], status if is_it else 0, output if is_it else "", "")

    monkeypatch.setattr("tests.javascript.TOOLS", tools)
    monkeypatch.setattr("tests.javascript.run", outcome)
    assert main() == int(status != 0 or output != "")


def test_modules_are_installed_where_they_are_not(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for at, name in enumerate((".venv/.made", "pyproject.toml", ".venv/.hub", ".venv/.dev",
                               "package-lock.json", "node_modules/.package-lock.json")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1_700_000_000 + at,) * 2)

    # What another make, which runs this test, was told is not meant for this one.
    env = {name: value for name, value in os.environ.items() if name not in (
        "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL")}

    def commands() -> str:
        return subprocess.run(["make", "-n", "lint"], cwd=tmp_path, text=True, timeout=60, env=env,
                              capture_output=True, check=True).stdout

    assert "ruff" in commands()
    assert "npm-cli.js" not in commands()
    shutil.rmtree(tmp_path / "node_modules")
    assert "npm-cli.js" in commands()


PLANTED = (
    ('const { items } = await look("nodes?limit=1"); items[0].host;', None),
    ('const { items } = await look("nodes?limit=1"); items[0].hots;', "'hots' does not exist"),
    ("const { stat } = await look(`gpus/${name}`); stat;", "'stat' does not exist"),
    ('const { id } = await send("DELETE", "hold"); id;', "'id' does not exist"),
    ('live.addEventListener("totals", ({ detail }) => detail.gpus.sum);', "'sum' does not exist"),
    ('live.addEventListener("alert", ({ detail }) => placeOf(detail));', None),
    ('live.addEventListener("alert", ({ detail }) => placeOf({ ...detail, host: detail.hots }));',
     "'hots' does not exist"),
    ('const { items } = await look(`nodes/${name}/quotas`); useWords(items[0].holders[0]);', None),
    ('const { items } = await look(`nodes/${name}/quotas`); items[0].is_inforce;',
     "'is_inforce' does not exist"),
    ('const page = new JobPage(...parts); page.map?.metrics[name].row;', "'row' does not exist"),
    ('const [widget] = views; new Machine(widget).show({ ...here, gpus: [] }, "dark");', None),
    ('here.ram.avail;', "'avail' does not exist"),
    ('fleet.rows[0].hosts;', "'hosts' does not exist"),
)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Findings of tsc in a module for each of PLANTED, by one run."""
    required_node_modules(ROOT)
    folder = tmp_path_factory.mktemp("planted")
    for number, (source, _) in enumerate(PLANTED):
        (folder / f"planted_{number}.mjs").write_text(
            f'import {{ look, send }} from "{ROOT}/assets/parts/api.mjs";\n'
            f'import {{ placeOf }} from "{ROOT}/assets/alerts/alert_words.mjs";\n'
            f'import {{ useWords }} from "{ROOT}/widget/quota_bars.mjs";\n'
            f'import JobPage from "{ROOT}/assets/jobs/job.mjs";\n'
            f'import {{ Machine }} from "{ROOT}/widget/machine.mjs";\n'
            "/** @type {(name: string, live: LiveLink, here: Hub.MachinePicture, "
            "fleet: Hub.FleetPicture, parts: ConstructorParameters<typeof JobPage>, "
            "views: ConstructorParameters<typeof Machine>) => Promise<void>} */\n"
            "export async function plant(name, live, here, fleet, parts, views) "
            f"{{ {source} }}\n")
    (folder / "tsconfig.json").write_text(json.dumps({
        "extends": str(ROOT / "tsconfig.json"), "compilerOptions": {"types": []},
        "include": [str(ROOT / "types"), str(folder)]}))
    lines = run(TOOLS["tsc"], "-p", folder).stdout.splitlines()
    assert not any(line.startswith("error") for line in lines), lines  # of the settings
    return lines


@pytest.mark.parametrize("number", range(len(PLANTED)))
def test_a_typo_in_a_field_of_an_answer_is_found(number: int, findings: list[str]) -> None:
    source, problem = PLANTED[number]
    mine = [line for line in findings if f"planted_{number}.mjs" in line]
    assert len(mine) == (0 if problem is None else 1), (source, mine)
    assert problem is None or problem in mine[0]


def test_no_finding_is_silenced() -> None:
    words = re.compile(r"@ts-(?:ignore|expect-error|nocheck)|eslint-disable")
    assert [path.name for path in MODULES if words.search(path.read_text())] == []
