"""Messages of each wire version, byte for byte. A released version's files are never edited.

`python -m tests.contract.test_golden_messages` writes the files that are missing, and no other.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gpudeck.contract.wire import (
    WIRE_VERSION,
    FromAgent,
    FromHub,
    UnknownMessage,
    WireError,
    decode_from_agent,
    decode_from_hub,
    decode_passed,
    encode,
)
from tests.contract.messages import (
    COMMAND,
    DESIRED,
    FROM_AGENT,
    FROM_HUB,
    RULES_COMMAND,
    STATEMENTS,
)

FOLDER = Path(__file__).parent / "golden"
KNOWN: dict[str, FromAgent | FromHub] = {**FROM_AGENT, **FROM_HUB}


def golden(name: str, version: int = WIRE_VERSION) -> Path:
    return FOLDER / f"v{version}" / f"{name}.hex"


def read(path: Path) -> bytes:
    return bytes.fromhex(path.read_text())


@pytest.mark.parametrize("name", KNOWN)
def test_encodes_as_ever(name: str) -> None:
    assert encode(KNOWN[name]) == read(golden(name))


@pytest.mark.parametrize("name", FROM_AGENT)
def test_hub_reads_what_agents_send(name: str) -> None:
    assert decode_from_agent(read(golden(name))) == FROM_AGENT[name]
    assert decode_passed(read(golden(name))) == FROM_AGENT[name]


@pytest.mark.parametrize("name", FROM_HUB)
def test_agent_reads_what_hubs_send(name: str) -> None:
    assert decode_from_hub(read(golden(name))) == FROM_HUB[name]


def test_every_golden_file_is_compared() -> None:
    assert {path.stem for path in (FOLDER / f"v{WIRE_VERSION}").iterdir()} == {
        *KNOWN, *STATEMENTS}


def test_every_field_stands_in_a_golden_message() -> None:
    """Fields that came later too; otherwise nobody notices when their encoding changes."""
    fields_of: dict[type[msgspec.Struct], set[str]] = {}
    _collect((*KNOWN.values(), COMMAND, RULES_COMMAND, DESIRED), fields_of)
    assert {struct.__name__: missing for struct, fields in fields_of.items() if (
        missing := {*struct.__struct_fields__} - fields)} == {}


def _collect(value: Any, fields_of: dict[type[msgspec.Struct], set[str]]) -> None:
    if isinstance(value, msgspec.Struct):
        names = fields_of.setdefault(type(value), set())
        for field in structs.fields(value):
            part = getattr(value, field.name)
            default = field.default_factory() if callable(field.default_factory) else field.default
            if field.required or part != default:
                names.add(field.name)
            _collect(part, fields_of)
    elif isinstance(value, dict | tuple | list):
        for part in value.values() if isinstance(value, dict) else value:
            _collect(part, fields_of)


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_same_is_signed_as_ever(name: str) -> None:
    assert STATEMENTS[name] == read(golden(name))


@pytest.mark.parametrize("name", FROM_AGENT)
def test_a_newer_agents_field_is_tolerated(name: str) -> None:
    message = msgspec.msgpack.decode(read(golden(name)))
    message["a_field_of_the_future"] = {"x": [1, 2, 3]}
    assert decode_from_agent(msgspec.msgpack.encode(message)) == FROM_AGENT[name]


@pytest.mark.parametrize("name", FROM_HUB)
def test_a_newer_hubs_field_is_tolerated(name: str) -> None:
    message = msgspec.msgpack.decode(read(golden(name)))
    message["a_field_of_the_future"] = None
    assert decode_from_hub(msgspec.msgpack.encode(message)) == FROM_HUB[name]


@pytest.mark.parametrize("name", FROM_AGENT)
def test_the_other_sides_messages_are_refused(name: str) -> None:
    with pytest.raises(WireError):
        decode_from_hub(read(golden(name)))


def test_an_unknown_tag_is_of_a_newer_hub() -> None:
    message = msgspec.msgpack.decode(read(golden("ack")))
    message["type"] = "obey"
    assert decode_from_hub(msgspec.msgpack.encode(message)) == UnknownMessage("obey", 7)


if __name__ == "__main__":
    encoded = {name: encode(message) for name, message in KNOWN.items()}
    for name, content in (encoded | STATEMENTS).items():
        if not golden(name).exists():
            golden(name).parent.mkdir(parents=True, exist_ok=True)
            golden(name).write_text(content.hex() + "\n")
