"""Whether a claim could ever be met, and what there is if not. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import inf

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim
from gpudeck.pool.core.fragmentation import accepts
from gpudeck.pool.core.host_resources import (
    asked_words,
    asks_for_host,
    cpu_words,
    lack_words,
    ram_words,
)
from gpudeck.pool.core.inventory import FreeGpu, Node
from gpudeck.pool.core.placement import candidates
from gpudeck.times import span_words, utc_words

WHYS_MOST = 2


def suits(claim: Claim, gpu: FreeGpu) -> bool:
    """By its model and its memory, whether it is free or not."""
    if gpu.is_mig and (claim.gpus > 1 or claim.is_share):
        return False
    return accepts(claim.models, gpu.model) and (
        claim.mem_bytes is None
        or (gpu.board_bytes is not None and gpu.board_bytes >= claim.mem_bytes))


def could(claim: Claim, empty: Iterable[Node]) -> bool:
    """On one of the first nodes as a rule, so that it costs little."""
    fitting = (node for node in empty
               if (not claim.hosts or node.host in claim.hosts or node.id in claim.hosts)
               and next(candidates(node, claim, 0.0), None) is not None)
    return len([*islice(fitting, claim.nodes)]) == claim.nodes


def why_never(claim: Claim, empty: Sequence[Node]) -> str:
    """`empty`: all nodes as if nothing were given out. "": it could be met."""
    there = [node for node in empty
             if not claim.hosts or node.host in claim.hosts or node.id in claim.hosts]
    if not there:
        return ("no node leases GPUs now" if not claim.hosts else
                f"no node of the pool is called {' or '.join(claim.hosts)}")
    fitting = sum(_fits(node, claim) for node in there)
    if fitting >= claim.nodes:
        return ""
    gpus = [gpu for node in there for gpu in node.gpus]
    if claim.models and not any(accepts(claim.models, gpu.model) for gpu in gpus):
        return (f"there is no GPU of model {' or '.join(claim.models)} here; there are "
                f"{_models(gpus)}")
    whole = replace(claim, gpus=1, share_milli=WHOLE_MILLI)
    if whole.wants != claim.wants and all(
            gpu.is_mig for gpu in gpus if suits(whole, gpu)) and any(
            suits(whole, gpu) for gpu in gpus):
        return ("only MIG instances match here, and " + (
            "no part of one can be limited: leave the share out" if claim.is_share else
            "one process sees one of them: ask for 1 GPU"))
    if not any(suits(claim, gpu) for gpu in gpus):
        return f"no GPU here has this much memory; there are {_models(gpus)}"
    most = max(sum(suits(claim, gpu) for gpu in node.gpus) for node in there)
    if most < claim.gpus:
        return (f"no node here has {claim.gpus} GPUs that match; the largest has {most}. "
                "Ask for fewer, or for several nodes")
    if asks_for_host([claim]) and any(_fits(node, _of_gpus(claim)) for node in there):
        return (f"no node here has such GPUs and {asked_words(claim)}; the largest has "
                f"{_largest(claim, there)}")
    return f"{fitting} nodes here could take a part of it; it asks for {claim.nodes}"


def _of_gpus(claim: Claim) -> Claim:
    """What it asks for beside CPUs and memory of the node."""
    return replace(claim, cpu_milli=None, ram_bytes=None)


def _largest(claim: Claim, there: Iterable[Node]) -> str:
    of = [node.free_host for node in there]
    return ", ".join([
        *([cpu_words(max((each.cpu_milli or 0 for each in of), default=0))]
          if claim.cpu_milli else ()),
        *([ram_words(max((each.ram_bytes or 0 for each in of), default=0))]
          if claim.ram_bytes else ())])


def _host_lack(claim: Claim, empty: Sequence[Node], free: Sequence[Node]) -> str:
    """Where the GPUs are there, what of their node is not: of the node that has most of it."""
    if not asks_for_host([claim]) or any(_fits(node, claim) for node in free):
        return ""
    gpus, whole = _of_gpus(claim), {node.id: node.free_host for node in empty}
    lacking = [node for node in free if node.id in whole and _fits(node, gpus)]
    if not lacking:
        return ""
    most = max(lacking, key=lambda node: (node.free_ram_bytes or 0, node.free_cpu_milli or 0))
    at = f" on {most.host}" if len(free) > 1 else ""
    return f", {lack_words(claim, whole[most.id], most.free_host)}{at}"


def _fits(node: Node, claim: Claim) -> bool:
    return next(candidates(node, claim, 0.0), None) is not None


def why_waits(claim: Claim, empty: Sequence[Node], free: Sequence[Node],
              trouble: Mapping[str, str], reserved: Mapping[str, float], utc: float) -> str:
    """`trouble`: by UUID, why a GPU is out of service. `reserved`: from when on, UTC, somebody else
    has it. `utc`: now."""
    fitting = sum(suits(claim, gpu) for node in empty for gpu in node.gpus)
    now = sum(suits(claim, gpu) and gpu.free_milli >= claim.share_milli
              for node in free for gpu in node.gpus)
    said = f"it asks for {words(claim)}; {now} of {fitting} matching are free"
    taken = [reserved[uuid] for node in free
             for uuid, gpu in zip(node.uuids, node.gpus, strict=True)
             if reserved.get(uuid, inf) < utc + claim.term_s and suits(claim, gpu)
             and gpu.free_milli >= claim.share_milli] if reserved else []
    if taken:
        since = "now" if min(taken) <= utc else f"{utc_words(min(taken))} on"
        are = "are" if len(taken) > 1 else "is"
        said += (f", {len(taken)} of these {are} reserved from {since}, and it asks for "
                 f"{span_words(claim.term_s)}")
    said += _host_lack(claim, empty, free)
    whys = Counter(trouble[uuid] for node in empty
                   for uuid, gpu in zip(node.uuids, node.gpus, strict=True)
                   if uuid in trouble and suits(claim, gpu)) if trouble else Counter[str]()
    if not whys:
        return said
    first = "; ".join(why for why, _ in whys.most_common(WHYS_MOST))
    others = " and others" if len(whys) > WHYS_MOST else ""
    return f"{said}, {whys.total()} cannot be leased now ({first}{others})"


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
    if asks_for_host([claim]):
        said.append(asked_words(claim))
    if claim.nodes > 1:
        said.append(f"on each of {claim.nodes} nodes")
    return ", ".join(said)
