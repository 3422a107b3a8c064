"""A provider of OpenID Connect over HTTP: discovery, code flow with PKCE, keys, userinfo, logout.
It signs in as `person`, and can be made to lie."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey

Claims = dict[str, Any]


class SiteProvider:
    def __init__(self, client_id: str, client_secret: str) -> None:
        self.client_id, self.client_secret = client_id, client_secret
        self.key = RSAKey.generate_key(2048, {"kid": secrets.token_hex(4)})
        self.signs_with: RSAKey | OctKey = self.key
        self.algorithm = "RS256"
        self.person: Claims = {}
        self.spoil: Callable[[Claims], Claims] = lambda claims: claims
        self.says: Claims = {}  # over the metadata of discovery
        self.paths: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider._answer(self, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider._answer(self, {name: values[0] for name, values in
                                        parse_qs(body).items()})

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}/realms/lab"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        parts = urlsplit(request.path)
        path = parts.path.removeprefix("/realms/lab")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.paths.append(path)
        status, headers, body = self._page(path, query, form, request.headers)
        data = json.dumps(body).encode()
        request.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)),
                            **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(data)

    def _page(self, path: str, query: dict[str, str], form: dict[str, str], headers: Any
              ) -> tuple[int, dict[str, str], Any]:
        if path == "/.well-known/openid-configuration":
            return 200, {}, self._metadata() | self.says
        if path == "/keys":
            return 200, {}, KeySet([self.key]).as_dict(private=False)
        if path == "/authorize":
            return 303, {"Location": self._authorized(query)}, None
        if path == "/token":
            return self._token(form, headers["Authorization"] or "")
        if path == "/userinfo":
            return 200, {}, self.person
        return 404, {}, None

    def _metadata(self) -> Claims:
        return {"issuer": self.issuer, "authorization_response_iss_parameter_supported": True,
                **{name: f"{self.issuer}/{path}" for name, path in (
                    ("authorization_endpoint", "authorize"), ("token_endpoint", "token"),
                    ("jwks_uri", "keys"), ("userinfo_endpoint", "userinfo"),
                    ("end_session_endpoint", "end"))}}

    def _authorized(self, query: dict[str, str]) -> str:
        assert query["response_type"] == "code"
        assert query["client_id"] == self.client_id
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        return f"{query['redirect_uri']}?" + urlencode(
            {"code": code, "state": query["state"], "iss": self.issuer})

    def _token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, str], Any]:
        query = self._codes.pop(form["code"], None)  # a code serves once
        credentials = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        proof = base64.urlsafe_b64encode(
            hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        if query is None or credentials != f"{self.client_id}:{self.client_secret}" or (
                proof != query["code_challenge"]
                or form["redirect_uri"] != query["redirect_uri"]):
            return 400, {}, {"error": "invalid_grant"}
        claims = {"nonce": query.get("nonce"), "auth_time": int(time.time()), **self.person}
        return 200, {}, {"access_token": "a", "token_type": "Bearer",
                         "id_token": self.signed(self.spoil(self.basics() | claims))}

    def basics(self) -> Claims:
        now = int(time.time())
        return {"iss": self.issuer, "aud": self.client_id, "iat": now, "exp": now + 300}

    def signed(self, claims: Claims) -> str:
        header = {"alg": self.algorithm, "kid": self.key.kid}
        return jwt.encode(header, claims, self.signs_with, algorithms=[self.algorithm])
