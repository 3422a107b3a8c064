"""What a record of an Audit says, the hub's or a node's, to people. Pure."""

from typing import Any

import msgspec

from gpudeck.chain import Link

Body = dict[str, Any]
SPOILED = "this record was changed and is not readable"


def content(link: Link) -> Body | None:
    """None: somebody has spoiled it."""
    try:
        return msgspec.json.decode(link.body, type=Body)
    except msgspec.MsgspecError:
        return None


def word(body: Body, name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) else None


def actor_of(body: Body) -> str | None:
    """A node's records carry the whole Asker."""
    asker = body.get("asker")
    told = word(asker, "name") if isinstance(asker, dict) else None
    return word(body, "actor") or told


def outcome_of(body: Body) -> str | None:
    return word(body, "outcome") or word(body, "state")


def sentence_of(body: Body) -> str:
    told = word(body, "sentence")
    if told:
        return told
    refusal = body.get("refusal")
    why = word(refusal, "sentence") if isinstance(refusal, dict) else word(body, "step")
    said = (actor_of(body), word(body, "kind"), word(body, "action"), outcome_of(body))
    return " ".join(part for part in said if part) + (f": {why}" if why else "")
