"""What access tells the rest of the hub."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CredentialEnded:
    """A session or an API token that held until now."""

    credential: str
