"""Events that access dispatches to the rest of the hub."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CredentialEnded:
    """A session or an API token is no longer valid."""

    credential: str
