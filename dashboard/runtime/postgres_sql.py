"""SQL of the stores, which is written for SQLite, in the words of PostgreSQL. Pure."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

# PostgreSQL's parser of JSON refuses the escape of a NUL, which text from a node may hold; and an
# index refuses what is longer than a third of a page.
_CLEAN = r"regexp_replace({0}, '(\\\\)|\\u0000', '\1', 'g')"
_COLUMN = "left({clean}::json ->> '{key}', 500)"
_NUMBER = "({clean}::json ->> '{key}')::double precision"
_GENERATED = re.compile(
    r"(\w+) (real|text) generated always as \(json_extract\((\w+), '\$\.(\w+)'\)\) virtual")
_TABLE = re.compile(r"create table (\w+) \((.*?)\)\s*(without rowid)?;", re.DOTALL)
# `real` has four bytes there, and names of a type of text would sort by the language of the site.
_WORDS = ((r"\bblob\b", "bytea"), (r"\breal\b", "double precision"), (r"\binteger\b", "bigint"),
          (r"\btext\b", 'text collate "C"'), (r"\buser\b", '"user"'))


@lru_cache(1_024)
def query(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


def schema(step: str) -> str:
    """A step of the schema; `rowid` becomes a column where a table has no key but that."""
    made = _TABLE.sub(_table, re.sub(r"--.*", "", step))
    for word, ours in _WORDS:
        made = re.sub(word, ours, made)
    return made


def _table(found: re.Match[str]) -> str:
    name, body, keyed = found.groups()
    body = _GENERATED.sub(_generated, body)
    if not keyed and "primary key" not in body:
        body += ", rowid integer generated always as identity"
    return f"create table {name} ({body});"


def _generated(found: re.Match[str]) -> str:
    name, kind, column, key = found.groups()
    shape = _NUMBER if kind == "real" else _COLUMN
    value = shape.format(clean=_CLEAN.format(column), key=key)
    return f"{name} {kind} generated always as ({value}) stored"


def upsert(table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """All columns, in the order of the table; each row in place of the one with its key."""
    marks = ", ".join(["%s"] * len(columns))
    others = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keys)
    then = f"do update set {others}" if others else "do nothing"
    return (f"insert into {table} ({', '.join(columns)}) values ({marks}) "
            f"on conflict ({', '.join(keys)}) {then}")


def plain(values: Sequence[Any]) -> tuple[Any, ...]:
    """As SQLite takes them: a truth is a number, and a word of an enumeration its text. A NUL, of
    which somebody made a name, is none here."""
    return tuple(int(value) if isinstance(value, bool)
                 else str.__str__(value).replace("\0", "\ufffd") if isinstance(value, str)
                 else value for value in values)
