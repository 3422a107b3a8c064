"""Whole objects in S3, over HTTP signed by Signature Version 4. In native threads."""

import hashlib
import hmac
import http.client
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, BinaryIO, TypeVar
from urllib.parse import parse_qs, quote, urlsplit

from gpudeck import __version__

from ...runtime.bounded_http import FAILED, BoundedConnection, failure_words
from ...runtime.deadline import Deadline
from .archive import write_all
from .aws_credentials import AwsCredentials, NoCredentialsError, credentials

STEP_WITHIN_S, WITHIN_S = 15.0, 30.0
LEAST_BYTES_PER_S = 500_000  # a slower store counts as away
SMALL_BYTES, PART_BYTES = 65_536, 1_000_000
CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,80})</Code>")
NOTHING = hashlib.sha256(b"").hexdigest()
WHY = {
    "NoSuchBucket": "there is no such bucket",
    "InvalidAccessKeyId": "it does not know the access key",
    "SignatureDoesNotMatch": "the secret key is not the access key's",
    "AccessDenied": "these credentials may not do that",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "PermanentRedirect": "the bucket is in another region; name it by ?region=",
    "AuthorizationHeaderMalformed": "the bucket is in another region; name it by ?region=",
}

Result = TypeVar("Result")


class S3Error(Exception):
    """Another attempt may succeed."""


class S3MissingError(S3Error):
    """The bucket is there, and this object is not."""


class S3WrongError(S3Error):
    """An object has other bytes than it should; others are not concerned."""


class S3ExistsError(S3Error):
    """An object that was only to be made is there already."""


@dataclass(frozen=True, slots=True)
class S3Address:
    host: str
    port: int | None
    is_tls: bool
    path: str  # before keys: /BUCKET/PREFIX/ or /PREFIX/
    region: str

    @classmethod
    def of(cls, url: str, env: Mapping[str, str]) -> "S3Address":
        """s3://BUCKET/PREFIX?endpoint=URL&region=NAME"""
        parts = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        region = options.get("region") or env.get("AWS_REGION") or env.get(
            "AWS_DEFAULT_REGION") or "us-east-1"
        prefix = f"/{parts.path.strip('/')}/".replace("//", "/")
        if "endpoint" in options:
            at = urlsplit(options["endpoint"])
            return cls(at.hostname or "", at.port, at.scheme == "https",
                       f"{at.path.rstrip('/')}/{parts.netloc}{prefix}", region)
        if "." in parts.netloc:  # which no certificate of theirs fits
            return cls(f"s3.{region}.amazonaws.com", None, True, f"/{parts.netloc}{prefix}", region)
        return cls(f"{parts.netloc}.s3.{region}.amazonaws.com", None, True, prefix, region)


class S3Bucket:
    """Keys are below the prefix of the URL."""

    def __init__(self, url: str, env: Mapping[str, str]) -> None:
        self._at = S3Address.of(url, env)
        self._env = env

    def put_file(self, key: str, path: Path, sha256: str) -> None:
        size = path.stat().st_size
        with path.open("rb") as file:
            self._ask("PUT", key, lambda answer: None, size, file, sha256,
                      {"Content-Length": str(size)})

    def get_file(self, key: str, to: Path | None, most: int) -> str:
        """Fetch an object into `to`; return its SHA-256. Reading stops just beyond `most` bytes."""
        def take(answer: http.client.HTTPResponse) -> str:
            digest, remaining = hashlib.sha256(), most + 1  # one too many is another file
            with (to or Path(os.devnull)).open("wb", buffering=0) as file:
                while remaining and (part := answer.read(min(remaining, PART_BYTES))):
                    digest.update(part)
                    _write(file, part)
                    remaining -= len(part)
            if remaining and answer.length:
                raise S3Error("its answer ended in the middle")
            return digest.hexdigest()

        return self._ask("GET", key, take, most)

    def delete(self, key: str) -> None:
        self._ask("DELETE", key, lambda answer: None)

    def get_small(self, key: str) -> bytes:
        return self._ask("GET", key, lambda answer: answer.read(SMALL_BYTES))

    def put_small(self, key: str, content: bytes, only_new: bool) -> None:
        self._ask("PUT", key, lambda answer: None, len(content), content,
                  hashlib.sha256(content).hexdigest(), {"If-None-Match": "*"} if only_new else {})

    def _ask(self, verb: str, key: str, take: Callable[[http.client.HTTPResponse], Result],
             size: int = 0, body: bytes | IO[bytes] | None = None, sha256: str = NOTHING,
             headers: Mapping[str, str] | None = None) -> Result:
        at = self._at
        deadline = Deadline(WITHIN_S + size / LEAST_BYTES_PER_S)
        connection = BoundedConnection(at.host, at.port, at.is_tls, deadline, STEP_WITHIN_S)
        try:
            path = quote(at.path + key, safe="/-_.~")
            host = at.host if at.port is None else f"{at.host}:{at.port}"
            proof = signed(verb, path, {"Host": host}, sha256, credentials(self._env), at.region,
                           datetime.now(UTC))
            connection.request(verb, path, body, {**proof, **(headers or {}), "Connection": "close",
                                                  "User-Agent": f"gpudeck/{__version__}"})
            answer = connection.getresponse()
            if answer.status >= 300:
                raise _refusal(answer.status, answer.read(SMALL_BYTES))
            result = take(answer)
            deadline.left_s()  # else it may have been cut in the middle
            return result
        except NoCredentialsError as error:
            raise S3Error(str(error)) from None
        except FAILED as error:
            raise S3Error("it did not answer in time" if deadline.is_over
                          else failure_words(error)) from None
        finally:
            deadline.end()
            connection.close()


def _write(file: BinaryIO, part: bytes) -> None:
    try:
        write_all(file, part)
    except OSError as error:  # else its words would be about the bucket
        raise S3Error(f"this machine's disk takes no more of it: {error.strerror}") from None


def _refusal(status: int, body: bytes) -> S3Error:
    match = CODE.search(body)
    code = "" if match is None else match[1].decode()
    if status == 404 and code == "NoSuchKey":
        return S3MissingError("this object is not there")
    if status == 412:
        return S3ExistsError("this object is there already")
    return S3Error(f"{WHY[code]} ({code})" if code in WHY
                   else f"it answered {status} {code}".strip())


def signed(verb: str, path: str, headers: Mapping[str, str], sha256: str, identity: AwsCredentials,
           region: str, now: datetime) -> dict[str, str]:
    """Return `headers` and those that prove who asks. `path`: as it is sent, without a query."""
    day, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    proven = {**headers, "x-amz-content-sha256": sha256, "x-amz-date": moment}
    if identity.token is not None:
        proven["x-amz-security-token"] = identity.token
    lines = sorted((name.lower(), value.strip()) for name, value in proven.items())
    names = ";".join(name for name, _ in lines)
    request = "\n".join((verb, path, "", *(f"{name}:{value}" for name, value in lines), "", names,
                         sha256))
    scope = f"{day}/{region}/s3/aws4_request"
    words = "\n".join(("AWS4-HMAC-SHA256", moment, scope,
                       hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{identity.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, words.encode(), "sha256").hex()
    return {**proven, "Authorization": f"AWS4-HMAC-SHA256 Credential={identity.key_id}/{scope}, "
                                      f"SignedHeaders={names}, Signature={signature}"}
