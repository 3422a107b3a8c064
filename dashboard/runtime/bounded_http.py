"""A single HTTP request within one time limit, in native threads."""

import http.client
import ssl

from .deadline import Deadline, connected

FAILED = (OSError, http.client.HTTPException)


class BoundedConnection(http.client.HTTPConnection):
    def __init__(self, host: str, port: int | None, is_tls: bool, deadline: Deadline,
                 step_s: float) -> None:
        super().__init__(host, port or (443 if is_tls else 80), timeout=step_s)
        self._is_tls = is_tls
        self._deadline = deadline
        self._step_s = step_s

    def connect(self) -> None:
        # The administrator chose the host, so any address of it will do.
        self.sock = connected(self.host, self.port, self._deadline, self._step_s, lambda _: None)
        self._deadline.watch(self.sock)
        if self._is_tls:
            self.sock = ssl.create_default_context().wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False)
            self._deadline.watch(self.sock)
            self.sock.do_handshake()


def failure_words(error: Exception) -> str:
    """Describe an error of the kinds in `FAILED` for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"[:200]
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, http.client.HTTPException):
        return f"it does not speak HTTP ({type(error).__name__})"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
