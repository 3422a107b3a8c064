"""Writes types/hub.d.ts, by which `make lint` checks what the pages' JavaScript reads from the hub.

Each answer of the REST interface, each message of the live socket and each picture of a notebook's
widget is an interface there, made from the struct or TypedDict that is sent.
tests/unit/test_javascript.py compares.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from msgspec import inspect

from gpudeck.contract.action_table import ActionRow
from gpudeck.contract.action_views import ActionPlanView, PreviewView
from gpudeck.contract.actions import ActionParams

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "types" / "hub.d.ts"
HEAD = "// Made by docs/make_types.py from what the hub sends; for `make lint`, and never served."
PLAIN: dict[type[inspect.Type], str] = {
    inspect.AnyType: "any", inspect.BoolType: "boolean", inspect.FloatType: "number",
    inspect.IntType: "number", inspect.NoneType: "null", inspect.StrType: "string"}
MANY = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType)
# Plain maps in Python, whose keys are known nevertheless.
REFINED = {(view, "params"): inspect.type_info(ActionParams)
           for view in (PreviewView, ActionPlanView)}
NAMED = (inspect.StructType, inspect.TypedDictType, inspect.DataclassType)


class TypeWriter:
    """Declarations of all types that it was asked for, by name. `bytes_as`: what bytes become."""

    def __init__(self) -> None:
        self.declarations: dict[str, str] = {}

    def text(self, kind: inspect.Type, bytes_as: str) -> str:
        """Return the TypeScript of a type, and declare what it names."""
        match kind:
            case inspect.Metadata():
                own = (kind.extra or {}).get("typescript")
                return str(own) if own is not None else self.text(kind.type, bytes_as)
            case inspect.BytesType():
                return bytes_as
            case inspect.LiteralType():
                return " | ".join(json.dumps(value) for value in kind.values)
            case inspect.UnionType():
                return " | ".join(dict.fromkeys(self.text(one, bytes_as) for one in kind.types))
            case inspect.DictType():
                return f"Record<string, {self.text(kind.value_type, bytes_as)}>"
            case inspect.TupleType():
                return f"[{', '.join(self.text(one, bytes_as) for one in kind.item_types)}]"
        if isinstance(kind, MANY):
            item = self.text(kind.item_type, bytes_as)
            return f"({item})[]" if " | " in item else f"{item}[]"
        if isinstance(kind, NAMED):
            return self._name(kind, bytes_as)
        return PLAIN[type(kind)]

    def _name(self, kind: Any, bytes_as: str) -> str:
        name: str = kind.cls.__name__
        if isinstance(kind, inspect.StructType) and kind.array_like:
            return f"[{', '.join(self.text(field.type, bytes_as) for field in kind.fields)}]"
        if name not in self.declarations:
            self.declarations[name] = ""  # it may name itself
            rows = "".join(f"    {row};\n" for row in self._rows(kind, bytes_as))
            self.declarations[name] = f"  interface {name} {{\n{rows}  }}\n"
        return name

    def _rows(self, kind: Any, bytes_as: str) -> list[str]:
        """Return the fields. What has a default is sent too, but by structs that omit defaults."""
        is_struct = isinstance(kind, inspect.StructType)
        may_lack = not is_struct or kind.cls.__struct_config__.omit_defaults
        rows = []
        if is_struct and kind.tag is not None:
            rows.append(f"{kind.tag_field}: {json.dumps(kind.tag)}")
        for field in kind.fields:
            mark = "?" if may_lack and not field.required else ""
            value = REFINED.get((kind.cls, field.name), field.type)
            rows.append(f"{field.encode_name}{mark}: {self.text(value, bytes_as)}")
        return rows


def _pattern(verb: str) -> str:
    """Return `GET nodes/<node_id>` as a template literal type."""
    text = re.sub(r"<[^>]+>", "${string}", verb)
    return f"`{text}`" if "$" in text else json.dumps(text)


def _rank(verb: str) -> tuple[bool, int, str]:
    """Order paths so that one stands before those of which it is a case."""
    return "<" in verb, -verb.count("/"), verb


def answers(writer: TypeWriter) -> str:
    """Return the type `Answer` of what `METHOD path` answers; a path may have a query."""
    from dashboard.openapi.document import _answer
    from dashboard.openapi.routes import ROUTES
    from dashboard.pages.rank_map import RankMapData
    from dashboard.web.answers import ProblemDetails
    from widget.pictures import FleetPicture, LeaseOfKernelPicture, MachinePicture

    for own in (ProblemDetails, ActionRow, RankMapData, FleetPicture, MachinePicture,
                LeaseOfKernelPicture):
        writer.text(inspect.type_info(own), "string")
    lines = []
    for route in sorted(ROUTES, key=lambda route: _rank(route.verb)):
        struct = _answer(route)
        kind = "null" if struct is None else writer.text(inspect.type_info(struct), "string")
        lines.append(f"    V extends {_pattern(route.verb)} ? {kind} :")
    rows = "\n".join(lines)
    return ("  /** Answer to a request such as `GET nodes/ID?fields=…`. */\n"
            "  type Answer<V extends string> = V extends `${infer Path}?${string}` ?"
            " PathAnswer<Path> : PathAnswer<V>;\n"
            f"  type PathAnswer<V extends string> =\n{rows}\n    unknown;\n")


def messages(writer: TypeWriter) -> str:
    """Return the interface of the live socket's messages, by their names."""
    from dashboard.live.messages import MESSAGES

    rows = "".join(f"    {name}: {writer.text(inspect.type_info(kind), 'Uint8Array')};\n"
                   for name, kind in MESSAGES.items())
    return f"  /** Messages of the live socket. */\n  interface Messages {{\n{rows}  }}\n"


def declarations() -> str:
    """Return the whole file."""
    writer = TypeWriter()
    tables = answers(writer), messages(writer)
    kinds = [writer.declarations[name] for name in sorted(writer.declarations)]
    text = "\n".join([*tables, *kinds])
    return f"{HEAD}\n\ndeclare namespace Hub {{\n{text}}}\n"


def main() -> int:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(declarations())
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
