"""An estimate as the terminal prints it. Pure."""

from collections.abc import Iterator

from gpudeck.action_words import printable
from gpudeck.estimate.parts import GIB
from gpudeck.estimate.request import EstimateView, FitView, SpeedView


def size(number: float | None) -> str:
    return "?" if number is None else f"{number / GIB:.2f}"


def lines(found: EstimateView) -> Iterator[str]:
    yield (f"{found.parameters:,} parameters"
           + (f", {found.active:,} of them per token" if found.active is not None
              and found.active < found.parameters / 2 else "")
           + (f"; {found.family}" if found.family else ""))
    yield f"per GPU, of {found.gpus}:" if found.gpus > 1 else "on one GPU:"
    width = max(len(each.name) for each in found.parts)
    for part in found.parts:
        yield f"  {part.name:<{width}}  {size(part.bytes):>9} GiB  {part.formula}"
    if found.total is None:
        yield f"no total: missing are {', '.join(found.missing)}"
    else:
        yield (f"  {'total':<{width}}  {size(found.total):>9} GiB  between {size(found.low)} and "
               f"{size(found.high)}; of it {size(found.allocated)} allocated by the framework")
        yield f"have {size(found.ask)} GiB free"
        yield (f"published figures of this kind were met within {found.error:.0%}"
               if not found.inexact else "a range of 20 %: " + "; ".join(found.inexact))
    yield from (f"note: {printable(note)}" for note in found.notes)
    if found.speed is not None:
        yield speed(found.speed)
    if found.fits:
        yield "in this fleet:"
        yield from (f"  {line}" for each in found.fits for line in fit(each))


def speed(found: SpeedView) -> str:
    low, high = found.tokens_per_s
    return (f"{low:,.0f} to {high:,.0f} tokens/s: {found.formula}"
            + ("" if found.days is None else f"; {found.days[0]:.1f} to {found.days[1]:.1f} days"))


def fit(found: FitView) -> Iterator[str]:
    name = f"{printable(found.model)} ({size(found.mem_bytes)} GiB)"
    if found.gpus is None:
        yield f"{name}: does not fit; {found.why}"
        return
    yield (f"{name}: {found.gpus} of {found.there} ({found.layout}), {found.free} free; "
           f"{size(found.ask_bytes)} GiB each")
    if found.speed is not None:
        yield f"    {speed(found.speed)}"
    if found.why:
        yield f"    {found.why}"
    if found.command:
        yield f"    {printable(found.command)}"
