"""The description of the REST interface, at `/api/v1/openapi.json`."""

from flask import Flask, Response

from ..web.answers import PREFIX, answer
from .document import document


def add_openapi(server: Flask) -> None:
    server.add_url_rule(f"{PREFIX}/openapi.json", view_func=openapi, methods=["GET"],
                        provide_automatic_options=False)


def openapi() -> Response:
    return answer(document())
