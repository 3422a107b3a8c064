"""The two files that a page loads, a module and a style sheet, joined from `assets/` by the hub.
The sources run as they are, without comments; nothing is built, so nothing can be out of date."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from posixpath import dirname, join, normpath

from flask import Flask, Response, abort, request

ADDRESS = "/assets/bundle/"
FIRST = "deck.mjs"
VENDOR = "vendor/"  # only its modules' default exports are used
ICONS = "/assets/favicon"
FOR_AN_HOUR = "public, max-age=3600"
FOR_EVER = "public, max-age=31536000, immutable"  # the file's name changes with its content

_IMPORT = re.compile(r'^import (?:\{\s([^}]+?),?\s\} from |(\w+) from )?"(\.[^"]+)";$', re.M)
_LATER = re.compile(r'\bimport\("(\.[^"]+)"\)')
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.M)
_DEFAULT = re.compile(r"^export default class (\w+)", re.M)
_DEFAULT_NAME = re.compile(r"^export \{ (\w+) as default \};$", re.M)
_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:(?!\*/)[\s\S])*\*/)[ \t]*\n", re.M)
_STYLE_COMMENT = re.compile(r"/\*(?:.|\n)*?\*/\s*")
_STRAY = re.compile(r"^(?:import|export)\b.*$", re.M)
_ICON = re.compile(r'url\("\.\./(icons/[\w-]+\.svg)"\)')

LOADER = """
const made = new Map();
function use(name) {
  if (!made.has(name)) made.set(name, modules[name]((path) => load(path, name)));
  return made.get(name);
}
/** A module by its path in `assets/`, or as the module `from` names it. */
export async function load(path, from = "deck.mjs") {
  return use(new URL(path, `http://a/${from}`).pathname.slice(1));
}
"""


def join_modules(sources: Mapping[str, str], first: str) -> str:
    """Join modules into one text, each in a function that runs when it is first imported; `first`
    runs at once. Pure."""
    parts = ",\n".join(f"{_quote(name)}(later) {{\n{_body(name, sources)}\n}}" for name in sources)
    return f"const modules = {{\n{parts}\n}};\n{LOADER}\nuse({_quote(first)});\n"


def closure(sources: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the modules with all that they import, statically or later; each after those it needs.
    Pure."""
    modules: dict[str, str] = {}
    stack: list[str] = []

    def visit(name: str) -> None:
        if name in stack:
            raise ValueError(f"modules import each other in a circle: {[*stack, name]}")
        if name in modules:
            return
        stack.append(name)
        for *_, path in _IMPORT.findall(sources[name]):
            visit(_resolve(path, name))
        stack.pop()
        modules[name] = sources[name]
        for path in _LATER.findall(sources[name]):
            visit(_resolve(path, name))

    for name in names:
        visit(name)
    return modules


def _body(name: str, sources: Mapping[str, str]) -> str:
    source = sources[name] if name.startswith(VENDOR) else _COMMENT.sub("", sources[name])

    def use_line(match: re.Match[str]) -> str:
        module = f"use({_quote(_resolve(match[3], name))})"
        if match[1]:
            return f"const {{ {match[1].replace(' as ', ': ')} }} = {module};"
        return f"const {match[2]} = {module}.default;" if match[2] else f"{module};"

    exports = [] if name.startswith(VENDOR) else _EXPORT.findall(source)
    default = [*_DEFAULT.findall(source), *_DEFAULT_NAME.findall(source)]
    entries = [*exports, *(f"default: {of}" for of in default)]
    body = _IMPORT.sub(use_line, source)
    body = _DEFAULT_NAME.sub("", _DEFAULT.sub(r"class \1", _EXPORT.sub("", body)))
    if stray := _STRAY.search(body):
        raise ValueError(f"assets/{name}: {stray[0]!r} is a form that is not known to "
                         "dashboard/pages/bundle.py")
    body = re.sub(r"\bimport\(", "later(", body)
    return f"{body}\nreturn {{ {', '.join(entries)} }};"


def _resolve(path: str, name: str) -> str:
    return normpath(join(dirname(name), path))


def _quote(name: str) -> str:
    return f'"{name}"'


class Bundles:
    """The files of all pages, by the names under which they are served."""

    def __init__(self, assets: Path) -> None:
        self._assets = assets
        self._served: dict[str, tuple[str, str]] = {}  # text, type
        self._scripts: dict[tuple[str, ...], str] = {}

    @cached_property
    def _sources(self) -> dict[str, str]:
        return {path.relative_to(self._assets).as_posix(): path.read_text()
                for pattern in ("**/*.mjs", "vendor/**/*.js")
                for path in sorted(self._assets.glob(pattern))}

    def script(self, name: str, modules: Iterable[str]) -> str:
        """Return the address of a script with FIRST, `modules` and all that they need."""
        names = (FIRST, *modules)
        if names not in self._scripts:
            text = join_modules(closure(self._sources, names), FIRST)
            self._scripts[names] = self._serve(name, "mjs", text, "text/javascript")
        return self._scripts[names]

    @cached_property
    def style(self) -> str:
        text = "\n".join(_STYLE_COMMENT.sub("", path.read_text())
                         for path in sorted((self._assets / "css").glob("*.css")))
        text = _ICON.sub(lambda match: self._inline(match[1]), text)
        return self._serve("gpudeck", "css", text, "text/css")

    def _inline(self, icon: str) -> str:
        data = base64.b64encode((self._assets / icon).read_bytes()).decode()
        return f'url("data:image/svg+xml;base64,{data}")'

    def _serve(self, name: str, ending: str, text: str, kind: str) -> str:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        file = f"{name}.{digest}.{ending}"
        self._served[file] = text, kind
        return ADDRESS + file

    def serve(self, server: Flask) -> None:
        @server.get(f"{ADDRESS}<file>")
        def bundle(file: str) -> Response:
            if file not in self._served:
                abort(HTTPStatus.NOT_FOUND)
            text, kind = self._served[file]
            return Response(text, mimetype=kind, headers={"Cache-Control": FOR_EVER})

        @server.after_request
        def cache_icons(answer: Response) -> Response:
            # A page shows an icon in several places and would request it again for each.
            if request.path.startswith(ICONS) and answer.status_code == HTTPStatus.OK:
                answer.headers["Cache-Control"] = FOR_AN_HOUR
            return answer
