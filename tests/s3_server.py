"""A real S3 server over sockets, which is killed and started again with what it had, and a broken
one: slow, with answers of 500, or with fewer bytes than announced."""

import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3

from tests.integration.hubs import wait_for
from tests.ports import free_port

BUCKET = "years"


@dataclass
class S3Server:
    port: int = field(default_factory=free_port)
    keys: Mapping[str, str] = field(default_factory=dict)  # environment of a user with access
    _contents: dict[str, bytes] = field(default_factory=dict)
    _is_guarded: bool = False
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, service: str = "s3") -> Any:
        return boto3.client(service, endpoint_url=self.endpoint, region_name="us-east-1",
                            aws_access_key_id="nobody", aws_secret_access_key="nothing")

    def start(self) -> None:
        # Its console script, without a shim that a version manager may have put before it.
        run = "import sys; from moto.server import main; main(sys.argv[1:])"
        self._process = subprocess.Popen(
            [sys.executable, "-c", run, "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self._is_up, why="moto_server")
        client = self.client()
        client.create_bucket(Bucket=BUCKET)
        for key, content in self._contents.items():
            client.put_object(Bucket=BUCKET, Key=key, Body=content)
        iam = self.client("iam")
        iam.create_user(UserName="hub")
        key = iam.create_access_key(UserName="hub")["AccessKey"]
        iam.put_user_policy(UserName="hub", PolicyName="all", PolicyDocument=(
            '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", '
            '"Resource": "*"}]}'))
        self.keys = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"],
                     "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}

    def guard(self) -> None:
        """Check permissions and signatures from now on."""
        urllib.request.urlopen(urllib.request.Request(
            f"{self.endpoint}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"},
            method="POST"), timeout=30).close()
        self._is_guarded = True

    def _is_up(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=5).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """Kill it; what it has in memory stays, as another server would have it on disk."""
        assert self._process is not None
        if self._process.poll() is None and not self._is_guarded:
            self._contents, versions = {}, None
            while versions != (versions := self._versions()):  # one may have come meanwhile
                self._contents = self.objects()
        self._process.kill()
        self._process.wait(30)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def objects(self) -> dict[str, bytes]:
        client = self.client()
        return {key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
                for key, _ in self._versions()}

    def _versions(self) -> list[tuple[str, str]]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [(row["Key"], row["ETag"]) for page in pages for row in page.get("Contents", [])]

    def put(self, key: str, content: bytes) -> None:
        self.client().put_object(Bucket=BUCKET, Key=key, Body=content)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    server.start()
    try:
        yield server
    finally:
        server.kill()


class SpoiltStore(ThreadingHTTPServer):
    """Answers each request alike: with a status, with a part of what it announced, or after a
    while."""

    daemon_threads = True

    def __init__(self, status: int, body: bytes, announced: int, wait_s: float = 0.0) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(wait_s)
                self.send_response(status)
                self.send_header("Content-Length", str(announced))
                self.end_headers()
                with suppress(OSError):  # whoever asked may have left
                    self.wfile.write(body)

            do_PUT = do_DELETE = do_GET

            def log_message(self, *_: object) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self.server_close()


