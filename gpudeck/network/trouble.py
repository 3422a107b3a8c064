"""Words for why a hub is not reached, and for what to do about it: the same in an agent's log, of
`gpudeck doctor`, of each command and in a notebook, where there are no flags."""

import errno
import socket
import ssl


def unreached_words(error: Exception) -> str:
    """Return why no connection came about."""
    match error:
        case ssl.SSLCertVerificationError():
            return _certificate_words(error)
        case ssl.SSLError():
            return f"TLS fails ({error.reason or error}); is the hub's URL right, https and port?"
        case socket.gaierror():
            return (f"the name in the hub's URL is not known here "
                    f"({str(error.strerror).lower()}); correct it, or the DNS of this machine")
        case OSError():
            return reach_words(error)
    return str(error) or type(error).__name__


def reach_words(error: OSError) -> str:
    """Return why the hub was not reached, and what to look at."""
    words = error.strerror.lower() if error.strerror else str(error) or type(error).__name__
    match error:
        case ConnectionRefusedError():
            return (f"{words}: does the hub run there, or the proxy before it, and is the port in "
                    "the hub's URL right?")
        case TimeoutError():
            return (f"{words}: is the address in the hub's URL right, and does a firewall let "
                    "this machine through?")
        case OSError(errno=errno.EHOSTUNREACH | errno.ENETUNREACH):
            return f"{words}: is this machine's network up, and the address in the hub's URL right?"
    return words


def proxy_words(status: int, server: str) -> str:
    """Return what an HTTP status of a proxy means. `server`: as it names itself; "": it does
    not."""
    proxy = f"the proxy before the hub ({server})" if server else "a proxy before the hub"
    if status in (502, 503, 504):
        return f"{proxy} answers HTTP {status}: it does not reach the hub; does the hub run?"
    return f"{proxy} answers HTTP {status}"


def _certificate_words(error: ssl.SSLCertVerificationError) -> str:
    """Return what is wrong with the certificate. The codes are OpenSSL's X509_V_ERR_*."""
    message = f"the hub's certificate is refused: {error.verify_message}"
    if error.verify_code == 9:
        return f"{message}; compare this machine's clock with the hub's"
    if error.verify_code == 10:
        return f"{message}; renew it on the hub"
    if error.verify_code in (62, 64):
        return f"{message}; use the name that the certificate is for in the hub's URL"
    if error.verify_code in (18, 19, 20, 21):
        return (f"{message}; give the issuing CA's certificate: --ca-file, or ca_file in a file or "
                "a notebook")
    return message
