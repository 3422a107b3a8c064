"""Signing in and out: one small page without Dash, and the cookie."""

from flask import Flask, Response, redirect, request

from .auth import CSRF_COOKIE, Actor, Auth
from .state import SESSION_LASTS_S

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light"><title>Sign in - gpudeck</title>
<link rel="icon" href="/assets/favicon.svg" type="image/svg+xml">
<link rel="preload" href="/assets/vendor/inter/inter-latin-wght-normal.woff2" as="font"
type="font/woff2" crossorigin>
<script src="/assets/theme.js"></script>
<link rel="stylesheet" href="/assets/tokens.css"><link rel="stylesheet" href="/assets/deck.css">
</head><body class="sign-in"><main>
<p class="brand"><img src="/assets/favicon.svg" alt="" width="28" height="28">gpudeck</p>
<h1>{sentence}</h1>
<p>On the machine where the hub runs, ask for a new link and open it here:</p>
<p class="command"><code>gpudeck link --data DIR</code></p>
<p>DIR is the hub's data folder. A link works once, for ten minutes.</p>
</main></body></html>
"""
USED = "This link has been used already, or is too old."
NEEDED = "You are not signed in."


def add_sign_in(server: Flask, auth: Auth) -> None:
    @server.get("/sign-in")
    def sign_in() -> Response:
        code = request.args.get("code")
        if code is None:
            return _page(NEEDED)
        # A HEAD comes from link previews and must not use the code up.
        signed_in = None if request.method == "HEAD" else auth.sign_in(code)
        if signed_in is None:
            return _page(USED)
        word, session = signed_in
        answer = redirect("/", 303)
        answer.set_cookie(auth.cookie, word, max_age=int(SESSION_LASTS_S), httponly=True,
                          samesite="Strict", path="/")
        answer.set_cookie(CSRF_COOKIE, session.csrf, max_age=int(SESSION_LASTS_S),
                          samesite="Strict", path="/")
        return answer  # type: ignore[return-value]

    @server.post("/sign-out")
    def sign_out() -> Response:
        actor: Actor = request.environ["gpudeck.actor"]
        if actor.session is not None:
            auth.sign_out(actor.session)
        answer = redirect("/sign-in", 303)
        answer.delete_cookie(auth.cookie, path="/")
        answer.delete_cookie(CSRF_COOKIE, path="/")
        return answer  # type: ignore[return-value]


def _page(sentence: str) -> Response:
    return Response(PAGE.format(sentence=sentence), mimetype="text/html")
