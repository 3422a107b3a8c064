"""Bundler of several ES modules into one: anywidget loads its module from a blob, where relative
imports do not resolve. So the widget draws with the same files as the pages, and without a
build."""

import re
from functools import cache
from pathlib import Path

from gpudeck.contract.action_table import rows_json

HERE = Path(__file__).resolve().parent
ASSETS = HERE.parent / "assets"
MODULES = (*(ASSETS / name for name in (
    "parts/gauges.mjs", "parts/cells.mjs", "parts/cell_pixels.mjs", "parts/focus.mjs",
    "parts/dom.mjs", "parts/format.mjs", "parts/commands.mjs", "actions/action_words.mjs")),
    *(HERE / name for name in ("quota_bars.mjs", "theme.mjs", "acts.mjs", "machine.mjs",
                               "fleet.mjs", "widget.mjs")))

_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|let|function|class) (\w+))", re.M)
_DEFAULT = re.compile(r"^export default ", re.M)
_IMPORT = re.compile(r'^import \{\s([^}]+?),?\s\} from "\.[./]*/(?:\w+/)*(\w+)\.mjs";$', re.M)


@cache
def module() -> str:
    rows = f"export const ROWS = new Map({rows_json()}.map((row) => [row.id, row]));"
    return bundled({"action_table": rows, **{path.stem: path.read_text() for path in MODULES}})


@cache
def claim_module() -> str:
    files = (ASSETS / "parts/focus.mjs", ASSETS / "parts/dom.mjs", HERE / "theme.mjs",
             HERE / "claim.mjs")
    return bundled({path.stem: path.read_text() for path in files})


def bundled(sources: dict[str, str]) -> str:
    """Bundle modules, each in its own scope, in this order; the last one has the default export."""
    for name, source in sources.items():
        if missing := {file for _, file in _IMPORT.findall(source)} - sources.keys():
            raise ValueError(f"{name}.mjs imports from {sorted(missing)}, which is not bundled")
    parts = [_scope(name, source) for name, source in sources.items()]
    last = [*sources][-1]
    return "\n".join([*parts, f"export default ${last}.$default;\n"])


def _scope(name: str, source: str) -> str:
    """Wrap a module in a scope. Names are looked up when they are used: a module may import one
    that comes later."""
    body = _IMPORT.sub(lambda match: f"const {{ {_renamed(match[1])} }} = ${match[2]};", source)
    if stray := re.search(r"^import .*$", body, re.M):
        raise ValueError(f"{name}.mjs: {stray[0]!r} is not bundled; import {{ names }} from a file "
                         "beside it")
    has_default = _DEFAULT.search(body) is not None
    body = _DEFAULT.sub("const $default = ", _EXPORT.sub("", body))
    names = ", ".join([*_EXPORT.findall(source), *(["$default"] if has_default else [])])
    return f"const ${name} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();"


def _renamed(names: str) -> str:
    return names.replace(" as ", ": ")


@cache
def style() -> str:
    """Return the pages' own colours and sizes, inside the widget only; no font is fetched."""
    tokens = re.sub(r"/\*.*?\*/|@font-face \{.*?\}", "", (ASSETS / "css/tokens.css").read_text(),
                    flags=re.S)
    return tokens.replace(":root", ".gpudeck") + (HERE / "widget.css").read_text()
