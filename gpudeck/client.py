"""REST client of the hub, shared by the `--hub` commands and the notebook."""

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpudeck.errors import CommandError, ExitCode

TIMEOUT_S = 10.0
LONG_S = 120.0
PAGE = 1_000  # the hub's largest `limit`

Item = dict[str, Any]


class Client:
    def __init__(
        self, url: str, token: str, timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls` None: what the system trusts."""
        self._url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        # No redirects: they would carry the token to wherever the answer says.
        self._opener = urllib.request.build_opener(
            _NoRedirect, urllib.request.HTTPSHandler(context=tls))

    def nodes(self) -> list[Item]:
        return list(self._all("nodes"))

    def gpus(self, filter: str = "") -> list[Item]:
        return list(self._all("gpus", filter))

    def tasks(self, filter: str = "") -> list[Item]:
        return list(self._all("tasks", filter))

    # -- the Audit

    def audit(self, **query: str) -> Item:
        """One page, newest first."""
        return self._get(f"/api/v1/audit?{urllib.parse.urlencode(query)}")

    def audit_verdict(self) -> Item:
        """It walks all records: that takes a while where there are millions."""
        with self._opened("/api/v1/audit/verify", "application/json", LONG_S) as answer:
            verdict = json.loads(answer.read())
        if not isinstance(verdict, dict) or "broken" not in verdict:
            raise CommandError(f"{self._url} answers, but it is not a hub of gpudeck")
        return verdict

    def audit_lines(self) -> Iterator[bytes]:
        """All records, oldest first, each with its line end."""
        with self._opened("/api/v1/audit/export", "*/*", LONG_S) as answer:
            yield from answer

    def _all(self, kind: str, filter: str = "") -> Iterator[Item]:
        cursor: str | None = None
        while True:
            query = {"limit": str(PAGE)}
            if filter:
                query["filter"] = filter
            if cursor is not None:
                query["cursor"] = cursor
            page = self._get(f"/api/v1/{kind}?{urllib.parse.urlencode(query)}")
            yield from page["items"]
            cursor = page.get("next")
            if cursor is None:
                return

    def _get(self, path: str) -> Item:
        with self._opened(path, "application/json", self._timeout_s) as answer:
            return self._page(answer.read())

    @contextmanager
    def _opened(self, path: str, accept: str, timeout_s: float) -> Iterator[Any]:
        request = urllib.request.Request(
            self._url + path,
            headers={"Authorization": f"Bearer {self._token}", "Accept": accept},
        )
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(self._url, error.code, error.read(65_536)) from error
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise CommandError(
                f"no hub at {self._url}: {reason}; is it running, and is --hub right?",
                ExitCode.UNREACHABLE,
            ) from error

    def _page(self, body: bytes) -> Item:
        try:
            page = json.loads(body)
        except ValueError:
            page = None
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise CommandError(f"{self._url} answers, but it is not a hub of gpudeck")
        return page


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _refused(url: str, status: int, body: bytes) -> CommandError:
    detail = _problem(body)
    if status in (401, 403):
        return CommandError(
            f"the hub at {url} refuses ({detail or status}); give a valid token by --token-file",
            ExitCode.DENIED,
        )
    return CommandError(f"the hub at {url} answers {status}" + (f": {detail}" if detail else ""))


def _problem(body: bytes) -> str:
    """What an application/problem+json says, in words."""
    try:
        problem = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(problem, dict):
        return ""
    return str(problem.get("detail") or problem.get("title") or "")
