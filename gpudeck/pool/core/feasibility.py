"""Reasons why a claim waits, or could never be met. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import inf

from gpudeck.language.times import span_words, utc_words
from gpudeck.pool.core.claims import WHOLE_MILLI, Claim, GpuKey
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

WHYS_MOST = 2


def suits(claim: Claim, gpu: FreeGpu) -> bool:
    """Return whether a GPU suits a claim by its model and its memory, whether it is free or not."""
    if gpu.is_mig and (claim.gpus > 1 or claim.is_share):
        return False
    return accepts(claim.models, gpu.model) and (
        claim.mem_bytes is None
        or (gpu.board_bytes is not None and gpu.board_bytes >= claim.mem_bytes))


def could(claim: Claim, empty: Iterable[Node]) -> bool:
    """Return whether a claim could be met. Cheap, since one of the first nodes fits as a rule."""
    fitting = (node for node in empty
               if (not claim.hosts or node.host in claim.hosts or node.id in claim.hosts)
               and next(candidates(node, claim, 0.0), None) is not None)
    return len([*islice(fitting, claim.nodes)]) == claim.nodes


def why_never(claim: Claim, empty: Sequence[Node]) -> str:
    """Return why a claim could never be met; "": it could. `empty`: all nodes as if nothing were
    given out."""
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
    """Return the claim without what it asks for of the node's CPUs and memory."""
    return replace(claim, cpu_milli=None, ram_bytes=None)


def _largest(claim: Claim, there: Iterable[Node]) -> str:
    hosts = [node.free_host for node in there]
    return ", ".join([
        *([cpu_words(max((host.cpu_milli or 0 for host in hosts), default=0))]
          if claim.cpu_milli else ()),
        *([ram_words(max((host.ram_bytes or 0 for host in hosts), default=0))]
          if claim.ram_bytes else ())])


def _host_lack(claim: Claim, empty: Sequence[Node], free: Sequence[Node]) -> str:
    """Return what the node with the most of it lacks in CPUs and memory, where the GPUs are free;
    "": nothing."""
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
              trouble: Mapping[GpuKey, str], reserved: Mapping[GpuKey, float], utc: float) -> str:
    """Return why a claim waits. `trouble`: why a GPU is out of service. `reserved`: from when on,
    UTC, somebody else has it. `utc`: now."""
    if claim.home_gpus:
        return _why_suspended(claim, empty, free, trouble)
    fitting = sum(suits(claim, gpu) for node in empty for gpu in node.gpus)
    now = sum(suits(claim, gpu) and gpu.free_milli >= claim.share_milli
              for node in free for gpu in node.gpus)
    sentence = f"it asks for {words(claim)}; {now} of {fitting} matching are free"
    starts = [reserved[node.id, uuid] for node in free
              for uuid, gpu in zip(node.uuids, node.gpus, strict=True)
              if reserved.get((node.id, uuid), inf) < utc + claim.term_s and suits(claim, gpu)
              and gpu.free_milli >= claim.share_milli] if reserved else []
    if starts:
        since = "now" if min(starts) <= utc else f"{utc_words(min(starts))} on"
        are = "are" if len(starts) > 1 else "is"
        sentence += (f", {len(starts)} of these {are} reserved from {since}, and it asks for "
                     f"{span_words(claim.term_s)}")
    sentence += _host_lack(claim, empty, free)
    whys = Counter(trouble[node.id, uuid] for node in empty
                   for uuid, gpu in zip(node.uuids, node.gpus, strict=True)
                   if (node.id, uuid) in trouble and suits(claim, gpu))
    if not whys:
        return sentence
    first = "; ".join(why for why, _ in whys.most_common(WHYS_MOST))
    rest = " and others" if len(whys) > WHYS_MOST else ""
    return f"{sentence}, {whys.total()} cannot be leased now ({first}{rest})"


def _why_suspended(claim: Claim, empty: Sequence[Node], free: Sequence[Node],
                   trouble: Mapping[GpuKey, str]) -> str:
    """Return why suspended work waits: it comes back to the GPUs that it had, and to no others."""
    home = {(node.id, uuid) for node in empty for uuid in node.uuids if uuid in claim.home_gpus}
    now = sum(gpu.free_milli >= claim.share_milli for node in free
              for uuid, gpu in zip(node.uuids, node.gpus, strict=True) if (node.id, uuid) in home)
    sentence = (f"its work is suspended, and comes back to the GPUs that it had: {now} of "
                f"{len(claim.home_gpus)} {'is' if now == 1 else 'are'} free")
    if len(home) < len(claim.home_gpus):
        return f"{sentence}, and {len(claim.home_gpus) - len(home)} not there"
    whys = sorted({trouble[key] for key in home if key in trouble})
    return f"{sentence} ({'; '.join(whys[:WHYS_MOST])})" if whys else sentence


def _models(gpus: Iterable[FreeGpu]) -> str:
    count = Counter((gpu.model, gpu.board_bytes) for gpu in gpus)
    return ", ".join(
        f"{number} x {model}" + ("" if size is None else f" ({size / 2**30:.4g} GiB)")
        for (model, size), number in sorted(count.items(), key=lambda entry: entry[0][0]))


def words(claim: Claim) -> str:
    """Describe in short what a claim asks for: `2 x h100, 40 GiB each`."""
    parts = [f"{claim.gpus} GPU{'s' * (claim.gpus != 1)}" if not claim.is_share
             else f"{claim.share_milli / 10:g} % of a GPU"]
    if claim.models:
        parts.append("|".join(claim.models))
    if claim.mem_bytes is not None:
        parts.append(f"{claim.mem_bytes / 2**30:.4g} GiB{' each' * (claim.gpus > 1)}")
    if asks_for_host([claim]):
        parts.append(asked_words(claim))
    if claim.nodes > 1:
        parts.append(f"on each of {claim.nodes} nodes")
    if claim.home_gpus:
        parts.append("to restore its suspended work")
    return ", ".join(parts)
