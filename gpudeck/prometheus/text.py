"""Prometheus' text format: families of samples. Pure.

https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["gauge", "counter"]

# Names, pods and models are text from nodes: a line break in one would begin a sample of its own,
# and at a NUL Prometheus stops reading.
_ESCAPES = dict.fromkeys((*range(32), 127), "\N{REPLACEMENT CHARACTER}") | {
    ord("\n"): "\\n", ord("\\"): "\\\\", ord('"'): '\\"'}


def labels(pairs: Mapping[str, str | None]) -> str:
    """Format labels as they stand between the braces. None: this value is not known, and left
    out."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"'
                    for name, value in pairs.items() if value is not None)


def family(name: str, kind: Kind, help: str, of: Sequence[str], values: Iterable[float]) -> str:
    """Format a family, one sample for each of `of`, labels as above; NaN: not there. No samples, no
    family."""
    head = name + "{"
    lines = [f"{head}{pairs}}} {value:.15g}\n" for pairs, value in zip(of, values, strict=True)
             if value == value]
    return f"# HELP {name} {_help(help)}\n# TYPE {name} {kind}\n{''.join(lines)}" if lines else ""


def family_by(name: str, kind: Kind, help: str, label: str, rows: Mapping[str, float]) -> str:
    return family(name, kind, help, [labels({label: key}) for key in rows], rows.values())


def single(name: str, kind: Kind, help: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"# HELP {name} {_help(help)}\n# TYPE {name} {kind}\n{name} {value:.15g}\n"


def histogram(name: str, help: str, bounds: Sequence[float], counts: Sequence[int], total: float
              ) -> str:
    """Format a histogram. `counts`: up to each bound from the one before it, and beyond the
    last."""
    upto = accumulate(counts)
    lines = [f'{name}_bucket{{le="{bound}"}} {count}\n'
             for bound, count in zip((*map("{:g}".format, bounds), "+Inf"), upto, strict=True)]
    return (f"# HELP {name} {_help(help)}\n# TYPE {name} histogram\n{''.join(lines)}"
            f"{name}_sum {total:.15g}\n{name}_count {sum(counts)}\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def unique(of: Sequence[str]) -> list[int]:
    """Return the positions of the first of each. Two samples with the same labels would make
    Prometheus refuse the whole page, and nodes name themselves."""
    first: dict[str, int] = {}
    for place, text in enumerate(of):
        first.setdefault(text, place)
    return list(first.values())
