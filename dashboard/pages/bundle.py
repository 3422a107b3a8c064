"""What a page loads as two files, a module and a style sheet, joined from `assets/` by the hub: the
sources are what runs, without their comments; nothing is built and nothing can be out of date."""

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
VENDOR = "vendor/"  # of which the default is taken alone
ICONS = "/assets/favicon"
FOR_AN_HOUR = "public, max-age=3600"
FOR_EVER = "public, max-age=31536000, immutable"  # its name changes with what is in it

_IMPORT = re.compile(r'^import (?:\{ ([^}]+) \} from |(\w+) from )?"(\.[^"]+)";$', re.M)
_LATER = re.compile(r'\bimport\("(\.[^"]+)"\)')
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.M)
_DEFAULT = re.compile(r"^export default class (\w+)", re.M)
_DEFAULT_NAME = re.compile(r"^export \{ (\w+) as default \};$", re.M)
_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:.|\n)*?\*/)[ \t]*\n", re.M)
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


def joined(sources: Mapping[str, str], first: str) -> str:
    """Pure. Each module in a function of its own, which runs when it is first asked for; then
    `first` runs."""
    parts = ",\n".join(f"{_quoted(name)}(later) {{\n{_body(name, sources)}\n}}" for name in sources)
    return f"const modules = {{\n{parts}\n}};\n{LOADER}\nuse({_quoted(first)});\n"


def closure(sources: Mapping[str, str], wanted: Iterable[str]) -> dict[str, str]:
    """Pure. With all that they import, now or later; a module after those that it needs."""
    found: dict[str, str] = {}
    stack: list[str] = []

    def visit(name: str) -> None:
        if name in stack:
            raise ValueError(f"modules import each other in a circle: {[*stack, name]}")
        if name in found:
            return
        stack.append(name)
        for *_, path in _IMPORT.findall(sources[name]):
            visit(_resolved(path, name))
        stack.pop()
        found[name] = sources[name]
        for path in _LATER.findall(sources[name]):
            visit(_resolved(path, name))

    for name in wanted:
        visit(name)
    return found


def _body(name: str, sources: Mapping[str, str]) -> str:
    source = sources[name] if name.startswith(VENDOR) else _COMMENT.sub("", sources[name])

    def taken(found: re.Match[str]) -> str:
        module = f"use({_quoted(_resolved(found[3], name))})"
        if found[1]:
            return f"const {{ {found[1].replace(' as ', ': ')} }} = {module};"
        return f"const {found[2]} = {module}.default;" if found[2] else f"{module};"

    named = [] if name.startswith(VENDOR) else _EXPORT.findall(source)
    default = [*_DEFAULT.findall(source), *_DEFAULT_NAME.findall(source)]
    given = [*named, *(f"default: {of}" for of in default)]
    body = _IMPORT.sub(taken, source)
    body = _DEFAULT_NAME.sub("", _DEFAULT.sub(r"class \1", _EXPORT.sub("", body)))
    if stray := _STRAY.search(body):
        raise ValueError(f"assets/{name}: {stray[0]!r} is a form that is not known to "
                         "dashboard/pages/bundle.py")
    body = re.sub(r"\bimport\(", "later(", body)
    return f"{body}\nreturn {{ {', '.join(given)} }};"


def _resolved(path: str, name: str) -> str:
    return normpath(join(dirname(name), path))


def _quoted(name: str) -> str:
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
        """The address of all that `modules` need, and of what every page begins with."""
        wanted = (FIRST, *modules)
        if wanted not in self._scripts:
            text = joined(closure(self._sources, wanted), FIRST)
            self._scripts[wanted] = self._serve(name, "mjs", text, "text/javascript")
        return self._scripts[wanted]

    @cached_property
    def style(self) -> str:
        text = "\n".join(_STYLE_COMMENT.sub("", path.read_text())
                         for path in sorted((self._assets / "css").glob("*.css")))
        text = _ICON.sub(lambda found: self._inline(found[1]), text)
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
        def keep_icons(answer: Response) -> Response:
            # A page shows its icon in several places, and asked for it anew at each.
            if request.path.startswith(ICONS) and answer.status_code == HTTPStatus.OK:
                answer.headers["Cache-Control"] = FOR_AN_HOUR
            return answer
