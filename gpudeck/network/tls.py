"""TLS contexts for connections to the hub: apart from the REST client, whose libraries the agent
does not carry."""

import ssl
from pathlib import Path

from gpudeck.errors import CommandError, ExitCode


def tls_context(hub: str, ca_file: Path | None) -> ssl.SSLContext | None:
    """Return a context that always verifies; None where the hub is on this machine and speaks plain
    HTTP."""
    if hub.startswith("http:"):
        return None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise CommandError(f"the CA file {ca_file}: no certificates in PEM form can be read from "
                           f"it ({error})", ExitCode.USAGE) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
