"""A real API server of Kubernetes, with Debian's etcd, for the tests alone: objects are checked,
stored and removed as in a cluster; no controller makes pods of them."""

import secrets
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.demos import ROOT
from tests.fakes.hub import wait_for
from tests.machine import required
from tests.ports import free_port

BUILT = ROOT / "build" / "kubernetes"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: tests
contexts: [{{name: tests, context: {{cluster: tests, user: admin}}}}]
clusters: [{{name: tests, cluster: {{server: "{url}", insecure-skip-tls-verify: true}}}}]
users: [{{name: admin, user: {{token: "{token}"}}}}]
"""


class KubernetesServer:
    def __init__(self, folder: Path, url: str, token: str) -> None:
        self.url, self._token = url, token
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(KUBECONFIG.format(url=url, token=token))
        self.kubeconfig.chmod(0o600)

    def try_to(self, line: str) -> "subprocess.CompletedProcess[str]":
        """Run a command line of a page, in the checkout."""
        return subprocess.run(["sh", "-euc", line], cwd=ROOT, capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "HOME": str(self.kubeconfig.parent),
                                   "KUBECONFIG": str(self.kubeconfig)}, timeout=300)

    def run(self, line: str) -> str:
        process = self.try_to(line)
        assert process.returncode == 0, f"{line}\n{process.stdout}\n{process.stderr}"
        return process.stdout

    def is_ready(self) -> bool:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(f"{self.url}/readyz", headers={
            "Authorization": f"Bearer {self._token}"})
        try:
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def a_kubernetes_server(folder: Path) -> Iterator[KubernetesServer]:
    for program in ("etcd", "kubectl", "go"):
        required(program)
    build = subprocess.run([ROOT / "tests/build_kube_apiserver", BUILT], capture_output=True,
                           text=True)
    if build.returncode:
        pytest.fail(f"kube-apiserver could not be built:\n{build.stderr[-2_000:]}")
    key, token, port = folder / "accounts.key", secrets.token_hex(16), free_port()
    key.write_bytes(rsa.generate_private_key(65_537, 2_048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption()))
    (folder / "tokens.csv").write_text(f"{token},admin,1,system:masters\n")
    (folder / "tokens.csv").chmod(0o600)
    etcd, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    processes = []

    def start(*words: str) -> None:
        with (folder / f"{Path(words[0]).name}.log").open("wb") as log:
            processes.append(subprocess.Popen(words, stdout=log, stderr=log,
                                              stdin=subprocess.DEVNULL))

    server = KubernetesServer(folder, f"https://127.0.0.1:{port}", token)
    try:
        start(required("etcd"), f"--data-dir={folder / 'etcd'}", f"--listen-client-urls={etcd}",
              f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peers}",
              f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}")
        start(str(BUILT / "kube-apiserver"), f"--etcd-servers={etcd}", "--bind-address=127.0.0.1",
              f"--secure-port={port}", f"--cert-dir={folder / 'certificates'}",
              f"--token-auth-file={folder / 'tokens.csv'}", "--authorization-mode=RBAC",
              "--service-cluster-ip-range=10.96.0.0/24", "--advertise-address=127.0.0.1",
              "--endpoint-reconciler-type=none",  # nobody in a cluster asks for it here
              "--service-account-issuer=https://tests.invalid",
              f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}")
        try:
            wait_for(server.is_ready)
        except AssertionError:
            pytest.fail((folder / "kube-apiserver.log").read_text()[-2_000:])
        yield server
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)
