"""Signing in and out: what each form does, and the cookies."""

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from flask import Flask, Response, redirect, request

from .credentials import DEVICE_LASTS_S, SignInError, SignInOrigin, SignInResult
from .gate import RequestAuthenticator, cookie_word, csrf_of
from .policy import Actor, Role
from .services import AccessServices
from .sign_in_page import ONWARD, SignInForm, first_form, page, password_form, set_form
from .store import SESSION_LASTS_S

MY_WORK = "/work"
STRANGE = "This form is not from this hub, or is too old. Try again."


@dataclass(eq=False, slots=True)
class SignInRoutes:
    auth: RequestAuthenticator
    access: AccessServices
    has_oidc: bool
    end_url: Callable[[str], str | None]  # of a session begun at the site's provider

    # -- requests

    def show(self) -> Response:
        code = request.args.get("code")
        if self.auth.person(request.environ) is not None and code is None:
            return redirect_to()
        try:
            if code is not None:
                return self._show_code(code)
            proxy_user = self.auth.proxy_user(request.environ)
            if proxy_user is not None:
                return self._let_in(self.access.credentials.by_proxy(proxy_user, self._origin()))
        except SignInError as error:
            return self._page(self._password_form(), error)
        return self._page(self._password_form())

    def _show_code(self, code: str) -> Response:
        user = self.access.credentials.user_of_code(code)
        if user is None:
            return self._page(first_form(code))
        if user.password is None:
            return self._page(set_form(code, user.name))
        # A HEAD comes from link previews and must not use the code up.
        if request.method == "HEAD":
            return Response()
        return self._let_in(self.access.credentials.by_code(code, self._origin()))

    def by_password(self) -> Response:
        return self._try(
            lambda: self.access.credentials.by_password(_field("name"), _field("password"),
                                                  self._origin()),
            lambda: self._password_form(_field("name")))

    def first_admin(self) -> Response:
        code = _field("code")
        return self._try(
            lambda: self.access.credentials.first_admin(code, _field("name"), _field("password"),
                                            _field("again"), self._origin()),
            lambda: first_form(code, _field("name")))

    def set_password(self) -> Response:
        code = _field("code")
        return self._try(
            lambda: self.access.credentials.set_password(code, _field("password"), _field("again"),
                                             self._origin()),
            lambda: set_form(code, _field("name")))

    def sign_out(self) -> Response:
        actor: Actor = request.environ["gpudeck.actor"]
        onward_to = self.end_url(actor.credential)
        self.access.sessions.sign_out(actor)
        answer = redirect("/sign-in", 303) if onward_to is None else Response(
            onward_to, mimetype="text/plain")  # a script must not be led to another site
        for name in (self.auth.cookies.session, self.auth.cookies.csrf):
            answer.delete_cookie(name, path="/", secure=self.auth.cookies.is_secure)
        return answer  # type: ignore[return-value]

    def _try(self, enter: Callable[[], SignInResult],
             form: Callable[[], SignInForm | None]) -> Response:
        try:
            if not self._is_our_form():
                raise SignInError(HTTPStatus.FORBIDDEN, STRANGE)
            return self._let_in(enter())
        except SignInError as error:
            is_over = error.status is HTTPStatus.GONE
            return self._page(self._password_form() if is_over else form(), error)

    def _is_our_form(self) -> bool:
        word = cookie_word(request.environ, self.auth.cookies.form)
        return word is not None and hmac.compare_digest(
            _field("csrf").encode(), self.access.credentials.form_token(word).encode())

    def _origin(self) -> SignInOrigin:
        return SignInOrigin(request.environ["gpudeck.address"],
                            cookie_word(request.environ, self.auth.cookies.device) or "")

    # -- answers

    def _let_in(self, sign_in: SignInResult) -> Response:
        answer = redirect_to(self.home_of(sign_in))
        set_cookies(answer, self.auth, sign_in)
        return answer

    def home_of(self, sign_in: SignInResult) -> str:
        """Return the first page: users who act only on their own tasks begin with those."""
        user = self.access.accounts.users.get(sign_in.session.user)
        is_own = user is not None and user.role is Role.USER and bool(user.scope.unix_names)
        return MY_WORK if is_own else "/"

    def _page(self, form: SignInForm | None, error: SignInError | None = None) -> Response:
        word = cookie_word(request.environ, self.auth.cookies.form) or secrets.token_urlsafe(24)
        body = page(form, self.access.credentials.form_token(word),
                    None if error is None else error.sentence)
        answer = Response(body, 200 if error is None else error.status, mimetype="text/html")
        if error is not None and error.retry_s:
            answer.headers["Retry-After"] = str(int(error.retry_s) + 1)
        _set_cookie(answer, self.auth, self.auth.cookies.form, word, 86_400)
        return answer

    def show_error(self, error: SignInError) -> Response:
        return self._page(self._password_form(), error)

    def _password_form(self, name: str = "") -> SignInForm | None:
        return password_form(name, self.has_oidc) if self.access.accounts.users or (
            self.has_oidc) else None


def add_sign_in(server: Flask, pages: SignInRoutes) -> None:
    auth = pages.auth
    for rule, method, view in (
            ("/sign-in", "GET", pages.show), ("/sign-in", "POST", pages.by_password),
            ("/sign-in/first", "POST", pages.first_admin),
            ("/sign-in/password", "POST", pages.set_password),
            ("/sign-out", "POST", pages.sign_out)):
        server.add_url_rule(rule, f"{method} {rule}", view, methods=[method],
                            provide_automatic_options=False)


    @server.after_request
    def renew_csrf(answer: Response) -> Response:
        """Set the CSRF cookie with each page, so that reloading repairs a missing or old one."""
        actor: Actor | None = request.environ.get("gpudeck.actor")
        if (actor is not None and actor.kind == "person" and answer.mimetype == "text/html"
                and answer.status_code == HTTPStatus.OK
                and cookie_word(request.environ, auth.cookies.csrf) != (
                    word := auth.csrf(request.environ))):
            _set_csrf(answer, auth, word)
        return answer


def set_cookies(answer: Response, auth: RequestAuthenticator, sign_in: SignInResult) -> None:
    lasts_s = int(SESSION_LASTS_S)
    _set_cookie(answer, auth, auth.cookies.session, sign_in.word, lasts_s)
    _set_csrf(answer, auth, csrf_of(sign_in.word))
    if sign_in.device is not None:
        _set_cookie(answer, auth, auth.cookies.device, sign_in.device, int(DEVICE_LASTS_S))


def _set_csrf(answer: Response, auth: RequestAuthenticator, word: str) -> None:
    _set_cookie(answer, auth, auth.cookies.csrf, word, int(SESSION_LASTS_S), is_for_scripts=True)


def _set_cookie(answer: Response, auth: RequestAuthenticator, name: str, word: str, lasts_s: int,
                is_for_scripts: bool = False) -> None:
    answer.set_cookie(name, word, max_age=lasts_s, httponly=not is_for_scripts, path="/",
                      samesite="Strict", secure=auth.cookies.is_secure)


def redirect_to(to: str = "/") -> Response:
    """Redirect to `to`. After a link on another site, browsers send Strict cookies with a
    navigation that our own page started but not with a redirect, hence the page in between."""
    if request.headers.get("Sec-Fetch-Site") == "cross-site":
        return Response(ONWARD.format(to=to), mimetype="text/html")
    return redirect(to, 303)  # type: ignore[return-value]


def _field(name: str) -> str:
    return request.form.get(name, "")
