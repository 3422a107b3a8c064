"""REST client of the hub, shared by the `--hub` commands and the notebook."""

import argparse
import json
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

import msgspec

from gpudeck.cli.command_parser import parsed
from gpudeck.contract.action_views import CommandView, OrderResultView, PreviewView
from gpudeck.errors import CommandError, ExitCode
from gpudeck.network.tls import tls_context as tls_context
from gpudeck.network.trouble import proxy_words, unreached_words
from gpudeck.settings import folder, hub_url, read_secret

TIMEOUT_S = 10.0
LONG_S = 120.0
PAGE = 1_000  # the hub's largest `limit`

AGAIN_AFTER_S = 0.5
LOOK_TIMEOUT_S = 30.0  # nodes take a new reading before the hub answers

Item = dict[str, Any]
T = TypeVar("T")


class HubConnection:
    """Requests to one hub, and its answers as they came or as an error."""

    def __init__(self, url: str, token: str, timeout_s: float = TIMEOUT_S,
                 tls: ssl.SSLContext | None = None) -> None:
        """Prepare requests to the hub at `url`. `tls` None: the system's certificate
        authorities."""
        if not (token.isascii() and token.isprintable() and " " not in token):
            # As a header it would be refused with a message that shows it.
            raise CommandError("the token for the hub is not one word: give one token, such as a "
                               "file with one line", ExitCode.USAGE)
        self._url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        # No redirects: they would carry the token to wherever the answer says.
        self._opener = urllib.request.build_opener(
            _NoRedirectHandler, urllib.request.HTTPSHandler(context=tls))

    def all(self, kind: str, /, **query: str) -> list[Item]:
        """Return the items of all pages; empty values of `query` are not sent."""
        items: list[Item] = []
        parameters = {"limit": str(PAGE)} | {name: value for name, value in query.items() if value}
        while True:
            page = self.page(kind, **parameters)
            items += page["items"]
            if page.get("next") is None:
                return items
            parameters["cursor"] = page["next"]

    def items(self, path: str, /, **query: str) -> list[Item]:
        return list(self.page(path, **query)["items"])

    def page(self, path: str, timeout_s: float | None = None, /, **query: str) -> Item:
        page = self.get(path, timeout_s, **query)
        if not isinstance(page.get("items"), list):
            raise self.no_hub()
        return page

    def get(self, path: str, timeout_s: float | None = None, /, **query: str) -> Item:
        return self.ask_for("GET", f"{path}?{urllib.parse.urlencode(query)}" if query else path,
                            timeout_s=timeout_s)

    def get_known(self, path: str) -> Item | None:
        """Return the item at `path`; None: there is no such thing."""
        try:
            return self.get(path)
        except NotThere:
            return None

    def ask_for(self, method: str, path: str, body: Any = None, timeout_s: float | None = None
                ) -> Item:
        item = self.ask(method, path, body, timeout_s)
        if item is None:
            raise self.no_hub()
        return item

    def ask(self, method: str, path: str, body: Any = None, timeout_s: float | None = None
            ) -> Item | None:
        """Send a request. None: an empty answer.

        A POST whose answer was lost is sent once more under the same key, which the hub does not do
        twice; an error of the second request says nothing about the first.
        """
        key = uuid4().hex if method == "POST" else None
        try:
            return self._request(method, path, body, timeout_s, key)
        except CommandError as error:
            if key is None or not _is_lost(error):
                raise
            time.sleep(AGAIN_AFTER_S)
            try:
                return self._request(method, path, body, timeout_s, key)
            except CommandError:
                raise error from None

    def _request(self, method: str, path: str, body: Any, timeout_s: float | None, key: str | None
                 ) -> Item | None:
        with self.opened(method, path, body, timeout_s, key=key) as answer:
            return self._item(answer.read())

    @contextmanager
    def opened(self, method: str, path: str, body: Any = None, timeout_s: float | None = None,
               accept: str = "application/json", key: str | None = None) -> Iterator[Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        if key is not None:
            headers["Idempotency-Key"] = key
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(f"{self._url}/api/v1/{path}", data, headers, method=method)
        try:
            with self._opener.open(request, timeout=timeout_s or self._timeout_s) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                raise refused(self._url, error.code, error.read(65_536),
                              error.headers.get("Server", "")) from error
        except (urllib.error.URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            words = unreached_words(reason) if isinstance(reason, Exception) else reason
            raise CommandError(f"no hub at {self._url}: {words}", ExitCode.UNREACHABLE) from error

    def _item(self, body: bytes) -> Item | None:
        if not body:
            return None
        try:
            item = json.loads(body)
        except ValueError:
            item = None
        if not isinstance(item, dict):
            raise self.no_hub()
        return item

    def no_hub(self) -> CommandError:
        return CommandError(f"{self._url} answers, but it is not a hub of gpudeck",
                            ExitCode.UNREACHABLE)


class HubRequests:
    def __init__(self, url: str, token: str, timeout_s: float = TIMEOUT_S,
                 tls: ssl.SSLContext | None = None) -> None:
        """Prepare requests to the hub at `url`. `tls` None: the system's certificate
        authorities."""
        self.hub = HubConnection(url, token, timeout_s, tls)

    @classmethod
    def over(cls, connection: HubConnection) -> Self:
        """Build requests on a connection other than the network."""
        requests = cls.__new__(cls)
        requests.hub = connection
        return requests


class ActionRequests(HubRequests):
    def preview(self, action: str, targets: Sequence[str], params: Mapping[str, Any],
                is_plan: bool = False) -> PreviewView:
        request = {"action": action, "targets": [*targets], "params": {**params}, "plan": is_plan}
        return typed(PreviewView, self.hub.ask_for("POST", "previews", request, LOOK_TIMEOUT_S))

    def order(self, preview_id: str, reason: str,
              despite_maintenance: bool = False) -> OrderResultView:
        """Carry out a preview, once: a lost answer is requested again under the same key. If that
        fails too, only the hub knows whether it was done."""
        try:
            answer = self.hub.ask_for("POST", "commands", {
                "preview": preview_id, "reason": reason} | (
                    {"despite_maintenance": True} if despite_maintenance else {}))
            return typed(OrderResultView, answer, ExitCode.UNREACHABLE)
        except CommandError as error:
            if error.code != ExitCode.UNREACHABLE:
                raise
            raise CommandError(
                f"{error}; it was asked already, and may or may not be done: look at the "
                "audit log before you try again", ExitCode.UNKNOWN) from error

    def command(self, command_id: str) -> CommandView:
        return typed(CommandView, self.hub.get(f"commands/{_quoted(command_id)}"))

    def commands(self, **query: str) -> list[CommandView]:
        return [typed(CommandView, item) for item in self.hub.items("commands", **query)]

    def keep(self, task_id: str, until: float, because: str) -> Item | None:
        return self.hub.ask("PUT", f"tasks/{_quoted(task_id)}/keep",
                         {"until": until, "because": because})

    def let_go(self, task_id: str) -> None:
        self.hub.ask("DELETE", f"tasks/{_quoted(task_id)}/keep")

    def hold(self, node_id: str | None, reason: str) -> Item | None:
        """Stop all actions on a node; `node_id` None: on the whole fleet."""
        return self.hub.ask("POST", "hold", {"node": node_id, "reason": reason})

    def release(self, node_id: str | None) -> None:
        self.hub.ask("DELETE", "hold" if node_id is None else f"hold?node={_quoted(node_id)}")


class QuotaRequests(HubRequests):
    def quotas(self) -> list[Item]:
        return self.hub.items("quotas")

    def quota(self, quota_id: str) -> Item | None:
        return self.hub.get_known(f"quotas/{_quoted(quota_id)}")

    def quotas_of(self, owner: str) -> list[Item]:
        """Return all quotas that apply to this owner, also those without usage now."""
        return self.hub.items(f"owners/{_quoted(owner)}/quotas")

    def put_quota(self, quota_id: str, fields: Mapping[str, Any]) -> Item:
        return self.hub.ask_for("PUT", f"quotas/{_quoted(quota_id)}", {**fields})

    def remove_quota(self, quota_id: str) -> None:
        self.hub.ask("DELETE", f"quotas/{_quoted(quota_id)}")

    def check_quota(self, fields: Mapping[str, Any]) -> Item:
        return self.hub.ask_for("POST", "quota-checks", {"quota": {**fields}})


class RuleRequests(HubRequests):
    def rules(self) -> list[Item]:
        return self.hub.items("rules")

    def put_rule(self, rule_id: str, rule: Mapping[str, Any]) -> Item:
        return self.hub.ask_for("PUT", f"rules/{_quoted(rule_id)}", {**rule})

    def check_rule(self, rule: Mapping[str, Any]) -> Item:
        return self.hub.ask_for("POST", "rule-checks", {"rule": {**rule}})

    def rehearse(self, rule: Mapping[str, Any], start: float, end: float) -> Item:
        return self.hub.ask_for("POST", "rules/backtests", {"rule": {**rule}, "start": start,
                                                      "end": end})

    def rehearsal(self, backtest_id: str) -> Item:
        return self.hub.get(f"rules/backtests/{_quoted(backtest_id)}")


class AuditRequests(HubRequests):
    def audit(self, **query: str) -> Item:
        """Return one page, newest first."""
        return self.hub.page("audit", **query)

    def audit_verdict(self) -> Item:
        """Verify all audit records; with millions of them that takes a while."""
        verdict = self.hub.get("audit/verify", LONG_S)
        if "broken" not in verdict:
            raise self.hub.no_hub()
        return verdict

    def audit_lines(self) -> Iterator[bytes]:
        """Yield all records, oldest first, each with its line end."""
        with self.hub.opened("GET", "audit/export", timeout_s=LONG_S, accept="*/*") as answer:
            yield from answer


class FleetRequests(HubRequests):
    def nodes(self) -> list[Item]:
        return self.hub.all("nodes")

    def approve_nodes(self, fingerprints: Sequence[str]) -> list[Item]:
        answer = self.hub.ask_for("POST", "nodes/approvals", {"fingerprints": [*fingerprints]})
        return list(answer["items"])

    def gpus(self, filter: str = "", metrics: str = "", node_id: str = "") -> list[Item]:
        """Return GPUs. `metrics`: their keys with commas; "": all. `node_id` "": of all nodes."""
        return self.hub.all("gpus", filter=filter, metrics=metrics, node=node_id)

    def me(self) -> Item:
        """Return the caller, and what the token permits."""
        return self.hub.get("me")

    def series(self, **query: str) -> Item:
        return self.hub.get("series", LONG_S, **query)

    def estimate(self, question: Mapping[str, Any]) -> Item:
        """Estimate memory and speed of a model, and which GPUs of the fleet fit."""
        return self.hub.ask_for("POST", "estimates", {**question})

    def advice(self) -> Item:
        """Return advice on what would free GPU-hours; the hub may have to read its history
        first."""
        return self.hub.get("advice", LONG_S)

    def dismiss_advice(self, advice_id: str, reason: str) -> None:
        self.hub.ask("POST", f"advice/{_quoted(advice_id)}/dismiss", {"reason": reason}, LONG_S)

    def recall_advice(self, advice_id: str) -> None:
        self.hub.ask("POST", f"advice/{_quoted(advice_id)}/recall")

    def usage(self, **query: str) -> list[Item]:
        return list(self.hub.page("usage", LONG_S, **query)["items"])

    def tasks(self, filter: str = "", node_id: str = "") -> list[Item]:
        """Return tasks. `node_id` "": of all nodes."""
        return self.hub.all("tasks", filter=filter, node=node_id)

    def events(self, **query: str) -> list[Item]:
        """Return one page, newest first."""
        return self.hub.items("events", **query)

    def task(self, task_id: str) -> Item | None:
        """Return a task; None: there is none that we may see."""
        return self.hub.get_known(f"tasks/{_quoted(task_id)}")

    def leases(self) -> list[Item]:
        return self.hub.all("leases")

    def claims(self) -> list[Item]:
        """Return the queue in order, and what is reserved."""
        return self.hub.all("claims")

    def mps(self, node_id: str | None = None) -> list[Item]:
        return self.hub.items("mps", **_of_node(node_id))

    def mps_past(self, node_id: str, start: float, end: float) -> Item:
        return self.hub.get("mps/past", LONG_S, node=node_id, start=str(start), end=str(end))

    def limits(self, node_id: str | None = None) -> list[Item]:
        return self.hub.items("limits", **_of_node(node_id))

    def mig(self, node_id: str | None = None) -> list[Item]:
        return self.hub.items("mig", **_of_node(node_id))

    def repairs(self, node_id: str | None = None) -> list[Item]:
        return self.hub.items("repairs", **_of_node(node_id))


class Client(FleetRequests, ActionRequests, QuotaRequests, RuleRequests, AuditRequests):
    """Client for all requests of the REST interface."""

    @classmethod
    def from_flags(cls, flags: argparse.Namespace) -> "Client":
        """Build a client from the flags of `add_hub_flags`."""
        token = os.environ.get("GPUDECK_TOKEN", "") if flags.token_file is None else (
            read_secret(flags.token_file))
        return cls(flags.hub, token, tls=tls_context(flags.hub, flags.ca_file))


def client_of(hub: str, token: str | None, ca_file: str | None) -> tuple[Client, str]:
    """Return a client, and the hub's address as parsed. `token` None: GPUDECK_TOKEN."""
    try:
        url = hub_url(hub)
    except ValueError as error:
        raise CommandError(f"{hub!r}: {error}", ExitCode.USAGE) from error
    token = token or os.environ.get("GPUDECK_TOKEN")
    if not token:
        raise CommandError("a token is needed: `gpudeck token create api` on the hub, or its "
                           "Settings page; give it as token=, or set GPUDECK_TOKEN",
                           ExitCode.DENIED)
    return Client(url, token, tls=tls_context(url, Path(ca_file) if ca_file else None)), url


def add_hub_flags(parser: argparse.ArgumentParser, env: Mapping[str, str], does: str) -> None:
    parser.add_argument("--hub", type=parsed(hub_url), metavar="URL",
                        default=env.get("GPUDECK_HUB"), help=does)
    parser.add_argument("--token-file", type=folder, metavar="FILE", help="holds the API token")
    parser.add_argument("--ca-file", type=folder, metavar="FILE",
                        help="PEM file of the CA that issued the hub's certificate")


def _is_lost(error: CommandError) -> bool:
    """Return whether the answer was lost. A timeout does not count: a slow hub is not helped by a
    second request."""
    cause = error.__cause__
    return error.code == ExitCode.UNREACHABLE and not isinstance(
        getattr(cause, "reason", cause), TimeoutError)


def _of_node(node_id: str | None) -> dict[str, str]:
    return {} if node_id is None else {"node": node_id}


def _quoted(word: str) -> str:
    return urllib.parse.quote(word, safe="")


def typed(kind: type[T], content: Any, code: ExitCode = ExitCode.FAILED) -> T:
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise CommandError(f"the hub's answer is not understood by this version ({error}); "
                           "update gpudeck here or there", code) from error


class NotThere(CommandError):
    """The hub has no such thing, or none that we may see."""


class _NoRedirectHandler(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def refused(url: str | None, status: int, body: bytes, server: str = "") -> CommandError:
    """Return the error that an answer is. `url` None: for a page of that very hub, which needs no
    more than its sentence. `server`: the name of what answers; a hub gives none."""
    detail = _problem(body)
    is_denied = status in (401, 403)
    if url is None:
        sentence = detail or f"the hub answers {status}"
    elif server and not detail:
        sentence = f"{url}: {proxy_words(status, server)}"
    elif is_denied:
        sentence = (f"the hub at {url} refuses ({detail or status}); it needs a valid token with "
                    "permission for this")
    else:
        sentence = f"the hub at {url} answers {status}" + (f": {detail}" if detail else "")
    if status == HTTPStatus.NOT_FOUND:
        return NotThere(sentence)
    # From a proxy, which does not know what the hub behind it has done.
    code = ExitCode.UNREACHABLE if status in (502, 504) else ExitCode.FAILED
    return CommandError(sentence, ExitCode.DENIED if is_denied else code)


def _problem(body: bytes) -> str:
    """Return the sentence of an application/problem+json; "": there is none."""
    try:
        problem = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(problem, dict):
        return ""
    return str(problem.get("detail") or problem.get("title") or "")
