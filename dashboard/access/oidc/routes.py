"""Routes of the sign-in at the provider."""

import secrets
from dataclasses import dataclass

from flask import Flask, Response, abort, redirect, request

from ..credentials import SignInError, SignInOrigin
from ..gate import RequestAuthenticator, cookie_word
from ..sign_in import SignInRoutes, redirect_to, set_cookies
from .service import PENDING_LASTS_S, OidcService


@dataclass(eq=False, slots=True)
class OidcRoutes:
    auth: RequestAuthenticator
    service: OidcService | None
    pages: SignInRoutes

    def _service_or_404(self) -> OidcService:
        if self.service is None:
            abort(404)
        return self.service

    def begin(self) -> Response:
        service = self._service_or_404()
        word = cookie_word(request.environ, self._cookie) or secrets.token_urlsafe(24)
        session = self.auth.session(request.environ) if "fresh" in request.args else None
        try:
            url = service.begin(word, None if session is None else session.id)
        except SignInError as error:
            return self.pages.show_error(error)
        answer: Response = redirect(url, 303)  # type: ignore[assignment]
        # Lax: Strict cookies do not come back with a redirect of another site.
        answer.set_cookie(self._cookie, word, max_age=int(PENDING_LASTS_S), httponly=True, path="/",
                          samesite="Lax", secure=self.auth.cookies.is_secure)
        return answer

    def finish(self) -> Response:
        service = self._service_or_404()
        word = cookie_word(request.environ, self._cookie) or ""
        origin = SignInOrigin(request.environ["gpudeck.address"])
        try:
            sign_in = service.finish(request.args, word, origin)
        except SignInError as error:
            return self.pages.show_error(error)
        answer = redirect_to(self.pages.home_of(sign_in))
        set_cookies(answer, self.auth, sign_in)
        answer.delete_cookie(self._cookie, path="/", secure=self.auth.cookies.is_secure)
        return answer

    def handle_logout(self) -> Response:
        service = self._service_or_404()
        try:
            service.handle_logout(request.form.get("logout_token", ""))
        except SignInError as error:
            return Response(error.sentence, 400, mimetype="text/plain")
        return Response(headers={"Cache-Control": "no-store"})

    @property
    def _cookie(self) -> str:
        return self.auth.cookies.oidc


def add_oidc(server: Flask, routes: OidcRoutes) -> None:
    for rule, method, view in (
            ("/sign-in/oidc", "GET", routes.begin),
            ("/sign-in/oidc/callback", "GET", routes.finish),
            ("/sign-in/oidc/logout", "POST", routes.handle_logout)):
        server.add_url_rule(rule, f"{method} {rule}", view, methods=[method],
                            provide_automatic_options=False)
