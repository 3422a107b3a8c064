"""The sign-in page: small, without scripts, and the same for all who are not in."""

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, redirect, request

from .accounts import SESSION_LASTS_S
from .auth import CSRF_COOKIE, Auth, cookie_word, csrf_of
from .core.access import Actor
from .entry import DEVICE_LASTS_S, Asks, Entered, Entry, NotIn
from .passwords import LEAST_LENGTH
from .people import People

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light"><title>{title} - gpudeck</title>
<link rel="icon" href="/assets/favicon.svg" type="image/svg+xml">
<link rel="preload" href="/assets/vendor/inter/inter-latin-wght-normal.woff2" as="font"
type="font/woff2" crossorigin>
<script src="/assets/theme.js"></script>
<link rel="stylesheet" href="/assets/tokens.css"><link rel="stylesheet" href="/assets/deck.css">
</head><body class="sign-in"><main>
<p class="brand"><img src="/assets/favicon.svg" alt="" width="28" height="28">gpudeck</p>
<h1>{title}</h1>
{sentence}
{form}
</main></body></html>
"""
FORM = """<form method="post" action="{action}">
<input type="hidden" name="csrf" value="{csrf}">
{fields}
<button type="submit" class="button first">{button}</button>
</form>
{below}"""
FIELD = """<p><label for="{name}">{label}</label>
<input id="{name}" name="{name}" type="{kind}" autocomplete="{fill}" value="{value}"
 autocapitalize="none" spellcheck="false" maxlength="1024" required{more}></p>"""
ONWARD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>gpudeck</title>
<meta http-equiv="refresh" content="0;url=/"></head><body><a href="/">Go on</a></body></html>"""

LINK = ("<p class=\"aside\">No password, or forgotten? An admin makes a link that works once, on "
        "the machine where the hub runs: <code>gpudeck user link NAME --data DIR</code></p>")
FIRST = ("<p class=\"aside\">This hub has nobody yet. On the machine where it runs, ask for the "
         "first link and open it: <code>gpudeck link --data DIR</code></p>")
STRANGE = "This form was not made here, or is too old. Try again."


@dataclass(frozen=True, slots=True)
class Form:
    title: str
    html: str  # with {csrf} where the form's token goes


class SignIn:
    def __init__(self, auth: Auth, people: People, entry: Entry) -> None:
        self._auth = auth
        self._people = people
        self._entry = entry

    # -- what is asked

    def show(self) -> Response:
        code = request.args.get("code")
        if self._auth.person(request.environ) is not None and code is None:
            return _onward()
        try:
            if code is not None:
                return self._show_code(code)
            vouched = self._auth.vouched_for(request.environ)
            if vouched is not None:
                return self._let_in(self._entry.vouched(vouched, self._asks()))
        except NotIn as refused:
            return self._page(self._password_form(), refused)
        return self._page(self._password_form())

    def _show_code(self, code: str) -> Response:
        user = self._entry.look_at(code)
        if user is None:
            return self._page(self._first_form(code))
        if user.password is None:
            return self._page(self._set_form(code, user.name))
        # A HEAD comes from link previews and must not use the code up.
        if request.method == "HEAD":
            return Response()
        return self._let_in(self._entry.by_code(code, self._asks()))

    def by_password(self) -> Response:
        return self._try(
            lambda: self._entry.by_password(_field("name"), _field("password"), self._asks()),
            lambda: self._password_form(_field("name")))

    def first_admin(self) -> Response:
        code = _field("code")
        return self._try(
            lambda: self._entry.first_admin(code, _field("name"), _field("password"),
                                            _field("again"), self._asks()),
            lambda: self._first_form(code, _field("name")))

    def set_password(self) -> Response:
        code = _field("code")
        return self._try(
            lambda: self._entry.set_password(code, _field("password"), _field("again"),
                                             self._asks()),
            lambda: self._set_form(code, ""))

    def sign_out(self) -> Response:
        actor: Actor = request.environ["gpudeck.actor"]
        self._people.sign_out(actor)
        answer = redirect("/sign-in", 303)
        for name in (self._auth.cookies.session, CSRF_COOKIE):
            answer.delete_cookie(name, path="/", secure=self._auth.cookies.is_secure)
        return answer  # type: ignore[return-value]

    def _try(self, enter: Callable[[], Entered], form: Callable[[], Form]) -> Response:
        try:
            if not self._is_our_form():
                raise NotIn(HTTPStatus.FORBIDDEN, STRANGE)
            return self._let_in(enter())
        except NotIn as refused:
            is_over = refused.status is HTTPStatus.GONE
            return self._page(self._password_form() if is_over else form(), refused)

    def _is_our_form(self) -> bool:
        word = cookie_word(request.environ, self._auth.cookies.form)
        return word is not None and hmac.compare_digest(
            _field("csrf").encode(), self._entry.form_token(word).encode())

    def _asks(self) -> Asks:
        return Asks(request.environ["gpudeck.address"],
                    cookie_word(request.environ, self._auth.cookies.device) or "")

    # -- what is answered

    def _let_in(self, entered: Entered) -> Response:
        answer = _onward()
        give_cookies(answer, self._auth, entered)
        return answer

    def _page(self, form: Form, refused: NotIn | None = None) -> Response:
        word = cookie_word(request.environ, self._auth.cookies.form) or secrets.token_urlsafe(24)
        sentence = "" if refused is None else (
            f'<p class="problem" role="alert">{escape(refused.sentence)}</p>')
        body = PAGE.format(title=form.title, sentence=sentence,
                           form=form.html.replace("{csrf}", self._entry.form_token(word)))
        answer = Response(body, 200 if refused is None else refused.status, mimetype="text/html")
        # With no-referrer, which is the rule elsewhere, a form's own Origin would be sent as null.
        answer.headers["Referrer-Policy"] = "same-origin"
        if refused is not None and refused.retry_s:
            answer.headers["Retry-After"] = str(int(refused.retry_s) + 1)
        _set_cookie(answer, self._auth, self._auth.cookies.form, word, 86_400)
        return answer

    def _password_form(self, name: str = "") -> Form:
        fields = [_text("name", "Name", "username", name, " autofocus"),
                  _text("password", "Password", "current-password", kind="password")]
        return Form("Sign in", _form("/sign-in", fields, "Sign in",
                                     LINK if self._people.users else FIRST))

    def _first_form(self, code: str, name: str = "") -> Form:
        fields = [_hidden(code), _text("name", "Name", "username", name, " autofocus"),
                  *_new_password()]
        return Form("The first admin", "<p>Nobody is known here yet. Choose a name and a password."
                    "</p>" + _form("/sign-in/first", fields, "Make me the admin"))

    def _set_form(self, code: str, name: str) -> Form:
        who = f"<p>You are <strong>{escape(name)}</strong>.</p>" if name else ""
        fields = [_hidden(code), *_new_password()]
        return Form("A password of your own", who.replace("{", "&#123;") + _form(
            "/sign-in/password", fields, "Set the password"))


def add_sign_in(server: Flask, auth: Auth, people: People, entry: Entry) -> None:
    pages = SignIn(auth, people, entry)
    for rule, method, view in (
            ("/sign-in", "GET", pages.show), ("/sign-in", "POST", pages.by_password),
            ("/sign-in/first", "POST", pages.first_admin),
            ("/sign-in/password", "POST", pages.set_password),
            ("/sign-out", "POST", pages.sign_out)):
        server.add_url_rule(rule, f"{method} {rule}", view, methods=[method],
                            provide_automatic_options=False)


def give_cookies(answer: Response, auth: Auth, entered: Entered) -> None:
    lasts_s = int(SESSION_LASTS_S)
    _set_cookie(answer, auth, auth.cookies.session, entered.word, lasts_s)
    # Dash's scripts read this one and send it back as a header.
    _set_cookie(answer, auth, CSRF_COOKIE, csrf_of(entered.word), lasts_s, is_for_scripts=True)
    if entered.device is not None:
        _set_cookie(answer, auth, auth.cookies.device, entered.device, int(DEVICE_LASTS_S))


def _set_cookie(answer: Response, auth: Auth, name: str, word: str, lasts_s: int,
                is_for_scripts: bool = False) -> None:
    answer.set_cookie(name, word, max_age=lasts_s, httponly=not is_for_scripts, path="/",
                      samesite="Strict", secure=auth.cookies.is_secure)


def _onward() -> Response:
    """After a link on another site was followed, Strict cookies come with a navigation that our
    own page began, and with no redirect."""
    if request.headers.get("Sec-Fetch-Site") == "cross-site":
        return Response(ONWARD, mimetype="text/html")
    return redirect("/", 303)  # type: ignore[return-value]


def _field(name: str) -> str:
    return request.form.get(name, "")


def _form(action: str, fields: list[str], button: str, below: str = "") -> str:
    # The token is put in last, when it is known for which cookie.
    return FORM.format(action=action, csrf="{csrf}", fields="\n".join(fields), button=button,
                       below=below)


def _text(name: str, label: str, fill: str, value: str = "", more: str = "", kind: str = "text"
          ) -> str:
    return FIELD.format(name=name, label=label, kind=kind, fill=fill, more=more,
                        value=escape(value[:64]).replace("{", "&#123;"))


def _new_password() -> list[str]:
    length = f' minlength="{LEAST_LENGTH}"'
    label = f"Password (at least {LEAST_LENGTH} characters; three or four words are easiest)"
    return [_text("password", label, "new-password", more=length, kind="password"),
            _text("again", "The same again", "new-password", more=length, kind="password")]


def _hidden(code: str) -> str:
    value: Any = escape(code[:128]).replace("{", "&#123;")
    return f'<input type="hidden" name="code" value="{value}">'
