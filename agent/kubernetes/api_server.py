"""The only module that talks to an API server of Kubernetes, with a limit on time and size, no
proxy and no redirect.

An accepted request is not yet done: a deleted pod lives on for its grace period.
"""

import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from gpudeck.contract.kubernetes import (
    KubernetesDelete,
    KubernetesEvict,
    KubernetesNode,
    KubernetesPod,
    KubernetesRight,
)

from .core import (
    KubernetesError,
    KubernetesRefusedError,
    PodNow,
    is_allowed,
    node_of,
    nodes_of,
    pod_of,
    pods_of,
    version_of,
)

INSIDE = "cluster"  # the server of the cluster that this pod runs in
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
WITHIN_S = 20.0  # for one answer
MOST_BYTES = 64_000_000  # in one list, all pages together
PAGE, MOST_PAGES = 500, 400
LOOPBACK = ("127.0.0.1", "localhost", "::1")
T = TypeVar("T")
DRY_RUN = {"dryRun": ["All"]}
_REVIEWED: dict[KubernetesRight, dict[str, str]] = {
    "delete": {"verb": "delete", "resource": "pods"},
    "evict": {"verb": "create", "resource": "pods", "subresource": "eviction"},
    "cordon": {"verb": "patch", "resource": "nodes"}}


@dataclass(frozen=True, slots=True)
class ApiServer:
    """`token_file` is read before each request: Kubernetes renews the token every hour."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None

    @classmethod
    def of(cls, address: str, token_file: Path | None, ca_file: Path | None) -> "ApiServer":
        """Return the server at this address: a URL, or `cluster` in a pod. Raises
        KubernetesError."""
        if address == INSIDE:
            host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
            port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
            if not host:
                raise KubernetesError("this is no pod: KUBERNETES_SERVICE_HOST is not set; give "
                                      "the URL of the API server")
            address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
            token_file, ca_file = token_file or ACCOUNT / "token", ca_file or ACCOUNT / "ca.crt"
        parts = urlsplit(address)
        is_here = parts.scheme == "http" and parts.hostname in LOOPBACK
        if not parts.hostname or not (parts.scheme == "https" or is_here):
            raise KubernetesError("the API server is given as https://HOST:PORT, or as `cluster` "
                                  "in a pod; http:// only on this machine, as kubectl proxy has "
                                  "it")
        return cls(address.rstrip("/"), token_file, ca_file)

    def version(self) -> str:
        return version_of(self._get("/version", MOST_BYTES))

    def pods(self) -> list[KubernetesPod]:
        return self._all("/api/v1/pods", pods_of)

    def nodes(self) -> list[KubernetesNode]:
        return self._all("/api/v1/nodes", nodes_of)

    def pod(self, namespace: str, name: str) -> PodNow | None:
        """Return the pod. None: there is none of this name."""
        return self._one(_pod_path(namespace, name), pod_of)

    def node(self, name: str) -> KubernetesNode | None:
        return self._one(_node_path(name), node_of)

    def rights(self) -> tuple[KubernetesRight, ...]:
        """Return what the credential may do, in all namespaces."""
        return tuple(right for right, attributes in _REVIEWED.items() if is_allowed(self._send(
            "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes}})))

    def end(self, request: KubernetesDelete | KubernetesEvict, is_dry: bool) -> None:
        """End the pod, but only the one of that uid. A dry run changes nothing, and is refused all
        the same."""
        options = {"preconditions": {"uid": request.uid}} | (DRY_RUN if is_dry else {})
        path = _pod_path(request.namespace, request.pod)
        if isinstance(request, KubernetesEvict):
            self._send("POST", f"{path}/eviction", {
                "apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": options,
                "metadata": {"name": request.pod, "namespace": request.namespace}})
        else:
            body: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
            if request.grace_s is not None:
                body["gracePeriodSeconds"] = request.grace_s
            self._send("DELETE", path, body)

    def cordon(self, name: str, is_cordoned: bool, is_dry: bool) -> None:
        self._send("PATCH", _node_path(name) + ("?dryRun=All" if is_dry else ""),
                   {"spec": {"unschedulable": is_cordoned}})

    def _one(self, path: str, read: Callable[[bytes], T]) -> T | None:
        try:
            return read(self._get(path, MOST_BYTES))
        except KubernetesRefusedError as error:
            if error.status == 404:
                return None
            raise

    def _all(self, path: str, read: Callable[[bytes], tuple[list[T], str]]) -> list[T]:
        """Return the items of all pages."""
        entries: list[T] = []
        after, bytes_left = "", MOST_BYTES
        for _ in range(MOST_PAGES):
            more = f"&continue={quote(after, safe='')}" if after else ""
            page = self._get(f"{path}?limit={PAGE}{more}", bytes_left)
            bytes_left -= len(page)
            items, after = read(page)
            entries += items
            if not after:
                return entries
        raise KubernetesError(f"the API server lists more than {MOST_PAGES * PAGE} items")

    def _get(self, path: str, most: int) -> bytes:
        return self._answer(self._request("GET", path), most)

    def _send(self, method: str, path: str, body: dict[str, object]) -> bytes:
        request = self._request(method, path)
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/merge-patch+json" if method == "PATCH"
                           else "application/json")
        return self._answer(request, MOST_BYTES)

    def _answer(self, request: urllib.request.Request, most: int) -> bytes:
        ends_at = time.monotonic() + WITHIN_S
        try:
            with self._opener().open(request, timeout=WITHIN_S) as answer:
                return _read(answer, most, ends_at)
        except urllib.error.HTTPError as error:
            raise KubernetesRefusedError(
                _refusal(error, urlsplit(request.full_url).path), error.code) from error
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise KubernetesError(f"{self.url} cannot be asked: {reason}"[:512]) from error

    def _request(self, method: str, path: str) -> urllib.request.Request:
        request = urllib.request.Request(f"{self.url}{path}", method=method, headers={
            "Accept": "application/json", "User-Agent": "gpudeck"})
        if self.token_file is not None:
            try:
                token = self.token_file.read_text().strip()
            except OSError as error:
                raise KubernetesError(f"{self.token_file} cannot be read: {error.strerror}"
                                      ) from error
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        return request

    def _opener(self) -> urllib.request.OpenerDirector:
        trusted = ssl.create_default_context(
            cafile=None if self.ca_file is None else str(self.ca_file))
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted),
            _NoRedirect())


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _read(answer: IO[bytes], most: int, ends_at: float) -> bytes:
    body = bytearray()
    while part := answer.read1(65_536):  # type: ignore[attr-defined]
        body += part
        if len(body) > most:
            raise KubernetesError(f"the API server answers more than {MOST_BYTES // 10**6} MB")
        if time.monotonic() >= ends_at:
            raise KubernetesError(f"the API server did not answer within {WITHIN_S:g} s")
    return bytes(body)


class _Status(msgspec.Struct):
    message: str = ""


def _refusal(error: urllib.error.HTTPError, path: str) -> str:
    """Return the server's refusal, which names user, verb and resource."""
    try:
        message = msgspec.json.decode(error.read(65_536), type=_Status).message
    except (msgspec.MsgspecError, OSError, HTTPException):
        message = ""
    return f"the API server answers {error.code} to {path}{f': {message}' if message else ''}"[:512]
