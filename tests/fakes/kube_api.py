"""An API server of Kubernetes over real HTTP: version, pods and nodes page by page; delete, evict
and cordon with preconditions, disruption budgets, dry runs and rights; refusals as the real one
words them. Shapes as Kubernetes 1.20 and 1.31 have them.

A deleted pod stays with its deletionTimestamp until `kubelet_ends` is called, as it does until its
kubelet has ended it.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, Any]
ACCOUNT = "system:serviceaccount:gpudeck:agent"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/eviction)?")
_NODE = re.compile(r"/api/v1/nodes/([^/]+)")


def a_pod(name: str, gpus: int | None, node: str | None = "gpu01", phase: str = "Running",
          namespace: str = "research", resource: str = "nvidia.com/gpu", **spec: Any
          ) -> dict[str, Any]:
    limits = {"cpu": "500m", "memory": "2Gi"} | ({} if gpus is None else {resource: str(gpus)})
    waits = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}",
                         "ownerReferences": [{"kind": "Job", "name": "train", "controller": True}]},
            "spec": {"nodeName": node, "containers": [
                {"name": "main", "image": "x", "resources": {"limits": limits}}]} | spec,
            "status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z",
                       "conditions": waits if node is None else []}}


def a_node(name: str, gpus: int = 8, ready: str = "True", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec, "status": {
        "allocatable": {"cpu": "64", "nvidia.com/gpu": str(gpus)},
        "conditions": [{"type": "Ready", "status": ready}]}}


def status(code: int, reason: str, message: str) -> Answer:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
                  "reason": reason, "code": code}


def no_such(resource: str, name: str) -> Answer:
    return status(404, "NotFound", f'{resource} "{name}" not found')


def forbidden(verb: str, resource: str) -> Answer:
    return status(403, "Forbidden", f'{resource} is forbidden: User "{ACCOUNT}" cannot {verb} '
                                    f'resource "{resource}" in API group "" at the cluster scope')


@dataclass
class KubeApi:
    pods: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    token: str = ""  # any other one is refused
    page: int = 500
    requests: list[str] = field(default_factory=list)
    redirects_to: str = ""
    raw: bytes | None = None  # in place of every answer
    url: str = ""
    # what the credential may, besides to read; as (verb, resource)
    may: set[tuple[str, str]] = field(default_factory=lambda: {
        ("delete", "pods"), ("create", "pods/eviction"), ("patch", "nodes")})
    budgeted: set[str] = field(default_factory=set)  # pods of which none may be evicted now
    ended_at_once: bool = False  # a kubelet that needs no time
    changed: list[tuple[str, str]] = field(default_factory=list)  # (verb, name), no dry run
    lock: Lock = field(default_factory=Lock)

    @contextmanager
    def running(self) -> Iterator["KubeApi"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        return next((pod for pod in self.pods
                     if (pod["metadata"]["namespace"], pod["metadata"]["name"])
                     == (namespace, name)), None)

    def kubelet_ends(self, name: str) -> None:
        with self.lock:
            self.pods = [pod for pod in self.pods if pod["metadata"]["name"] != name]

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        with self.lock:
            if method == "GET":
                return self._read(path, query)
            if path == REVIEWS:
                attributes = body["spec"]["resourceAttributes"]
                resource = "/".join(filter(None, (attributes["resource"],
                                                  attributes.get("subresource"))))
                return 201, {"status": {"allowed": (attributes["verb"], resource) in self.may}}
            if match := _POD.fullmatch(path):
                return self._end(method, match[1], match[2], match[3], body)
            if method == "PATCH" and (match := _NODE.fullmatch(path)):
                return self._cordon(match[1], body, "All" in query.get("dryRun", []))
            return status(405, "MethodNotAllowed", "the server does not allow this method")

    def _read(self, path: str, query: dict[str, list[str]]) -> Answer:
        if path == "/version":
            return 200, {"major": "1", "minor": "31", "gitVersion": "v1.31.2"}
        if match := _POD.fullmatch(path):
            pod = self.pod(match[1], match[2])
            return no_such("pods", match[2]) if pod is None else (200, pod)
        if match := _NODE.fullmatch(path):
            node = self._node(match[1])
            return no_such("nodes", match[1]) if node is None else (200, node)
        kind = path.rpartition("/")[2]
        items = {"/api/v1/pods": self.pods, "/api/v1/nodes": self.nodes}.get(path)
        if items is None:
            return 404, {"kind": "Status", "message": f"{path} was not found"}
        begin, size = int(query.get("continue", ["0"])[0]), min(
            self.page, int(query.get("limit", ["500"])[0]))
        more = str(begin + size) if begin + size < len(items) else ""
        return 200, {"kind": f"{kind.title()[:-1]}List", "metadata": {"continue": more},
                     "items": items[begin: begin + size]}

    def _node(self, name: str) -> dict[str, Any] | None:
        return next((node for node in self.nodes if node["metadata"]["name"] == name), None)

    def _end(self, method: str, namespace: str, name: str, eviction: str | None, body: Any
             ) -> Answer:
        verb, resource = ("create", "pods/eviction") if eviction else ("delete", "pods")
        if method != ("POST" if eviction else "DELETE"):
            return status(405, "MethodNotAllowed", "the server does not allow this method")
        if (verb, resource) not in self.may:
            return forbidden(verb, resource)
        if eviction and (body["apiVersion"], body["kind"]) != ("policy/v1", "Eviction"):
            return status(400, "BadRequest", "no kind is registered for this")
        options = body.get("deleteOptions", {}) if eviction else body
        pod = self.pod(namespace, name)
        if pod is None:
            return no_such("pods", name)
        uid, expected_uid = pod["metadata"]["uid"], options.get("preconditions", {}).get("uid")
        if expected_uid not in (None, uid):
            return status(409, "Conflict", f'Operation cannot be fulfilled on Pod "{name}": '
                          f"Precondition failed: UID in precondition: {expected_uid}, UID in "
                          f"object meta: {uid}")
        if eviction and name in self.budgeted:
            return status(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's "
                                                  "disruption budget.")
        if options.get("dryRun") != ["All"]:
            self._leave(pod, options.get("gracePeriodSeconds"))
            self.changed.append(("evict" if eviction else "delete", name))
        return (201, {"kind": "Status", "status": "Success"}) if eviction else (200, pod)

    def _leave(self, pod: dict[str, Any], grace_s: int | None) -> None:
        own = pod["spec"].get("terminationGracePeriodSeconds", 30)
        grace = own if grace_s is None else grace_s
        until = datetime.now(UTC) + timedelta(seconds=grace)
        pod["metadata"] |= {"deletionTimestamp": f"{until:%Y-%m-%dT%H:%M:%SZ}",
                            "deletionGracePeriodSeconds": grace}
        if self.ended_at_once or grace == 0:
            self.pods.remove(pod)

    def _cordon(self, name: str, body: Any, is_dry: bool) -> Answer:
        if ("patch", "nodes") not in self.may:
            return forbidden("patch", "nodes")
        node = self._node(name)
        if node is None:
            return no_such("nodes", name)
        if not is_dry:
            node["spec"] |= body["spec"]
            self.changed.append(("cordon" if body["spec"]["unschedulable"] else "uncordon", name))
        return 200, node


def _handler(api: KubeApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            api.requests.append(self.path)
            parts = urlsplit(self.path)
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
            if api.redirects_to:
                self.send_response(302)
                self.send_header("Location", api.redirects_to)
                self.end_headers()
                return
            merge = self.headers.get("Content-Type") == "application/merge-patch+json"
            if api.token and self.headers.get("Authorization") != f"Bearer {api.token}":
                code, answer = forbidden("list", "pods")
            elif self.command == "PATCH" and not merge:
                code, answer = status(415, "UnsupportedMediaType", "it takes merge patches")
            else:
                code, answer = api.answer(self.command, parts.path, parse_qs(parts.query), body)
            text = json.dumps(answer).encode() if api.raw is None else api.raw
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_DELETE = do_PATCH = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
