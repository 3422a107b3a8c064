"""The current request's actor and its body."""

import re
from http import HTTPStatus
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from flask import request

from ..web.answers import ApiError
from .policy import Actor

T = TypeVar("T")


def caller() -> Actor:
    actor: Actor = request.environ["gpudeck.actor"]
    return actor


def body(kind: type[T]) -> T:
    if request.mimetype != "application/json":
        raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
    try:
        return msgspec.json.decode(request.get_data(), type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, "the body is not valid: "
                       f"{error}{_choices(kind, str(error))}"[:400]) from error


def _choices(kind: type[Any], message: str) -> str:
    """Return the words allowed for the field in an enum error, as a clause; else nothing."""
    match = re.fullmatch(r"Invalid enum value .* - at `\$\.(\w+)`", message)
    hint = None if match is None else get_type_hints(kind).get(match[1])
    words = [word for part in (hint, *get_args(hint)) if get_origin(part) is Literal
             for word in get_args(part)]
    return f"; it is one of {', '.join(map(str, words))}" if words else ""
