"""Translation of the stores' SQL, which is written for SQLite, to PostgreSQL. Pure."""

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
    """Translate a step of the schema; `rowid` becomes a column where a table has no other key."""
    sql = _TABLE.sub(_table, re.sub(r"--.*", "", step))
    for pattern, replacement in _WORDS:
        sql = re.sub(pattern, replacement, sql)
    return sql


def _table(match: re.Match[str]) -> str:
    name, body, keyed = match.groups()
    body = _GENERATED.sub(_generated, body)
    if not keyed and "primary key" not in body:
        body += ", rowid integer generated always as identity"
    return f"create table {name} ({body});"


def _generated(match: re.Match[str]) -> str:
    name, kind, column, key = match.groups()
    shape = _NUMBER if kind == "real" else _COLUMN
    value = shape.format(clean=_CLEAN.format(column), key=key)
    return f"{name} {kind} generated always as ({value}) stored"


def upsert(table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """Return SQL that inserts rows, each in place of the one with its key. `columns`: all of them,
    in the order of the table."""
    marks = ", ".join(["%s"] * len(columns))
    assignments = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keys)
    then = f"do update set {assignments}" if assignments else "do nothing"
    return (f"insert into {table} ({', '.join(columns)}) values ({marks}) "
            f"on conflict ({', '.join(keys)}) {then}")


def plain(values: Sequence[Any]) -> tuple[Any, ...]:
    """Convert values as SQLite takes them: a truth value is a number, and a word of an enumeration
    its text. A NUL that somebody put into a name becomes U+FFFD."""
    return tuple(int(value) if isinstance(value, bool)
                 else str.__str__(value).replace("\0", "\ufffd") if isinstance(value, str)
                 else value for value in values)
