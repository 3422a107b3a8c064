"""Pages that people read rather than watch: a view, which stands in the page's address, and a
function that answers what stands on the page. assets/reading/read_page.mjs asks for it, by one Dash
callback for all of these pages, and puts it in place."""

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin
from zoneinfo import ZoneInfo

import dash
import msgspec
from dash import Input, Output

from gpudeck.client.hub import Client
from gpudeck.components import BrowserComponent
from gpudeck.errors import CommandError

from ..access.policy import Role
from .element_tree import Tree, trees
from .site_hub import SiteThreads, ViewersHub

log = logging.getLogger("gpudeck.pages")

ANSWER = "page-answer"
UTC = "UTC"
FAILED = "this page failed; see the hub's log for details"
UNKNOWN_PAGE = "there is no such page"


class View(msgspec.Struct):
    """Choice of what a page shows. Each page has its own, whose fields have defaults: fields that
    differ from them stand in the address. A page may change the view while it answers, such as the
    name of a GPU that it looked up: the address then follows. `zone`: of the viewer's clock."""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset()  # fields too long for an address
    zone: str = UTC


# What stands in a page's frame, by the id of the element there: a text, an element or a list of
# them is its inside, or the element itself if it has that id; None: nothing, and it is hidden; True
# or False: its inside stays, and is shown or hidden. "@tab": the words of the browser's tab.
# "@every": seconds until the page asks again. "@dialog": the title of a dialog that opens with
# this answer, and what stands in it; `data_form` of a button there carries an order out.
# "@order": JSON of an order that the form in the open dialog now sends.
Parts = dict[str, Any]
V = TypeVar("V", bound=View)


@dataclass(frozen=True, slots=True)
class Reading:
    """A page that is read. `answer` gets the hub as the viewer may use it, the view and the time.
    `what`: the page's name in "This … is not up to date"; `path`: the field of the view that the
    page's address ends with, as in /job/ID; `anchor`: the one after the `#` of the address, a
    Literal; `events`: messages of the live socket upon which the page asks again within a
    second."""

    view: type[View]
    answer: Callable[[Client, Any, float], Parts]
    every_s: float = 60.0
    what: str = "page"
    path: str = ""
    events: tuple[str, ...] = ()
    anchor: str = ""


class PageAnswer(BrowserComponent):
    """Question and answer of the module of the page that is shown."""

    PROPS = "id reading asked answer"

    def __init__(self, reading: Reading) -> None:
        usual = addressed(reading.view())
        hidden = {name: value for name, value in msgspec.to_builtins(reading.view()).items()
                  if name in reading.view.UNADDRESSED}
        choices = {field.name: get_args(field.type) for field in msgspec.structs.fields(
            reading.view) if get_origin(field.type) is Literal}
        super().__init__(id=ANSWER, reading=json.dumps({
            "everyS": reading.every_s, "what": reading.what, "usual": usual | hidden,
            "unaddressed": sorted(hidden), "path": reading.path, "events": reading.events,
            "choices": choices, "anchor": reading.anchor}))


class Viewer(msgspec.Struct):
    """The person who views the page. What a page offers follows from it; the hub decides."""

    role: Role
    unix_names: list[str] = []
    name: str = ""

    def may(self, role: Role) -> bool:
        return self.role.covers(role)

    def may_change(self, owner: str | None) -> bool:
        return self.may(Role.OPERATOR) or (self.may(Role.USER) and owner in self.unix_names)


def viewer(client: Client) -> Viewer:
    return msgspec.convert(client.hub.get("me"), Viewer)


def view_from(kind: type[V], request: object) -> V:
    """Return the view that a browser asks for: a field that is missing or not valid has its
    default. Pure."""
    texts: Mapping[Any, Any] = request if isinstance(request, dict) else {}
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.name not in texts:
            continue
        try:
            value = msgspec.convert(texts[field.name], field.type, strict=False)
        except (msgspec.ValidationError, UnicodeError):
            continue
        if not isinstance(value, float) or math.isfinite(value):
            fields[field.name] = value
    view = kind(**fields)
    view.zone = known_zone(view.zone)
    return view


def addressed(view: View) -> dict[str, Any]:
    """Return the fields that stand in the address. Pure."""
    return {name: value for name, value in msgspec.to_builtins(view).items()
            if name != "zone" and name not in view.UNADDRESSED}


def changed(view: View, before: dict[str, Any]) -> dict[str, Any]:
    """Return what the browser must know of the view that was answered: long fields only if they are
    not as before. Pure."""
    return addressed(view) | {name: value for name, value in msgspec.to_builtins(view).items()
                              if name in view.UNADDRESSED and value != before[name]}


def parts_on_wire(parts: Parts) -> dict[str, list[Tree | str] | bool | None]:
    """Return the parts as they are sent. Pure."""
    return {ident: part if part is None or isinstance(part, bool) else trees(part)
            for ident, part in parts.items()}


def news(parts: Mapping[str, Any], have: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the parts that the browser does not have yet, and their digests, by which it names
    what it has. Pure."""
    digests = {ident: hashlib.blake2b(msgspec.json.encode(part), digest_size=9).hexdigest()
               for ident, part in parts.items()}
    new = {ident: digest for ident, digest in digests.items() if have.get(ident) != digest}
    return {"parts": {ident: parts[ident] for ident in new}, "digests": new}


class PageCallbacks:
    """The callback of all pages that are read, in separate threads, so that a site's pages cannot
    block it."""

    def __init__(self, threads: SiteThreads, hub: ViewersHub,
                 readings: Iterable[tuple[str, Reading]], clock: Callable[[], float] = time.time
                 ) -> None:
        self._threads = threads
        self._hub = hub
        self._readings = dict(readings)
        self._clock = clock

    def register(self, app: dash.Dash) -> None:
        app.callback(Output(ANSWER, "answer"), Input(ANSWER, "asked"),
                     prevent_initial_call=True)(self._answer)

    def _answer(self, request: object) -> dict[str, Any]:
        question = request if isinstance(request, dict) else {}
        number, key = question.get("number"), question.get("page")
        reading = self._readings.get(key) if isinstance(key, str) else None
        if reading is None:
            return {"number": number, "problem": UNKNOWN_PAGE}
        try:
            answer = self._page(reading, question.get("view"))
            if isinstance(have := question.get("have"), dict):
                answer |= news(answer["parts"], have)
            return {"number": number, **answer}
        except CommandError as error:
            return {"number": number, "problem": str(error)}
        except Exception:
            log.exception("the page %s failed", key)
            return {"number": number, "problem": FAILED}

    def _page(self, reading: Reading, request: object) -> dict[str, Any]:
        view = view_from(reading.view, request)
        before = msgspec.to_builtins(view)
        parts = self._threads.run(reading.answer, self._hub.frames().client, view, self._clock())
        return {"view": changed(view, before), "parts": parts_on_wire(parts)}


def known_zone(name: str) -> str:
    """Return the name of a time zone, or UTC if there is no such zone. Pure."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return UTC
    return name
