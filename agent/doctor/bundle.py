"""Report for others to look at: what the doctor found, without anything that is secret or names
anybody. Scrubbed twice: by pattern (redact.py), and by every value known to be secret."""

import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import zipfile
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode

from ..backends.check import doctor_modules
from ..tasks.redact import HIDDEN, redact

# Names of variables whose values are shown. Of all others not even the name is shown.
SHOWN = ("GPUDECK_", "LD_LIBRARY_PATH", "XDG_STATE_HOME", "SLURM_JOB", "KUBERNETES_")
SYSTEM_FILES = ("/proc/version", "/etc/os-release", "/proc/loadavg", "/proc/self/cgroup")
SECRET = re.compile(r"token|secret|passw|key|credential|cookie|auth|session|dsn|webhook", re.I)
LOG_LINES = 500
LOG_WITHIN_S = 10.0
# A value this short is a word of the language as well.
SECRET_MIN = 5
_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F-]{8,}")
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
# Times of day and PCI addresses have colons too: only what is an address counts.
_MAYBE_IPV6 = re.compile(r"(?<![\w:.])[0-9a-fA-F]{0,4}:[0-9a-fA-F:]*:(?:[0-9a-fA-F.]*)(?<!\.)")
_HARDWARE = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5,19}[0-9a-fA-F]{2}\b")  # Ethernet, InfiniBand
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")
_KEY = re.compile(r"\b[0-9a-f]{32,}\b|\b[A-Za-z0-9+/_-]{43,}={0,2}(?![A-Za-z0-9])")
_OPEN = ("127.0.0.1", "0.0.0.0", "::1", "::")


class TextScrubber:
    """Filter that removes secrets and names from text. A name becomes the same word everywhere, so
    that two lines about one GPU still show that."""

    def __init__(self, env: Mapping[str, str], names: Iterable[str]) -> None:
        self._values = sorted(
            {value for name, value in env.items()
             if SECRET.search(name) and len(value) >= SECRET_MIN} | set(_secrets_in(env)),
            key=len, reverse=True)
        self._names = sorted({name for name in names if len(name) > 1}, key=len, reverse=True)
        # Without it, trying all addresses there are finds the one that a word stands for.
        self._salt = secrets.token_bytes(16)

    def __call__(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, HIDDEN)
        text = redact(text)
        text = _UUID.sub(lambda match: f"{match[1]}-{self._word(match[0])}", text)
        text = _KEY.sub(HIDDEN, text)
        text = _MAIL.sub("[mail]", text)
        for pattern in (_HARDWARE, _MAYBE_IPV6, _ADDRESS):
            text = pattern.sub(self._address, text)
        for name in self._names:
            word = f"[name {self._word(name)}]"
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", word, text)
        return text

    def _address(self, match: re.Match[str]) -> str:
        address = match[0]
        if address in _OPEN or (match.re is _MAYBE_IPV6 and not _is_ipv6(address)):
            return address
        return f"[address {self._word(address)}]"

    def _word(self, text: str) -> str:
        return hashlib.sha256(self._salt + text.encode()).hexdigest()[:8]


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _secrets_in(env: Mapping[str, str]) -> Iterable[str]:
    """Yield the words of the files that NAME_FILE variables name."""
    for name, value in env.items():
        if SECRET.search(name) and name.endswith("_FILE"):
            try:
                text = Path(value).read_text(errors="replace")[:65_536]
            except OSError:
                continue
            yield from (word for word in text.split() if len(word) >= SECRET_MIN)


def write_bundle(path: Path, report: Mapping[str, object], scrub: TextScrubber,
                 env: Mapping[str, str] = os.environ) -> None:
    drivers = doctor_modules()
    prefixes = (*SHOWN, *(start for driver in drivers for start in driver.ENVIRONMENT))
    parts = {
        "doctor.json": json.dumps(_scrubbed(report, scrub), indent=1),
        "environment.txt": "\n".join(
            f"{name}={HIDDEN if SECRET.search(name) else value}"
            for name, value in sorted(env.items()) if name.startswith(prefixes)),
        "system.txt": _system(
            (*SYSTEM_FILES, *(name for driver in drivers for name in driver.FILES))),
        "agent.log": _log(),
        "README.txt": "Made by `gpudeck doctor --bundle`. Secrets are removed; host, user, mail "
                      "and network names and GPU UUIDs are each replaced by the same made-up "
                      "word throughout. Read it before you send it.",
    }
    try:
        # x: an existing file may be somebody else's, or the last report.
        with (open(path, "xb", opener=_private) as file,
              zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle):
            for name, text in parts.items():
                bundle.writestr(name, (text if name.endswith(".json") else scrub(text)) + "\n")
    except FileExistsError:
        raise CommandError(f"{path} is there already; name another file", ExitCode.USAGE) from None
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}", ExitCode.USAGE) from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _scrubbed(node: Any, scrub: TextScrubber) -> Any:
    """Scrub string by string: scrubbed as one text, JSON could lose a quotation mark."""
    if isinstance(node, str):
        return scrub(node)
    if isinstance(node, Mapping):
        return {name: _scrubbed(value, scrub) for name, value in node.items()}
    return [_scrubbed(value, scrub) for value in node] if isinstance(node, list) else node


def _system(files: Iterable[str]) -> str:
    sections = []
    for name in files:
        try:
            sections.append(f"== {name}\n{Path(name).read_text(errors='replace')[:4_096]}")
        except OSError as error:
            sections.append(f"== {name}\n{error.strerror}\n")
    return "\n".join(sections)


def _log() -> str:
    """Return the last lines of the service's log, where systemd keeps one."""
    program = shutil.which("journalctl")
    if program is None:
        return "no journalctl here"
    try:
        completed = subprocess.run(
            [program, "-u", "gpudeck-agent", "-n", str(LOG_LINES), "--no-pager", "-o", "short-iso"],
            capture_output=True, timeout=LOG_WITHIN_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"journalctl does not answer: {type(error).__name__}"
    return completed.stdout.decode(errors="replace")[-400_000:]
