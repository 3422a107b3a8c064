"""OpenAPI 3.1 of the REST interface, made from the structs that answer."""

from typing import Any

import msgspec

from gpudeck import __version__, action_views
from gpudeck.action_views import CommandView, KeepView, OrderResultView, PreviewView
from gpudeck.actions import ActionParams
from gpudeck.events import SEVERITIES
from gpudeck.metrics import COLUMNS, SLOW, Metric

from ..access.views import (
    CurrentActorView,
    NewToken,
    NewUser,
    PasswordConfirmation,
    ReauthenticationView,
    SessionList,
    SignInList,
    TokenList,
    TokenView,
    UserChange,
    UserList,
    UserView,
)
from ..actions.limits_views import LimitsList, MpsList
from ..actions.standing_views import HoldStateView, NewHold, NewKeep
from ..actions.views import (
    ActionPlanList,
    CommandList,
    NewCommands,
    NewPreview,
)
from ..audit.views import AuditRecordList, AuditVerdictView
from ..fleet.events_views import EventList
from ..fleet.filters import MAX_LENGTH
from ..fleet.past_views import PastBlockView, PastTotalsView
from ..fleet.task_list import GROUP_BYS, SORTS, TaskList
from ..fleet.views import GpuList, GpuView, NodeList, NodeView, TaskView
from ..history.mps_usage import MpsUsageView
from ..history.protocol import BYS
from ..history.report_views import Report
from ..history.views import InstantView, SeriesView, UsageList
from ..nodes.views import EnrolmentList, EnrolmentView, NewEnrolment, NodeChange
from ..notifications.views import AddressList
from ..web.answers import MAX_CURSOR, MAX_LIMIT, MAX_REPEATED, ProblemDetails
from ..web.moments import RFC_3339, SECONDS
from ..web.openapi_parts import MAX_WORD, TIME, Operation
from .alerts import OPERATIONS as ALERTS
from .quotas import OPERATIONS as QUOTAS

FORMS = ("json", "csv", "parquet")




# Path, the struct of one answer, what it is.
LISTS = (
    ("nodes", NodeList,
     "Nodes, by id. `filter` keeps those with a Gpu that matches; `id`: those of "
     "these that there are, with their `links`."),
    ("gpus", GpuList, "Gpus, by slot. `filter` as on the Fleet page; `node`: those of one Node; "
     "`uuid`: those of these that there are."),
    ("tasks", TaskList, "Tasks, by node and id or as `sort` says. `filter` as on the Tasks "
     "page: `user:` and `task:` mean the Task, all else its Gpus. With `group`, `groups` has the "
     "sums and `items` the Tasks of the groups that `open` names. `id`: those of these that there "
     "are."),
)
ITEMS = (
    ("nodes/{id}", NodeView, "One Node."),
    ("gpus/{uuid}", GpuView, "One Gpu, by its UUID."),
    ("tasks/{id}", TaskView, "One Task."),
    ("commands/{id}", CommandView, "One Command: how far it is, and what came of it."),
)


AUDIT_QUERY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 100}),
    ("cursor", {"type": "string", "pattern": "^[1-9][0-9]{0,14}$"}),
    *((name, {"type": "string", "maxLength": MAX_WORD})
      for name in ("kind", "actor", "node", "task")),
    *((name, {"type": "number", "minimum": 0}) for name in ("since", "until")),
)

EVENTS_QUERY: tuple[tuple[str, dict[str, Any]], ...] = (
    *((name, {"type": "string", "maxLength": MAX_WORD}) for name in ("node", "gpu", "kind")),
    ("severity", {"enum": list(SEVERITIES), "description": "at least"}),
    *((name, {"type": "string", "pattern": f"^({SECONDS}|{RFC_3339})$"})
      for name in ("start", "end")),
)
NODE_QUERY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("node", {"type": "string", "minLength": 1}),)
_KEY = "|".join(metric.key for metric in (*COLUMNS, *SLOW))
_METRICS = f"^({_KEY})(,({_KEY}))*$"
_FORMAT: tuple[str, dict[str, Any]] = ("format", {
    "enum": list(FORMS), "description": "Without it, `Accept` decides."})
_PRICE: dict[str, Any] = {"type": "string", "pattern": "^[0-9]{1,9}([.][0-9]{1,9})?$"}
_METRIC: dict[str, Any] = {"enum": [metric.key for metric in (*COLUMNS, *SLOW)]}

OPERATIONS = (
    Operation("get", "series", "get_series", "A metric of one Gpu over time. Times are UTC seconds "
              "or RFC 3339; without `step`, one that gives at most a thousand points.", SeriesView,
              None, 200, (400, 404, 503),
              (("gpu", {"type": "string", "minLength": 1}), ("metric", _METRIC), ("start", TIME),
               ("end", TIME), ("step", {"type": "integer", "minimum": 1}),
               ("also", {"type": "string", "pattern": _METRICS,
                         "description": "Further metrics, their keys joined by commas."}),
               ("beside", {"type": "string", "description": "Further GpuList on the same seconds, "
                           "their UUIDs joined by commas."}), _FORMAT), True),
    Operation("get", "instant", "get_instant", "A metric of every Gpu at one moment: a value, or "
              "why there is none.", InstantView, None, 200, (400, 503),
              (("metric", _METRIC), ("at", TIME))),
    Operation("get", "block", "get_block", "A metric of every Gpu at up to 60 moments, as the "
              "cells of the map of the Fleet page.", PastBlockView, None, 200, (400, 503),
              (("metric", _METRIC), ("start", TIME),
               ("step", {"type": "integer", "minimum": 1, "maximum": 86_400}),
               ("count", {"type": "integer", "minimum": 1, "maximum": 60}))),
    Operation("get", "totals", "get_totals", "The totals of the fleet at one past moment, as far "
              "as history knows them.", PastTotalsView, None, 200, (400, 503), (("at", TIME),)),
    Operation("get", "usage", "get_usage",
              "What owners, NodeList or GpuList held, per bucket of whole "
              "hours; of one user, for a day at most, of whole minutes too.", UsageList, None, 200,
              (400, 503),
              (("by", {"enum": list(BYS), "default": "user"}),
               ("bucket", {"type": "integer", "minimum": 60, "default": 86_400}),
               ("of", {"type": "string", "description": "Of this one only."}),
               ("start", TIME), ("end", TIME), _FORMAT), True),
    Operation("get", "reports", "get_report",
              "What owners, NodeList or GpuList held over a time of "
              "whole hours, and what it cost.", Report, None, 200, (400, 503),
              (("by", {"enum": list(BYS), "default": "user"}), ("start", TIME), ("end", TIME),
               ("price_gpu_hour", _PRICE), ("price_kwh", _PRICE), _FORMAT), True),
    *ALERTS,
    *QUOTAS,
    Operation("get", "mps", "list_mps", "MPS on each Node that has said: daemons, servers, "
              "clients, and what is set.", MpsList, None, 200, (400,), NODE_QUERY),
    Operation("get", "mps/past", "get_mps_past", "What MPS of a Node had to do, by the minute, of "
              "the last day or of 7 days at most: how many clients, and the load of its Gpus.",
              MpsUsageView, None, 200, (400, 404, 503),
              (("node", {"type": "string", "minLength": 1}), ("start", TIME), ("end", TIME))),
    Operation("get", "limits", "list_limits", "Power caps, clock locks and compute modes that "
              "gpudeck holds on Gpus: until when, and whether they are in force.", LimitsList, None,
              200, (400,), NODE_QUERY),
    Operation("get", "hold", "get_hold", "What is held, and by whom: the fleet, and each Node.",
              HoldStateView),
    Operation("post", "hold", "hold", "Stops every act on a Node, or with `node` null on the "
              "fleet, at once and until it is released.", HoldStateView, NewHold, 200,
              (400, 404, 409, 415, 503)),
    Operation("delete", "hold", "release", "Lets go of a hold that was ordered here.",
              HoldStateView,
              None, 200, (400, 404, 503), (("node", {"type": "string", "minLength": 1}),)),
    Operation("put", "tasks/{id}/keep", "keep_task", "Its owner wants the Task to be left alone "
              "until then, within seven days.", KeepView, NewKeep, 200, (400, 404, 409, 415, 503)),
    Operation("delete", "tasks/{id}/keep", "keep_task_no_more", "Takes that back.", None, None,
              204, (404, 503)),
    Operation("get", "addresses", "list_addresses", "Where owners read their mail.", AddressList),
    Operation("put", "addresses", "put_addresses", "The whole table.", AddressList, AddressList,
              200, (400, 409, 415, 503)),
    Operation("get", "audit", "list_audit", "Records, newest first: on Nodes in one's scope; an "
              "admin of everything sees all.", AuditRecordList, None, 200, (400,), AUDIT_QUERY),
    Operation("get", "audit/verify", "verify_audit", "Walks the whole chain; compares it with its "
              "copy and with the heads that NodeList keep.", AuditVerdictView, None, 200,
              (400, 503)),
    Operation("post", "previews", "preview", "What an act would hit, as the nodes see it now: for "
              "60 seconds, for one order, for whoever asked.", PreviewView, NewPreview, 201,
              (400, 404, 409, 415, 503)),
    Operation("post", "commands", "order", "Does what was previewed. More than 3 jobs wait for a "
              "second person: `plan`.", OrderResultView, NewCommands, 202,
              (400, 404, 409, 415, 503)),
    Operation("get", "plans", "list_plans", "What waits for a second person, and what became of "
              "it.", ActionPlanList),
    Operation("post", "plans/{plan_id}/approve", "approve_plan", "By another person than the one "
              "who asked; all is looked at anew, and what has changed is refused.", OrderResultView,
              None,
              202, (404, 409, 503)),
    Operation("delete", "plans/{plan_id}", "withdraw_plan", "Nothing of it is done.", None, None,
              204, (404, 409, 503)),
    Operation("patch", "nodes/{id}", "change_node", "Puts a Node into another group.", NodeView,
              NodeChange, 200, (400, 404, 409, 415)),
    Operation("post", "nodes/{id}/approve", "approve_node", "Lets a Node in that waits for it.",
              NodeView, None, 200, (404, 409)),
    Operation("post", "nodes/{id}/revoke", "revoke_node", "Throws a Node out, within a second and "
              "for good.", NodeView, None, 200, (404,)),
    Operation("get", "enrolments", "list_enrolments",
              "Places for new NodeList, those of the last day "
              "that are over as well.", EnrolmentList),
    Operation("post", "enrolments", "add_enrolment", "A place for one Node, for an hour; `token` "
              "and `command` are shown this once.", EnrolmentView, NewEnrolment, 201,
              (400, 409, 415)),
    Operation("delete", "enrolments/{id}", "withdraw_enrolment", "Takes an unused place back.",
              None, None, 204, (404,)),
    Operation("get", "me", "me", "Who asks, and what they may.", CurrentActorView),
    Operation("get", "users", "list_users", "All people.", UserList),
    Operation("post", "users", "add_user", "A new person; without a password, `link` is a link to "
              "set one, once.", UserView, NewUser, 201, (400, 409, 415)),
    Operation("patch", "users/{name}", "change_user", "Ends their sessions. Who is no admin may "
              "change their own password, and no more.", UserView, UserChange, 200,
              (400, 404, 409, 415)),
    Operation("delete", "users/{name}", "remove_user", "Ends their sessions.", None, None, 204,
              (404, 409)),
    Operation("post", "users/{name}/link", "reset_password", "Forgets the password, ends the "
              "sessions; `link` is a link to set a new one, once.", UserView, None, 201,
              (404, 409)),
    Operation("get", "tokens", "list_tokens", "All API tokens, without their secrets.", TokenList),
    Operation("post", "tokens", "add_token", "A new API token; `secret` is shown this once.",
              TokenView, NewToken, 201, (400, 409, 415)),
    Operation("delete", "tokens/{token_id}", "remove_token", "Revokes one.", None, None, 204,
              (404,)),
    Operation("get", "sessions", "list_sessions", "One's own; an admin sees all.", SessionList),
    Operation("delete", "sessions/{session_id}", "end_session", "One's own; an admin ends any.",
              None, None, 204, (404,)),
    Operation("post", "sign-out-everywhere", "sign_out_everywhere", "Ends all of one's own "
              "sessions.", None, None, 204),
    Operation("post", "fresh", "fresh", "The password once more: for five minutes, what harms "
              "others may be done.", ReauthenticationView, PasswordConfirmation, 200,
              (400, 409, 415, 429, 503)),
    Operation("get", "sign-ins", "list_sign_ins", "The newest 200 attempts, newest first.",
              SignInList),
)


def document() -> dict[str, Any]:
    structs: list[type] = [struct for _, struct, _ in (*LISTS, *ITEMS)] + [ProblemDetails]
    structs += [struct for one in OPERATIONS for struct in (one.answer, one.body)
                if struct is not None] + [CommandList, EventList]
    _, schemas = msgspec.json.schema_components(
        structs, ref_template="#/components/schemas/{name}")
    _say_what_is_sent(schemas)
    paths = {f"/api/v1/{path}": {"get": _list(path, struct, text)} for path, struct, text in LISTS}
    paths |= {f"/api/v1/{path}": {"get": _item(path, struct, text)} for path, struct, text in ITEMS}
    paths["/api/v1/audit/export"] = {"get": _export()}
    paths.setdefault("/api/v1/commands", {})["get"] = _list(
        "commands", CommandList, "Commands, newest first; `state` open: those without an outcome.",
        [_query("state", {"enum": ["open", "all"], "default": "all"}),
         _query("task", {"type": "string"}), _query("node", {"type": "string"})])
    paths["/api/v1/events"] = {"get": _list(
        "events", EventList, "The newest Events of Nodes in one's scope, newest first; of each "
        "Node the newest 200 that matter and the newest 200 others, and 2,000 in all; with `start` "
        "or `end`, all that history has.",
        [_query(*each) for each in EVENTS_QUERY])}
    paths["/api/v1/openapi.json"] = {
        "get": _operation("openapi", "This document.", {"type": "object"}, [], {})}
    for one in OPERATIONS:
        paths.setdefault(f"/api/v1/{one.path}", {})[one.method] = _other(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "gpudeck", "version": __version__, "description": _metrics_text()},
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "gpudeck_session"}}},
    }


def _say_what_is_sent(schemas: dict[str, Any]) -> None:
    """What a client may find missing in the answer of an older hub is always there in ours."""
    for name, struct in vars(action_views).items():
        if getattr(struct, "__module__", "") == action_views.__name__:
            schemas[name]["required"] = list(schemas[name]["properties"])
            for each in schemas[name]["properties"].values():
                each.pop("default", None)
    for name in ("PreviewView", "ActionPlanView"):
        schemas[name]["properties"]["params"] = _ref(ActionParams)


def _metrics_text() -> str:
    rows = [f"- `{metric.key}` [{_unit(metric)}]: {metric.meaning}"
            for metric in (*COLUMNS, *SLOW)]
    return "\n".join(["Keys of `values`, `missing` and `last_values`:", "", *rows])


def _unit(metric: Metric) -> str:
    if metric.words is not None:
        return ", ".join(f"{code}: {word}" for code, word in metric.words.items())
    return metric.unit or ("bit mask" if metric.key == "throttle_bits" else "a count")


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _list(path: str, struct: type, text: str, more: list[dict[str, Any]] | None = None
          ) -> dict[str, Any]:
    parameters = [
        _query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 100}),
        _query("cursor", {"type": "string", "pattern": "^[A-Za-z0-9_=-]+$",
                          "maxLength": MAX_CURSOR}),
        *([_query("filter", {"type": "string", "maxLength": MAX_LENGTH})] if more is None
          else more),
        *_PARAMETERS.get(path, ()),
        _if_none_match(),
    ]
    return _operation(f"list_{path}", text, _ref(struct), parameters,
                      {"400": _problem("A parameter is wrong; `detail` says which and why.")})


def _repeated(name: str) -> dict[str, Any]:
    return _query(name, {"type": "array", "items": {"type": "string"}, "maxItems": MAX_REPEATED})


_OF_NODE = _query("node", {"type": "string"})
_GPU_PARAMETERS = (
    _OF_NODE,
    _repeated("uuid"),
    {"name": "metrics", "in": "query", "required": False,
     "description": "Of these metrics only, their keys joined by commas.",
     "schema": {"type": "string", "pattern": _METRICS}},
)

# In a sorted list rows move while it is read page by page; only by node and id is none missed.
_TASK_PARAMETERS = (
    _OF_NODE,
    {"name": "sort", "in": "query", "required": False, "schema": {"enum": list(SORTS)}},
    {"name": "order", "in": "query", "required": False,
     "schema": {"enum": ["asc", "desc"], "default": "asc"}},
    {"name": "group", "in": "query", "required": False, "schema": {"enum": list(GROUP_BYS)}},
    _repeated("open"),
    _repeated("id"),
)

_PARAMETERS = {"nodes": (_repeated("id"),), "gpus": _GPU_PARAMETERS, "tasks": _TASK_PARAMETERS}


def _item(path: str, struct: type, text: str) -> dict[str, Any]:
    name = path.partition("{")[2][:-1]
    parameters = [_in_path(name), _if_none_match()]
    return _operation(f"get_{path.partition('/')[0]}", text, _ref(struct), parameters,
                      {"400": _problem("A parameter is wrong."), "404": _problem("There is none.")})


def _operation(name: str, text: str, schema: dict[str, Any], parameters: list[dict[str, Any]],
               more: dict[str, Any]) -> dict[str, Any]:
    answers = {
        "200": {"description": "Here it is.",
                "headers": {"ETag": {"schema": {"type": "string"}}},
                "content": {"application/json": {"schema": schema}}},
        "304": {"description": "Unchanged since the ETag that was sent."},
        "401": ERRORS[401], "403": ERRORS[403], "405": ERRORS[405], "406": ERRORS[406],
        "414": {"description": "A request line of more than 64 kB."},
    }
    return {"operationId": name, "summary": text, "parameters": parameters,
            "responses": answers | more}


def _export() -> dict[str, Any]:
    """A file of lines, which no list of items is."""
    lines = {"description": "One JSON object per line: `seq`, `body`, `hash`.",
             "content": {"application/jsonl": {"schema": {"type": "string"}}}}
    return {"operationId": "export_audit", "summary": "All records, oldest first.",
            "parameters": [], "responses": {"200": lines} | {
                str(status): ERRORS[status] for status in (400, 401, 403, 405, 406, 503)}}


def _other(one: Operation) -> dict[str, Any]:
    name = one.path.partition("{")[2].partition("}")[0]
    parameters = [_in_path(name)] if name else []
    parameters += [_query(*each) for each in one.query]
    errors = {str(status): ERRORS[status] for status in (401, 403, 405, 406, 413, *one.errors)}
    made: dict[str, Any] = {"operationId": one.name, "summary": one.text, "parameters": parameters}
    if one.body is not None:
        made["requestBody"] = {"required": True,
                               "content": {"application/json": {"schema": _ref(one.body)}}}
        errors["411"] = ERRORS[411]
    if one.version:
        parameters += _conditions(one.version)
    if one.method == "post":
        parameters.append(_ONCE)
        errors |= {str(status): ERRORS[status] for status in (409, 422)}
        errors.setdefault("400", ERRORS[400])
    if one.method != "get":
        errors["503"] = ERRORS[503]
    if one.method == "get":
        parameters.append(_if_none_match())
        errors["304"] = ERRORS[304]
    done: dict[str, Any] = {"description": "Done."}
    if one.answer is not None:
        done["content"] = {"application/json": {"schema": _ref(one.answer)}}
    if one.is_file:
        done["content"] |= {"text/csv": {"schema": {"type": "string"}},
                            "application/vnd.apache.parquet": {"schema": {
                                "type": "string", "format": "binary"}}}
    return made | {"responses": {str(one.status): done} | errors}


def _conditions(version: str) -> list[dict[str, Any]]:
    return [
        {"name": "If-None-Match", "in": "header", "required": False, "schema": {"type": "string"},
         "description": "`*`: only where there is none yet."},
        {"name": "If-Match", "in": "header", "required": False, "schema": {"type": "string"},
         "description": f"Only while its `{version}` is this one, such as `\"7\"`: so that what "
         "somebody else has changed meanwhile is not lost."}]


_ONCE = {
    "name": "Idempotency-Key", "in": "header", "required": False,
    "description": "A new one for each request, such as a UUID. Asked again with the same one and "
    "the same body within a day, it is not done twice and answered as it was, with "
    "`Idempotency-Replayed: true`. A hub that was started anew does not know it.",
    "schema": {"type": "string", "pattern": "^[\\x21-\\x7e]{1,128}$"}}


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True,
            "schema": {"type": "string", "minLength": 1}}


def _if_none_match() -> dict[str, Any]:
    return {"name": "If-None-Match", "in": "header", "required": False,
            "schema": {"type": "string"}}


def _ref(struct: type) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}


def _problem(text: str) -> dict[str, Any]:
    return {"description": text,
            "content": {"application/problem+json": {"schema": _ref(ProblemDetails)}}}


ERRORS = {
    304: {"description": "Unchanged since the ETag that was sent."},
    400: _problem("The body is not what is asked for; `detail` says why."),
    401: _problem("Neither a session nor an API token, or one that has ended."),
    403: _problem("Not for this role or scope. With the type `urn:gpudeck:problem:stale`: give the "
                  "password again first."),
    404: _problem("There is none, or it is not for you to know."),
    405: _problem("`Allow` says which methods there are."),
    406: _problem("It is not served in any form that `Accept` names."),
    409: _problem("It would break a rule, such as taking away the last admin; or the same request "
                  "is being done."),
    411: _problem("A body without its length."),
    412: _problem("It is not the version that `If-Match` names, or there is one already."),
    413: _problem("The body is too large."),
    415: _problem("Only application/json is read."),
    422: _problem("The `Idempotency-Key` was used for another request."),
    429: _problem("Too many guesses; `Retry-After` says how long to wait."),
    503: _problem("Not at this moment, such as while too many passwords are being checked; or it "
                  "cannot be recorded, and so it was not done."),
}
