"""Credentials where AWS's own tools look first: the environment, then the shared file. Never in a
URL, a setting or a log."""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


class NoCredentialsError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    key_id: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def credentials(env: Mapping[str, str]) -> AwsCredentials:
    """Read credentials each time: what writes the file may renew them."""
    key, secret = (env.get(f"AWS_{name}") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
    if key and secret:
        return AwsCredentials(key, secret, env.get("AWS_SESSION_TOKEN"))
    path = Path(env.get("AWS_SHARED_CREDENTIALS_FILE")
                or Path(env.get("HOME") or "/", ".aws", "credentials"))
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text())
        profile = parser[env.get("AWS_PROFILE") or "default"]
        return AwsCredentials(profile["aws_access_key_id"], profile["aws_secret_access_key"],
                              profile.get("aws_session_token"))
    except (OSError, UnicodeDecodeError, configparser.Error, KeyError):
        raise NoCredentialsError("there are no credentials in AWS_ACCESS_KEY_ID and "
                                 f"AWS_SECRET_ACCESS_KEY, or in {path}") from None
