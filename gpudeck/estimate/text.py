"""An estimate as the terminal prints it. Pure."""

from collections.abc import Iterator

from gpudeck.estimate.parts import GIB
from gpudeck.estimate.request import EstimateView, FitView, SpeedView
from gpudeck.words.actions import printable


def size(number: float | None) -> str:
    return "?" if number is None else f"{number / GIB:.2f}"


def lines(view: EstimateView) -> Iterator[str]:
    yield (f"{view.parameters:,} parameters"
           + (f", {view.active:,} of them per token" if view.active is not None
              and view.active < view.parameters / 2 else "")
           + (f"; {view.family}" if view.family else ""))
    yield f"per GPU, of {view.gpus}:" if view.gpus > 1 else "on one GPU:"
    width = max(len(part.name) for part in view.parts)
    for part in view.parts:
        yield f"  {part.name:<{width}}  {size(part.bytes):>9} GiB  {part.formula}"
    if view.total is None:
        yield f"no total: missing are {', '.join(view.missing)}"
    else:
        yield (f"  {'total':<{width}}  {size(view.total):>9} GiB  between {size(view.low)} and "
               f"{size(view.high)}; of it {size(view.allocated)} allocated by the framework")
        yield f"have {size(view.ask)} GiB free"
        yield (f"published figures of this kind were met within {view.error:.0%}"
               if not view.inexact else "a range of 20 %: " + "; ".join(view.inexact))
    yield from (f"note: {printable(note)}" for note in view.notes)
    if view.speed is not None:
        yield speed(view.speed)
    if view.fits:
        yield "in this fleet:"
        yield from (f"  {line}" for board in view.fits for line in fit(board))


def speed(view: SpeedView) -> str:
    low, high = view.tokens_per_s
    return (f"{low:,.0f} to {high:,.0f} tokens/s: {view.formula}"
            + ("" if view.days is None else f"; {view.days[0]:.1f} to {view.days[1]:.1f} days"))


def fit(view: FitView) -> Iterator[str]:
    name = f"{printable(view.model)} ({size(view.mem_bytes)} GiB)"
    if view.gpus is None:
        yield f"{name}: does not fit; {view.why}"
        return
    yield (f"{name}: {view.gpus} of {view.there} ({view.layout}), {view.free} free; "
           f"{size(view.ask_bytes)} GiB each")
    if view.speed is not None:
        yield f"    {speed(view.speed)}"
    if view.why:
        yield f"    {view.why}"
    if view.command:
        yield f"    {printable(view.command)}"
