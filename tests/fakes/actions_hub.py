"""The REST routes of actions over real HTTP, with a script for the states of a command."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Item = dict[str, Any]


class ActsHub(ThreadingHTTPServer):
    def __init__(self, jobs: Sequence[Item], states: Sequence[str] = ("queued", "acting", "done")
                 ) -> None:
        self.jobs = {task_id: job for job in jobs for task_id in job["task_ids"]}
        self.states = states
        self.step_s = 0.0  # in which a command goes one state on; 0: at every request
        self.token = "t-1"
        self.requests: list[tuple[str, str, Any]] = []
        self.keys: defaultdict[str, list[str | None]] = defaultdict(list)  # of each POST, by path
        self.previews: dict[str, Item] = {}
        self.commands: dict[str, Item] = {}
        self.holds: dict[str, str] = {}
        self.second_person = False
        self.matched: set[str] | None = None  # uuids that a filter matches
        self.broken_with: int | None = None
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def posted(self, path: str) -> list[Any]:
        return [row[2] for row in self.requests if row[:2] == ("POST", path)]

    def tasks(self) -> list[Item]:
        return [{"id": task_id, "node": job["node"], "host": job["host"],
                 "pid": job["processes"][0]["pid"], "user": job["owner"],
                 "command": job["command"],
                 "gpus": [{"uuid": gpu["uuid"]} for gpu in job["gpus"]]}
                for task_id, job in self.jobs.items()]

    def gpus(self) -> list[Item]:
        return [{"node": job["node"], "uuid": gpu["uuid"]} for job in self.jobs.values()
                for gpu in job["gpus"]]

    def preview(self, body: Item) -> Item:
        items = {id(self.jobs[task]): self.jobs[task] for task in body["targets"]}
        preview = {"id": f"p{len(self.previews)}", "action": body["action"],
                   "params": body["params"], "expires_at": time.time() + 60,
                   "items": [*items.values()],
                   "needs": {"fresh": False, "second_person": self.second_person},
                   "refused": all(job["refusals"] for job in items.values())}
        self.previews[preview["id"]] = preview
        return preview

    def order(self, body: Item) -> Item:
        preview = self.previews.pop(body["preview"])
        if self.second_person:
            return {"items": [], "plan": {
                "id": "w1", "action": preview["action"], "state": "waiting",
                "ends_at": time.time() + 600, "items": preview["items"]}}
        for job in preview["items"]:
            command_id = f"c{len(self.commands)}"
            self.commands[command_id] = {
                "id": command_id, "action": preview["action"], "task_id": job["task_ids"][0],
                "job_id": job["job_id"], "node": job["node"], "host": job["host"],
                "owner": job["owner"], "command": job["command"], "at": 0, "began": time.time(),
                "step": "", "refusal": None, "verified": None, "reason": body["reason"],
                "sentence": ""}
        return {"items": [self.now(command_id) for command_id in self.commands], "plan": None}

    def now(self, command_id: str) -> Item:
        command = self.commands[command_id]
        if self.step_s:
            command["at"] = int((time.time() - command["began"]) / self.step_s)
        state = self.states[min(command["at"], len(self.states) - 1)]
        command["at"] += 1
        return {**command, "state": state, "sentence": f"the sentence of {state}"}


class _Handler(BaseHTTPRequestHandler):
    server: ActsHub

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        url = urlsplit(self.path)
        path, query = unquote(url.path).removeprefix("/api/v1/"), parse_qs(url.query)
        raw = self.rfile.read(int(self.headers["Content-Length"] or 0))
        body = json.loads(raw) if raw else None
        self.server.requests.append((method, path, body))
        if method == "POST":
            self.server.keys[path].append(self.headers["Idempotency-Key"])
        if self.headers["Authorization"] != f"Bearer {self.server.token}":
            return self._send(401, {"title": "Unauthorized", "detail": "this token is not known"})
        answer = self._route(method, path, query, body)
        if answer is None:
            return self._send(404, {"title": "Not Found", "detail": f"there is nothing at {path}"})
        return self._send(*answer)

    def _route(self, method: str, path: str, query: Any, body: Any) -> tuple[int, Any] | None:
        hub, (kind, _, name) = self.server, path.partition("/")
        match method, kind:
            case "GET", "tasks" if name:
                return (200, {"id": name}) if name in hub.jobs else None
            case "GET", "tasks":
                return 200, {"items": hub.tasks(), "next": None}
            case "GET", "gpus":
                return 200, {"items": [gpu for gpu in hub.gpus() if hub.matched is None
                                       or gpu["uuid"] in hub.matched], "next": None}
            case "GET", "nodes":
                nodes = {job["node"]: job["host"] for job in hub.jobs.values()}
                return 200, {"items": [
                    {"id": id, "host": host, "access": "approved", "state": "live",
                     "holds": [f"the hub: {hub.holds[id]}"] if id in hub.holds else []}
                    for id, host in nodes.items()], "next": None}
            case "POST", "previews":
                return 201, hub.preview(body)
            case "POST", "commands":
                answer = hub.order(body)
                return (202, answer) if hub.broken_with is None else (hub.broken_with, {})
            case "GET", "commands":
                return (200, hub.now(name)) if name in hub.commands else None
            case "PUT", "tasks":
                return 200, {"until": body["until"]}
            case "DELETE", "tasks":
                return 204, None
        return self._hold(method, kind, query, body)

    def _hold(self, method: str, kind: str, query: Any, body: Any) -> tuple[int, Any] | None:
        hub = self.server
        nodes = {job["node"]: job["host"] for job in hub.jobs.values()}
        if kind != "hold":
            return None
        if method == "POST":
            targets = nodes if body["node"] is None else [body["node"]]
            hub.holds |= dict.fromkeys(targets, body["reason"])
        elif method == "DELETE":
            for node in query.get("node", [*nodes]):
                hub.holds.pop(node, None)
        return 200, {"fleet": None, "nodes": [
            {"node": node, "host": host, "wanted": node in hub.holds, "by": "ops",
             "reason": hub.holds.get(node), "since": 1.0,
             "holds": [f"the hub: {hub.holds[node]}"] if node in hub.holds else []}
            for node, host in nodes.items()]}

    def _send(self, status: int, body: Any) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass
