"""Answers as files: CSV and Parquet besides JSON, by `format=` or by Accept."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from flask import Response, request

from ...web.answers import ApiError, answer, one_of
from ..files.parquet import csv_of, parquet_of

Form = Literal["json", "csv", "parquet"]
FORMS: tuple[Form, ...] = ("json", "csv", "parquet")
TYPES: dict[Form, str] = {"json": "application/json", "csv": "text/csv",
                          "parquet": "application/vnd.apache.parquet"}
VARY = "Authorization, Cookie, Accept"
Columns = Mapping[str, Sequence[Any]]
# Names and command lines are hostile: a cell that begins like a formula is run when the file is
# opened (OWASP, CSV injection). Full-width signs are taken for the plain ones by spreadsheets in
# East Asian settings.
STARTS = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001


def defuse(text: str) -> str:
    """Put a quote before a formula, which spreadsheets take for `this is text`. A cell that begins
    with a quote gets one more, so that removing the first one always restores the original."""
    return f"'{text}" if text.startswith((*STARTS, "'")) else text


def requested_form() -> Form:
    """Return the form asked for: `format` decides; without it, Accept does."""
    requested: Form | None = one_of("format", request.args.get("format"), FORMS)
    if requested is not None or not request.accept_mimetypes:
        return requested or "json"
    accepted = request.accept_mimetypes.best_match(TYPES.values())
    for form, kind in TYPES.items():
        if kind == accepted:
            return form
    raise ApiError(HTTPStatus.NOT_ACCEPTABLE, "JSON, CSV and Parquet are served here")


def body_of(form: Form, what: msgspec.Struct, columns_of: Callable[[], Columns]
            ) -> bytes:
    """Encode, in a thread. In Parquet text stays as it is: no spreadsheet runs that."""
    if form == "json":
        return msgspec.json.encode(what)
    columns = columns_of()
    if form == "parquet":
        return parquet_of(columns)
    return csv_of({defuse(name): [defuse(value) if isinstance(value, str) else value
                                  for value in values] for name, values in columns.items()})


def respond_as(form: Form, body: bytes, name: str, start: int, end: int) -> Response:
    if form == "json":
        response = answer(msgspec.Raw(body))
        response.headers["Vary"] = VARY
        return response
    response = Response(body, mimetype=TYPES[form])
    stretch = "_".join(f"{datetime.fromtimestamp(t, UTC):%Y%m%dT%H%MZ}" for t in (start, end))
    response.headers["Content-Disposition"] = (
        f'attachment; filename="gpudeck_{name}_{stretch}.{form}"')
    response.headers["Vary"] = VARY
    return response
