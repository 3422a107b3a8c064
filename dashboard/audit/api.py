"""REST routes of the audit log: list, verify, export."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

import gevent
from flask import Response, request
from gevent.lock import BoundedSemaphore

from gpudeck.audit.chain import AuditChainLink

from ..access.policy import EVERYTHING, Actor, PermissionReach, Role, actor_fields
from ..access.requests import caller
from ..access.routes import Query, Route, see
from ..web.answers import DEFAULT_LIMIT, MAX_LIMIT, ApiError, bad
from ..web.openapi_parts import MAX_WORD
from .file_copy import line_of
from .recorder import AuditRecorder
from .store import AuditFilter
from .verify import AuditVerifier
from .views import AuditRecordList, AuditVerdictView, record_view

FILTERS = ("kind", "actor", "node", "task", "since", "until", "system")
KNOWN = ("limit", "cursor", *FILTERS)
STEP = 200
MAX_SCANNED = 20_000
EXPORT_STEP = 500
NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")


@dataclass(eq=False, slots=True)
class AuditApi:
    auditor: AuditRecorder
    verifier: AuditVerifier
    sees_node: Callable[[Actor, str], bool]
    host_of: Callable[[str], str | None]
    busy: BoundedSemaphore = field(default_factory=BoundedSemaphore)

    def records(self) -> AuditRecordList:
        limit, before, filters = _parse_query()
        links, following = self._page(caller(), filters, before, limit)
        return AuditRecordList([record_view(link) for link in links],
                               None if following is None else str(following))

    def _page(self, actor: Actor, filters: AuditFilter, before: int | None, limit: int
              ) -> tuple[list[AuditChainLink], int | None]:
        """Return a page of records, newest first, and the cursor. For actors who do not see all
        records a page may be short although more follow."""
        sees = self._visibility(actor)
        links: list[AuditChainLink] = []
        scanned = 0
        while scanned < MAX_SCANNED:
            batch = self.auditor.store.newest(filters, before, STEP)
            for link in batch:
                if sees(link):
                    links.append(link)
                    if len(links) == limit:
                        return links, link.seq
            if len(batch) < STEP:
                return links, None
            before, scanned = batch[-1].seq, scanned + STEP
        return links, before

    def _visibility(self, actor: Actor) -> Callable[[AuditChainLink], bool]:
        """Return a filter of visible records: admins of all groups see everything, others what was
        done on nodes in their scope."""
        is_admin = actor.role is not None and actor.role.covers(Role.ADMIN)
        if is_admin and EVERYTHING in actor.scope.groups:
            return lambda _: True
        def sees(link: AuditChainLink) -> bool:
            node = record_view(link).node
            return node is not None and self.sees_node(actor, node)

        return sees

    def verify(self) -> AuditVerdictView:
        _no_parameters()
        if not self.busy.acquire(timeout=0):
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE,
                           "the audit is being verified already; try again in a minute")
        try:
            verdict = gevent.get_hub().threadpool.apply(self.verifier.verdict)
        finally:
            self.busy.release()
        for node in verdict.nodes:
            node.host = self.host_of(node.node)
        return verdict

    def export(self) -> Response:
        _no_parameters()
        self.auditor.record("audit", actor_fields(caller()) | {
            "action": "export", "outcome": "done", "sentence": f"{caller().name} took the whole "
            "audit away"})
        return Response(self._lines(), mimetype="application/jsonl", headers={
            "Content-Disposition": 'attachment; filename="gpudeck-audit.jsonl"'})

    def _lines(self) -> Iterator[bytes]:
        """Yield the records in steps, so that the loop runs in between and memory does not grow."""
        last, _ = self.auditor.store.head()
        at = 0
        while at < last:
            batch = list(self.auditor.store.links(at, EXPORT_STEP))
            if not batch:
                return
            yield b"".join(line_of(link) for link in batch)
            at = batch[-1].seq
            gevent.sleep(0)


def _parse_query() -> tuple[int, int | None, AuditFilter]:
    args = request.args
    for name in args:
        if name not in KNOWN or len(args.getlist(name)) > 1:
            raise bad(f"there is no parameter {name[:40]!r}, or it is given twice; there are "
                      f"{', '.join(KNOWN)}")
    limit = _whole("limit") or DEFAULT_LIMIT
    if limit > MAX_LIMIT:
        raise bad(f"limit is a whole number from 1 to {MAX_LIMIT}")
    filters = AuditFilter(_word("kind"), _word("actor"), _word("node"), _word("task"),
                          _moment("since"), _moment("until"), _has_system())
    return limit, _whole("cursor"), filters


def _has_system() -> bool:
    raw = request.args.get("system", "true")
    if raw not in ("true", "false"):
        raise bad("system is true or false")
    return raw == "true"


def _whole(name: str) -> int | None:
    raw = request.args.get(name)
    if raw is None:
        return None
    if not raw.isascii() or not raw.isdigit() or len(raw) > 15 or int(raw) < 1:
        raise bad(f"{name} is a whole number from 1 on")
    return int(raw)


def _word(name: str) -> str | None:
    raw = request.args.get(name)
    if raw is not None and len(raw) > MAX_WORD:
        raise bad(f"{name} has at most {MAX_WORD} characters")
    return raw


def _moment(name: str) -> float | None:
    raw = request.args.get(name)
    if raw is None:
        return None
    if not NUMBER.fullmatch(raw):
        raise bad(f"{name} is in UTC seconds; now it is {time.time():.0f}")
    return float(raw)


def _no_parameters() -> None:
    if request.args:
        raise bad("there are no parameters here")


AUDIT_QUERY: Query = (
    ("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 100}),
    ("cursor", {"type": "string", "pattern": "^[1-9][0-9]{0,14}$"}),
    *((name, {"type": "string", "maxLength": MAX_WORD})
      for name in ("kind", "actor", "node", "task")),
    *((name, {"type": "number", "minimum": 0}) for name in ("since", "until")),
    ("system", {"type": "boolean", "default": True}),
)
ROUTES = (
    Route("GET audit", AuditApi.records, "list_audit", see(Role.OPERATOR),
          "Audit records, newest first: for Nodes in your scope; admins of the whole fleet see "
          "all.",
          query=AUDIT_QUERY),
    Route("GET audit/verify", AuditApi.verify, "verify_audit",
          see(Role.ADMIN, PermissionReach.NONE),
          "Verify the whole chain, its copy, and the heads that nodes keep.",
          errors=(400, 503)),
    Route("GET audit/export", AuditApi.export, "export_audit",
          see(Role.ADMIN, PermissionReach.NONE),
          "All audit records, oldest first.", errors=(400, 503), media="application/jsonl"),
)
