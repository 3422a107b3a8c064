"""Preconditions in HTTP headers: a change applies to the version that its author saw."""

from http import HTTPStatus

from flask import request

from .answers import ApiError


def exists_sentence(what: str, name: str) -> str:
    return f"there is a {what} {name[:80]!r} already: choose another id, or change that one"


def check(what: str, name: str, number: int | None) -> None:
    """Check the headers. `number`: of the present version, None where there is none. A request
    without these headers changes any version."""
    if request.headers.get("If-None-Match", "").strip() == "*" and number is not None:
        raise ApiError(HTTPStatus.PRECONDITION_FAILED, exists_sentence(what, name))
    if_match = request.headers.get("If-Match")
    if if_match is None or (if_match.strip() == "*" and number is not None):
        return
    if number is None:
        raise ApiError(HTTPStatus.PRECONDITION_FAILED, f"the {what} {name[:80]!r} was removed "
                       "in the meantime: create a new one to have it again")
    if if_match.strip() != f'"{number}"':
        raise ApiError(HTTPStatus.PRECONDITION_FAILED, f"the {what} {name[:80]!r} was changed "
                       f"in the meantime (it is at {number}): reload it, then change it")
