"""REST client of the hub, shared by the `--hub` commands and the notebook."""

import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from gpudeck.action_views import CommandView, OrderResultView, PreviewView
from gpudeck.errors import CommandError, ExitCode
from gpudeck.tls import tls_context as tls_context

TIMEOUT_S = 10.0
LONG_S = 120.0
PAGE = 1_000  # the hub's largest `limit`

AGAIN_AFTER_S = 0.5
LOOK_TIMEOUT_S = 30.0  # nodes look anew before the hub answers

Item = dict[str, Any]
T = TypeVar("T")


class HubConnection:
    """Requests to one hub, and its answers as they came or as an error."""

    def __init__(self, url: str, token: str, timeout_s: float = TIMEOUT_S,
                 tls: ssl.SSLContext | None = None) -> None:
        """`tls` None: what the system trusts."""
        self._url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        # No redirects: they would carry the token to wherever the answer says.
        self._opener = urllib.request.build_opener(
            _NoRedirectHandler, urllib.request.HTTPSHandler(context=tls))

    def items(self, kind: str, filter: str = "", **more: str) -> Iterator[Item]:
        cursor: str | None = None
        while True:
            query = {"limit": str(PAGE)} | {name: value for name, value in more.items() if value}
            if filter:
                query["filter"] = filter
            if cursor is not None:
                query["cursor"] = cursor
            page = self.page(f"{kind}?{urllib.parse.urlencode(query)}")
            yield from page["items"]
            cursor = page.get("next")
            if cursor is None:
                return

    def page(self, path: str) -> Item:
        page = self.ask("GET", path)
        if page is None or not isinstance(page.get("items"), list):
            raise self.no_hub()
        return page

    def ask_for(self, method: str, path: str, body: Any = None, timeout_s: float | None = None
                ) -> Item:
        item = self.ask(method, path, body, timeout_s)
        if item is None:
            raise self.no_hub()
        return item

    def ask(self, method: str, path: str, body: Any = None, timeout_s: float | None = None
            ) -> Item | None:
        """None: an empty answer. A POST whose answer was lost is asked once more under the same
        key, which the hub does not do twice; what the second is refused for says nothing of the
        first."""
        key = uuid4().hex if method == "POST" else None
        try:
            return self._asked(method, path, body, timeout_s, key)
        except CommandError as error:
            if key is None or not _is_lost(error):
                raise
            time.sleep(AGAIN_AFTER_S)
            try:
                return self._asked(method, path, body, timeout_s, key)
            except CommandError:
                raise error from None

    def _asked(self, method: str, path: str, body: Any, timeout_s: float | None, key: str | None
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
                raise _refused(self._url, error.code, error.read(65_536)) from error
        except (urllib.error.URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise CommandError(
                f"no hub at {self._url}: {reason}; is it running, and is --hub right?",
                ExitCode.UNREACHABLE) from error

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


class ActionRequests:
    def __init__(self, hub: HubConnection) -> None:
        self._hub = hub

    def preview(self, action: str, targets: Sequence[str], params: Mapping[str, Any],
                is_plan: bool = False) -> PreviewView:
        asked = {"action": action, "targets": [*targets], "params": {**params}, "plan": is_plan}
        return _as(PreviewView, self._hub.ask_for("POST", "previews", asked, LOOK_TIMEOUT_S))

    def order(self, preview_id: str, reason: str,
              despite_maintenance: bool = False) -> OrderResultView:
        """Done once: an answer that was lost is asked for under the same key. Without one, whether
        it was obeyed only the hub can say."""
        try:
            told = self._hub.ask_for("POST", "commands", {
                "preview": preview_id, "reason": reason} | (
                    {"despite_maintenance": True} if despite_maintenance else {}))
            return _as(OrderResultView, told, ExitCode.UNREACHABLE)
        except CommandError as error:
            if error.code != ExitCode.UNREACHABLE:
                raise
            raise CommandError(
                f"{error}; it was asked already, and may or may not be done: look at the "
                "Record page before you ask again", ExitCode.UNKNOWN) from error

    def command(self, command_id: str) -> CommandView:
        return _as(CommandView, self._hub.ask_for("GET", f"commands/{_quoted(command_id)}"))

    def commands(self, **query: str) -> list[CommandView]:
        path = f"commands?{urllib.parse.urlencode(query)}"
        return [_as(CommandView, item) for item in self._hub.ask_for("GET", path).get("items", [])]

    def keep(self, task_id: str, until: float, because: str) -> Item | None:
        return self._hub.ask("PUT", f"tasks/{_quoted(task_id)}/keep",
                         {"until": until, "because": because})

    def let_go(self, task_id: str) -> None:
        self._hub.ask("DELETE", f"tasks/{_quoted(task_id)}/keep")

    def hold(self, node_id: str | None, reason: str) -> Item | None:
        """`node_id` None: the whole fleet."""
        return self._hub.ask("POST", "hold", {"node": node_id, "reason": reason})

    def release(self, node_id: str | None) -> None:
        self._hub.ask("DELETE", "hold" if node_id is None else f"hold?node={_quoted(node_id)}")


class QuotaRequests:
    def __init__(self, hub: HubConnection) -> None:
        self._hub = hub

    def quotas(self) -> list[Item]:
        return list(self._hub.page("quotas")["items"])

    def quota(self, quota_id: str) -> Item | None:
        try:
            return self._hub.ask_for("GET", f"quotas/{_quoted(quota_id)}")
        except NotThere:
            return None

    def quotas_of(self, owner: str) -> list[Item]:
        """All that counts for this owner, also where they hold nothing of it now."""
        return list(self._hub.page(f"owners/{_quoted(owner)}/quotas")["items"])

    def put_quota(self, quota_id: str, fields: Mapping[str, Any]) -> Item:
        return self._hub.ask_for("PUT", f"quotas/{_quoted(quota_id)}", {**fields})

    def remove_quota(self, quota_id: str) -> None:
        self._hub.ask("DELETE", f"quotas/{_quoted(quota_id)}")

    def check_quota(self, fields: Mapping[str, Any]) -> Item:
        return self._hub.ask_for("POST", "quota-checks", {"quota": {**fields}})


class RuleRequests:
    def __init__(self, hub: HubConnection) -> None:
        self._hub = hub

    def rules(self) -> list[Item]:
        return list(self._hub.page("rules")["items"])

    def put_rule(self, rule_id: str, rule: Mapping[str, Any]) -> Item:
        return self._hub.ask_for("PUT", f"rules/{_quoted(rule_id)}", {**rule})

    def rehearse(self, rule: Mapping[str, Any], start: float, end: float) -> Item:
        return self._hub.ask_for("POST", "rules/backtests", {"rule": {**rule}, "start": start,
                                                      "end": end})

    def rehearsal(self, backtest_id: str) -> Item:
        return self._hub.ask_for("GET", f"rules/backtests/{_quoted(backtest_id)}")


class AuditRequests:
    def __init__(self, hub: HubConnection) -> None:
        self._hub = hub

    def audit(self, **query: str) -> Item:
        """One page, newest first."""
        return self._hub.page(f"audit?{urllib.parse.urlencode(query)}")

    def audit_verdict(self) -> Item:
        """It walks all records: that takes a while where there are millions."""
        verdict = self._hub.ask_for("GET", "audit/verify", timeout_s=LONG_S)
        if "broken" not in verdict:
            raise self._hub.no_hub()
        return verdict

    def audit_lines(self) -> Iterator[bytes]:
        """All records, oldest first, each with its line end."""
        with self._hub.opened("GET", "audit/export", timeout_s=LONG_S, accept="*/*") as answer:
            yield from answer


class Client:
    """Every request of the REST interface under one name: the fleet here, the rest in parts."""

    def __init__(self, url: str, token: str, timeout_s: float = TIMEOUT_S,
                 tls: ssl.SSLContext | None = None) -> None:
        """`tls` None: what the system trusts."""
        self.hub = hub = HubConnection(url, token, timeout_s, tls)
        actions, quotas = ActionRequests(hub), QuotaRequests(hub)
        rules, audit = RuleRequests(hub), AuditRequests(hub)
        self.preview, self.order = actions.preview, actions.order
        self.command, self.commands = actions.command, actions.commands
        self.keep, self.let_go = actions.keep, actions.let_go
        self.hold, self.release = actions.hold, actions.release
        self.quotas, self.quota, self.quotas_of = quotas.quotas, quotas.quota, quotas.quotas_of
        self.put_quota, self.remove_quota = quotas.put_quota, quotas.remove_quota
        self.check_quota = quotas.check_quota
        self.rules, self.put_rule = rules.rules, rules.put_rule
        self.rehearse, self.rehearsal = rules.rehearse, rules.rehearsal
        self.audit, self.audit_verdict = audit.audit, audit.audit_verdict
        self.audit_lines = audit.audit_lines

    def nodes(self) -> list[Item]:
        return list(self.hub.items("nodes"))

    def gpus(self, filter: str = "", metrics: str = "", node_id: str = "") -> list[Item]:
        """`metrics`: their keys with commas; "": all. `node_id` "": of all nodes."""
        return list(self.hub.items("gpus", filter, metrics=metrics, node=node_id))

    def me(self) -> Item:
        """Whose the token is, and what it may."""
        return self.hub.ask_for("GET", "me")

    def series(self, **query: str) -> Item:
        return self.hub.ask_for("GET", f"series?{urllib.parse.urlencode(query)}",
                                timeout_s=LONG_S)

    def usage(self, **query: str) -> list[Item]:
        found = self.hub.ask_for("GET", f"usage?{urllib.parse.urlencode(query)}",
                                 timeout_s=LONG_S)
        if not isinstance(found.get("items"), list):
            raise self.hub.no_hub()
        return list(found["items"])

    def tasks(self, filter: str = "", node_id: str = "") -> list[Item]:
        """`node_id` "": of all nodes."""
        return list(self.hub.items("tasks", filter, node=node_id))

    def events(self, **query: str) -> list[Item]:
        """One page, newest first."""
        found: list[Item] = self.hub.page(f"events?{urllib.parse.urlencode(query)}")["items"]
        return found

    def task(self, task_id: str) -> Item | None:
        """None: there is none that we may see."""
        try:
            return self.hub.ask_for("GET", f"tasks/{_quoted(task_id)}")
        except NotThere:
            return None

    def mps(self, node_id: str | None = None) -> list[Item]:
        return self._of_nodes("mps", node_id)

    def mps_past(self, node_id: str, start: float, end: float) -> Item:
        query = {"node": node_id, "start": str(start), "end": str(end)}
        return self.hub.ask_for("GET", f"mps/past?{urllib.parse.urlencode(query)}",
                                timeout_s=LONG_S)

    def limits(self, node_id: str | None = None) -> list[Item]:
        return self._of_nodes("limits", node_id)

    def _of_nodes(self, kind: str, node_id: str | None) -> list[Item]:
        query = "" if node_id is None else f"?node={_quoted(node_id)}"
        found: list[Item] = self.hub.page(f"{kind}{query}")["items"]
        return found


def _is_lost(error: CommandError) -> bool:
    """Not where time ran out: a hub that is slow is not helped by being asked again."""
    cause = error.__cause__
    return error.code == ExitCode.UNREACHABLE and not isinstance(
        getattr(cause, "reason", cause), TimeoutError)


def _quoted(word: str) -> str:
    return urllib.parse.quote(word, safe="")


def _as(kind: type[T], told: Any, code: ExitCode = ExitCode.FAILED) -> T:
    try:
        return msgspec.convert(told, kind)
    except msgspec.ValidationError as error:
        raise CommandError(f"the hub answers in a way that this version does not know ({error}); "
                           "update gpudeck here or there", code) from error


class NotThere(CommandError):
    """The hub knows no such thing, or none that we may see."""


class _NoRedirectHandler(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _refused(url: str, status: int, body: bytes) -> CommandError:
    detail = _problem(body)
    if status in (401, 403):
        return CommandError(
            f"the hub at {url} refuses ({detail or status}); give a valid token by --token-file",
            ExitCode.DENIED)
    if status == HTTPStatus.NOT_FOUND:
        return NotThere(f"the hub at {url} answers 404" + (f": {detail}" if detail else ""))
    # Said by a proxy: of what the hub behind it has done, it knows nothing.
    code = ExitCode.UNREACHABLE if status in (502, 504) else ExitCode.FAILED
    return CommandError(
        f"the hub at {url} answers {status}" + (f": {detail}" if detail else ""), code)


def _problem(body: bytes) -> str:
    """What an application/problem+json says, in words."""
    try:
        problem = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(problem, dict):
        return ""
    return str(problem.get("detail") or problem.get("title") or "")
