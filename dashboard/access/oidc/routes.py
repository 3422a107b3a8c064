"""Pages of the sign-in at the provider."""

import secrets
from dataclasses import dataclass

from flask import Flask, Response, abort, redirect, request

from ..credentials import SignInError, SignInOrigin
from ..gate import RequestAuthenticator, cookie_word
from ..sign_in import SignInRoutes, give_cookies, onward
from .service import BEGUN_LASTS_S, OidcService


@dataclass(eq=False, slots=True)
class OidcRoutes:
    auth: RequestAuthenticator
    service: OidcService | None
    pages: SignInRoutes

    def _there(self) -> OidcService:
        if self.service is None:
            abort(404)
        return self.service

    def begin(self) -> Response:
        service = self._there()
        word = cookie_word(request.environ, self._cookie) or secrets.token_urlsafe(24)
        session = self.auth.session(request.environ) if "fresh" in request.args else None
        try:
            where = service.begin(word, None if session is None else session.id)
        except SignInError as refused:
            return self.pages.refused(refused)
        answer: Response = redirect(where, 303)  # type: ignore[assignment]
        # Lax: Strict cookies do not come back with a redirect of another site.
        answer.set_cookie(self._cookie, word, max_age=int(BEGUN_LASTS_S), httponly=True, path="/",
                          samesite="Lax", secure=self.auth.cookies.is_secure)
        return answer

    def finish(self) -> Response:
        service = self._there()
        word = cookie_word(request.environ, self._cookie) or ""
        origin = SignInOrigin(request.environ["gpudeck.address"])
        try:
            entered = service.finish(request.args, word, origin)
        except SignInError as refused:
            return self.pages.refused(refused)
        answer = onward(self.pages.home_of(entered))
        give_cookies(answer, self.auth, entered)
        answer.delete_cookie(self._cookie, path="/", secure=self.auth.cookies.is_secure)
        return answer

    def logged_out(self) -> Response:
        service = self._there()
        try:
            service.logged_out(request.form.get("logout_token", ""))
        except SignInError as refused:
            return Response(refused.sentence, 400, mimetype="text/plain")
        return Response(headers={"Cache-Control": "no-store"})

    @property
    def _cookie(self) -> str:
        return self.auth.cookies.oidc


def add_oidc(server: Flask, routes: OidcRoutes) -> None:
    for rule, method, view in (
            ("/sign-in/oidc", "GET", routes.begin),
            ("/sign-in/oidc/callback", "GET", routes.finish),
            ("/sign-in/oidc/logout", "POST", routes.logged_out)):
        server.add_url_rule(rule, f"{method} {rule}", view, methods=[method],
                            provide_automatic_options=False)
