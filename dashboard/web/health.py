"""`/healthz` and `/readyz`."""

from collections.abc import Callable

from flask import Flask, Response


def add_health(server: Flask, unready: Callable[[], str | None]) -> None:
    @server.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", mimetype="text/plain")

    @server.get("/readyz")
    def readyz() -> Response:
        why = unready()
        return Response("ok\n" if why is None else why + "\n", 200 if why is None else 503,
                        mimetype="text/plain")
