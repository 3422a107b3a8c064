"""Answers of the REST interface: JSON, problem+json, cursors and the parameters all lists share."""

import base64
import hashlib
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from flask import Response, request

MAX_LIMIT = 1_000


MAX_CURSOR = 512


MAX_REPEATED = 100


class ProblemDetails(msgspec.Struct):
    """Problem details of RFC 9457: what is wrong and what to do."""

    type: str
    title: str
    status: int
    detail: str


PREFIX = "/api/v1"


DEFAULT_LIMIT = 100


REPEATED = ("open", "id", "uuid")


_encode = msgspec.json.Encoder().encode


T = TypeVar("T")
W = TypeVar("W", bound=str)
Key = tuple[str, ...]


class ApiError(Exception):
    """The request cannot be answered; the answer says why."""

    def __init__(self, status: int, detail: str, type: str = "about:blank") -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.type = type


def check_names(parameters: tuple[str, ...]) -> None:
    args = request.args
    for name in args:
        if name not in parameters:
            raise bad(f"there is no parameter {name[:40]!r}; there are {', '.join(parameters)}")
        if len(args.getlist(name)) > (MAX_REPEATED if name in REPEATED else 1):
            raise bad(f"at most {MAX_REPEATED} times {name} is accepted at once" if name in REPEATED
                      else f"{name} is given more than once")


def one_of(name: str, value: str | None, choices: tuple[W, ...]) -> W | None:
    for word in choices:
        if word == value:
            return word
    if value is not None:
        raise bad(f"{name} is one of {', '.join(choices)}")
    return None


def bad(detail: str) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, detail)


def read_limit(raw: str | None, default: int = DEFAULT_LIMIT) -> int:
    if raw is None:
        return default
    if not raw.isascii() or not raw.isdigit() or len(raw) > 6 or not 1 <= int(raw) <= MAX_LIMIT:
        raise bad(f"limit is a whole number from 1 to {MAX_LIMIT}")
    return int(raw)


def read_cursor(raw: str | None) -> Key | None:
    if raw is None:
        return None
    try:
        if len(raw) > MAX_CURSOR:
            raise ValueError
        data = base64.urlsafe_b64decode(raw.encode("ascii"))
        return msgspec.json.decode(data, type=tuple[str, ...])
    except ValueError as error:
        raise bad("this cursor is not from this hub; start again without it") from error


def cursor_of(key: Key) -> str:
    return base64.urlsafe_b64encode(_encode(key)).decode()


def page(items: Iterable[tuple[Key, T]], limit: int, after: Key | None) -> tuple[list[T],
                                                                                 str | None]:
    """Return a page of items, and the cursor of the next page or None. Items come with their keys;
    a cursor is the key of the last item returned. `after`: the key behind which this page begins,
    of items sorted by key."""
    selected: list[tuple[Key, T]] = []
    for key, item in items:
        if after is not None and key <= after:
            continue
        if len(selected) == limit:
            return [item for _, item in selected], cursor_of(selected[-1][0])
        selected.append((key, item))
    return [item for _, item in selected], None


def answer(what: Any, status: int = HTTPStatus.OK) -> Response:
    if request.accept_mimetypes and not request.accept_mimetypes.best_match(["application/json"]):
        raise ApiError(HTTPStatus.NOT_ACCEPTABLE, "only application/json is served here")
    body = _encode(what)
    response = Response(body, status, mimetype="application/json")
    response.headers["Vary"] = "Authorization, Cookie"
    if request.method not in ("GET", "HEAD"):
        return response
    response.set_etag(hashlib.blake2b(body, digest_size=12).hexdigest())
    return response.make_conditional(request)  # type: ignore[return-value]


def problem(status: int, detail: str, type: str = "about:blank") -> Response:
    title = HTTPStatus(status).phrase
    return Response(_encode(ProblemDetails(type, title, status, detail)), status,
                    mimetype="application/problem+json")
