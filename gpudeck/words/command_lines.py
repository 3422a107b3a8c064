"""Command lines as people tell their runs apart: from the script on. Pure.

assets/parts/commands.mjs does the same for pages; one table tests both
(tests/unit/gpudeck/test_commands_shown.py).
"""

import re

_INTERPRETER = re.compile(r"(python|pypy|ruby|perl|bash|dash|zsh|sh|node|Rscript|julia)[0-9.]*")
_FOLDERS = re.compile(r"[\w.~@+-]*/(?:[\w.~@+-]+/)*(?=[^/]+\Z)", re.ASCII)
_NO_FILE = ("-m", "-c", "-")  # what is run is no file
_WITH_VALUE = ("-W", "-X")


def _name(path: str) -> str:
    folders = _FOLDERS.match(path)
    return path if folders is None else path[folders.end():]


def short_command(command: str | None) -> str:
    """Return `train.py --config a.yaml` for `/opt/conda/bin/python3 -u /home/ana/train.py --config
    a.yaml`."""
    if command is None:
        return "command unknown"
    program, *rest = command.split(" ")
    if not _INTERPRETER.fullmatch(_name(program)):
        return " ".join([_name(program), *rest])
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] not in _NO_FILE:
        at += 2 if rest[at] in _WITH_VALUE else 1
    if at >= len(rest):
        return " ".join([_name(program), *rest])
    if rest[at] in _NO_FILE:
        return " ".join([_name(program), *rest[at:]])
    return " ".join([_name(rest[at]), *rest[at + 1:]])
