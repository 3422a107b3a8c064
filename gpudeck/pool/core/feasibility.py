"""Whether a claim could ever be met, and what there is if not. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.fragmentation import accepts
from gpudeck.pool.core.inventory import FreeGpu, Node
from gpudeck.pool.core.placement import candidates


def suits(claim: Claim, gpu: FreeGpu) -> bool:
    """By its model and its memory, whether it is free or not."""
    if gpu.is_mig and (claim.gpus > 1 or claim.is_share):
        return False
    return accepts(claim.models, gpu.model) and (
        claim.mem_bytes is None
        or (gpu.board_bytes is not None and gpu.board_bytes >= claim.mem_bytes))


def why_never(claim: Claim, empty: Sequence[Node]) -> str:
    """`empty`: all nodes as if nothing were given out. "": it could be met."""
    there = [node for node in empty
             if not claim.hosts or node.host in claim.hosts or node.id in claim.hosts]
    if not there:
        return f"no node of the pool is called {' or '.join(claim.hosts)}"
    fitting = sum(next(candidates(node, claim, 0.0), None) is not None for node in there)
    if fitting >= claim.nodes:
        return ""
    gpus = [gpu for node in there for gpu in node.gpus]
    if claim.models and not any(accepts(claim.models, gpu.model) for gpu in gpus):
        return (f"there is no GPU of model {' or '.join(claim.models)} here; there are "
                f"{_models(gpus)}")
    if not any(suits(claim, gpu) for gpu in gpus):
        return f"no GPU here has this much memory; there are {_models(gpus)}"
    most = max(sum(suits(claim, gpu) for gpu in node.gpus) for node in there)
    if most < claim.gpus:
        return (f"no node here has {claim.gpus} GPUs that match; the largest has {most}. "
                "Ask for fewer, or for several nodes")
    return f"{fitting} nodes here could take a part of it; it asks for {claim.nodes}"


def why_waits(claim: Claim, empty: Iterable[Node], free: Iterable[Node]) -> str:
    fitting = sum(suits(claim, gpu) for node in empty for gpu in node.gpus)
    now = sum(suits(claim, gpu) and gpu.free_milli >= claim.share_milli
              for node in free for gpu in node.gpus)
    return f"it asks for {words(claim)}; {now} of {fitting} matching ones are free"


def _models(gpus: Iterable[FreeGpu]) -> str:
    count = Counter((gpu.model, gpu.board_bytes) for gpu in gpus)
    return ", ".join(
        f"{number} x {model}" + ("" if size is None else f" ({size / 2**30:.4g} GiB)")
        for (model, size), number in sorted(count.items(), key=lambda each: each[0][0]))


def words(claim: Claim) -> str:
    """What it asks for, in short: `2 x h100, 40 GiB each`."""
    said = [f"{claim.gpus} GPU{'s' * (claim.gpus != 1)}" if not claim.is_share
            else f"{claim.share_milli / 10:g} % of a GPU"]
    if claim.models:
        said.append("|".join(claim.models))
    if claim.mem_bytes is not None:
        said.append(f"{claim.mem_bytes / 2**30:.4g} GiB{' each' * (claim.gpus > 1)}")
    if claim.nodes > 1:
        said.append(f"on each of {claim.nodes} nodes")
    return ", ".join(said)
