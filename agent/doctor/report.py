"""`gpudeck doctor`: check this machine and suggest fixes.

Reads only, and changes nothing. Exit code 0: no problem (there may be warnings); 1: at least one.
"""

import getpass
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import to_builtins

from gpudeck.errors import ExitCode
from gpudeck.service.installed import is_of_service, state_here
from gpudeck.service.units import AGENT
from gpudeck.settings import Setting, flag, folder, is_loopback, load
from gpudeck.words.actions import printable

from ..actions.hold_files import driver_order
from ..backends.check import DoctorCheck, Verdict, checks_of, doctor_modules, worst
from ..settings import CA_FILE, CEILING, DATA_HERE, DEFAULT_HUBS, HUB, read
from .bundle import TextScrubber, write_bundle
from .hub import hub_checks
from .node import frameworks_check, node_checks, program_check

TABLE: tuple[Setting, ...] = (
    replace(HUB, default=None, default_words=f"that of the installed service; if there is none, "
                                             f"{DEFAULT_HUBS[0]}"),
    CA_FILE,
    Setting("data", folder, None, "the folder of this machine's agent", default_words=DATA_HERE),
    CEILING,
    Setting("json", flag, False, "JSON instead of lines"),
    Setting("bundle", folder, None, "write a scrubbed report to this new .zip file too"),
)
_SIGN: dict[Verdict, str] = {"ok": "ok", "warning": "WARNING", "problem": "PROBLEM",
                             "not checked": "-"}


def doctor(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> int:
    values = load("doctor", TABLE, argv, env, "Check this machine and suggest "
                                              "fixes. Changes nothing.")
    data = values["data"] or state_here("agent", env)
    hub, ca_file, ceiling = (values[name] for name in ("hub", "ca_file", "ceiling"))
    hubs: Sequence[str] = DEFAULT_HUBS if hub is None else (hub,)
    if hub is None and is_of_service("agent", data):
        settings = read(["--config", str(AGENT.config)], {})
        hubs, ca_file = settings.hub or DEFAULT_HUBS, ca_file or settings.ca_file
        ceiling = ceiling or settings.ceiling
    checks = examine(hubs[0], ca_file, data, ceiling, env)
    report = as_report(checks, time.time())
    print(json.dumps(report, indent=2) if values["json"] else as_text(checks))
    if values["bundle"] is not None:
        write_bundle(values["bundle"], report, TextScrubber(env, _names(hubs)), env)
        if not values["json"]:
            print(f"\nwrote {values['bundle']}; read it before you send it")
    return ExitCode.FAILED if worst(checks) == "problem" else ExitCode.OK


def examine(hub: str, ca_file: Path | None, data: Path, ceiling: Path | None,
            env: Mapping[str, str]) -> list[DoctorCheck]:
    return [
        program_check(),
        *checks_of(doctor_modules(), partial(driver_order, data)),
        *node_checks(data, ceiling), *hub_checks(hub, ca_file, data, env),
        frameworks_check(),
    ]


def as_report(checks: list[DoctorCheck], at: float) -> dict[str, Any]:
    """Return the report as JSON values, in the form that docs/doctor.md promises."""
    return {"verdict": worst(checks), "checked_at": at, "checks": to_builtins(checks)}


def as_text(checks: Sequence[DoctorCheck]) -> str:
    width = max(len(check.title) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{_SIGN[check.verdict]:8} {check.title:{width}}  {printable(check.says)}")
        if check.remedy and check.verdict in ("warning", "problem"):
            lines.append(f"{'':8} {'':{width}}  -> {printable(check.remedy)}")
    counts = Counter(check.verdict for check in checks)
    return "\n".join([*lines, "", f"{counts['problem']} problems, {counts['warning']} warnings, "
                      f"{counts['ok']} ok, {counts['not checked']} not checked"])


def _names(hubs: Iterable[str]) -> list[str]:
    """Return names to hide: of this machine, of its hubs, and of the user who runs this."""
    host = socket.gethostname()
    names = [host, host.partition(".")[0], Path.home().as_posix(),
             *(name for hub in hubs if not is_loopback(name := urlsplit(hub).hostname or ""))]
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a uid without a name
        user = ""
    return [*names, *([user] if user not in ("", "root") else [])]
