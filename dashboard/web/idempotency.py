"""`Idempotency-Key` on every POST of the API: a request that is sent twice is done once, and both
times answered alike (draft-ietf-httpapi-idempotency-key-header).

Answers are kept in memory only, for some hold a secret that is shown once. A restarted hub
does not know them; what must never happen twice, a command, has a preview that works once.
"""

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from http import HTTPStatus

from flask import Flask, Response, g, request

from .answers import PREFIX, problem
from .idempotency_cache import IdempotencyCache, IdempotencyStatus, IdempotentResponse

NAME = "Idempotency-Key"
KEY = re.compile("[\x21-\x7e]{1,128}")
KEPT_HEADERS = ("Content-Type", "Location", "Vary")
# Refused for now and without effect: the next time may go well.
NOT_DONE = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


def add_once(server: Flask, credential: Callable[[], str]) -> None:
    """`credential`: of the client; the same key from two of them is two keys."""
    answers, secret = IdempotencyCache(), secrets.token_bytes(32)

    @server.before_request
    def answered_before() -> Response | None:
        key = request.headers.get(NAME)
        if key is None or request.method != "POST" or not request.path.startswith(PREFIX + "/"):
            return None
        if KEY.fullmatch(key) is None:
            return problem(HTTPStatus.BAD_REQUEST,
                           f"{NAME} is 1 to 128 visible ASCII characters, such as a UUID")
        status, response = answers.begin(credential(), key, _digest(secret), time.monotonic())
        if status is IdempotencyStatus.NEW:
            g.once = (credential(), key)
            return None
        return _replay(status, response)

    @server.after_request
    def store_answer(answer: Response) -> Response:
        if "once" in g:
            asker, key = g.pop("once")
            answers.end(asker, key, None if answer.status_code in NOT_DONE else _to_store(answer))
        return answer

    @server.teardown_request
    def release(_: BaseException | None) -> None:
        """Release the key when nobody was answered: a later request must not wait for it."""
        if "once" in g:
            asker, key = g.pop("once")
            answers.end(asker, key, None)


def _digest(secret: bytes) -> bytes:
    """Hash with a secret key: a body may hold a password, whose bare hash must not be kept."""
    digest = hashlib.blake2b(key=secret, digest_size=16)
    digest.update(request.full_path.encode() + b"\n" + request.get_data())
    return digest.digest()


def _to_store(answer: Response) -> IdempotentResponse:
    return IdempotentResponse(answer.status_code,
                              tuple((name, answer.headers[name]) for name in KEPT_HEADERS
                                    if name in answer.headers), answer.get_data())


def _replay(status: IdempotencyStatus, stored: IdempotentResponse | None) -> Response:
    if stored is not None:
        response = Response(stored.body, stored.status, [*stored.headers])
        response.headers["Idempotency-Replayed"] = "true"
        return response
    if status is IdempotencyStatus.OTHER:
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY,
                       f"this {NAME} was used for another request; give each a new one")
    return problem(HTTPStatus.CONFLICT, "the same request is being done; try again in a moment")
