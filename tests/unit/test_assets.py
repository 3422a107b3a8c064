"""Rules that front-end files keep, read from the source; and that vendored files are pinned."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "assets"
OWN = sorted(path for ending in ("mjs", "js", "css") for path in ASSETS.rglob(f"*.{ending}")
             if "vendor" not in path.parts)
# Text from nodes is hostile, the policy forbids eval, and nothing may come from elsewhere.
FORBIDDEN = (r"\binnerHTML\b", r"\bouterHTML\b", r"insertAdjacentHTML", r"document\.write",
             r"\beval\(", r"new Function\b",
             r"(?:src|href|url\(|from|import\()\s*=?\s*[\"']?https?:")

IMPORTS = re.compile(r"import \{([^}]*)\} from \"(\.[\w./-]+\.mjs)\"")
EXPORTS = re.compile(r"^export (?:default )?(?:async )?(?:const|let|function\*?|class) (\w+)", re.M)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_file_writes_markup_or_reaches_out(path: Path) -> None:
    text = path.read_text()
    assert [rule for rule in FORBIDDEN if re.search(rule, text)] == []
    assert len(text.splitlines()) < 500


def test_gauges_stands_alone() -> None:
    """anywidget loads it from a blob, where relative imports do not resolve."""
    text = (ASSETS / "parts/gauges.mjs").read_text()
    assert not re.search(r"^\s*import\b|\bimport\(", text, re.M)


def test_vendored_files_are_the_pinned_ones_with_their_licences() -> None:
    pinned = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    for name, version in pinned.items():
        assert locked[f"node_modules/{name}"]["version"] == version
    socket = (ASSETS / "vendor/socket.io-client/socket.io.msgpack.min.js").read_text()
    assert f"Socket.IO v{pinned['socket.io-client']}" in socket[:200]
    for folder in (ASSETS / "vendor").iterdir():
        assert (folder / "LICENSE").stat().st_size > 500


def test_what_a_module_imports_is_exported_there() -> None:
    """A page whose module asks for what is not there stays empty."""
    sources = {path: path.read_text() for path in OWN if path.suffix == ".mjs"}
    exported = {name: set(EXPORTS.findall(text)) | {
        word.split(" as ")[-1].strip() for words in re.findall(r"^export \{([^}]*)\}", text, re.M)
        for word in words.split(",")} for name, text in sources.items()}
    imports = [(path.name, (path.parent / source).resolve(), word.split(" as ")[0].strip())
               for path, text in sources.items() for words, source in IMPORTS.findall(text)
               for word in words.split(",") if word.strip() and "vendor" not in source]
    assert len(imports) > 100
    assert [one for one in imports if one[2] not in exported[one[1]]] == []
