"""Command lines as people tell their runs apart: from the script on. Pure."""

import re

_INTERPRETER = re.compile(r"(python|pypy|ruby|perl|bash|sh|zsh|node|Rscript|julia)[0-9.]*")
_WITH_VALUE = ("-m", "-c", "-W", "-X")


def _name(path: str) -> str:
    return path.rpartition("/")[2] or path


def short_command(command: str | None) -> str:
    """Return `train.py --config a.yaml` for `/opt/conda/bin/python3 -u /home/ana/train.py --config
    a.yaml`."""
    if command is None:
        return "command unknown"
    program, *rest = command.split(" ")
    if not _INTERPRETER.fullmatch(_name(program)):
        return " ".join([_name(program), *rest])
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] not in ("-m", "-c", "-"):
        at += 2 if rest[at] in _WITH_VALUE else 1
    if at >= len(rest):
        return " ".join([_name(program), *rest])
    if rest[at] in ("-m", "-c", "-"):
        return " ".join([_name(program), *rest[at:]])
    return " ".join([_name(rest[at]), *rest[at + 1:]])
