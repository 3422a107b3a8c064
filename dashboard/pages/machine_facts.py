"""Facts of a GPU and of a node as lines of label and words: the board, its links, the agent, the
host's load, and what all boards of a node have in common. Pure."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make, region

from .node_words import agent_words, reader_words
from .pool_tables import Facts, fact_lines
from .words import NONE, amount, bytes_words, per_second, plural

Item = dict[str, Any]
MOST_PEERS = 15
UNKNOWN = "unknown"
NVLINK = "NVLink"

Words = Callable[[Any], str]


def _unit(unit: str) -> Words:
    return lambda value: f"{value:.0f} {unit}"


WATTS, MEGAHERTZ, DEGREES = _unit("W"), _unit("MHz"), _unit("°C")
BOARD_FACTS: tuple[tuple[str, str, Words], ...] = (
    ("uuid", "UUID", str), ("mig_profile", "MIG profile", str),
    ("parent_uuid", "MIG instance of", str), ("gpu_instance", "GPU instance", str),
    ("compute_instance", "Compute instance", str), ("pci_bus_id", "PCI bus", str),
    ("minor", "Device file", lambda number: f"/dev/nvidia{number}"),
    ("numa_node", "NUMA node", str), ("serial", "Serial", str), ("vbios", "VBIOS", str),
    ("driver", "Driver", str),
    ("compute_capability", "Compute capability", str),
    ("mem_total_bytes", "Memory", bytes_words), ("power_limit_w", "Power limit", WATTS),
    ("power_limit_default_w", "Power limit, default", WATTS),
    ("power_limit_min_w", "Power limit, minimum", WATTS),
    ("power_limit_max_w", "Power limit, maximum", WATTS),
    ("sm_clock_max_mhz", "Maximum SM clock", MEGAHERTZ),
    ("mem_clock_max_mhz", "Maximum memory clock", MEGAHERTZ),
    ("temp_slowdown_c", "Throttles at", DEGREES), ("temp_shutdown_c", "Shuts down at", DEGREES),
    ("mem_temp_max_c", "Maximum memory temperature", DEGREES),
    ("mem_margin_min_c", "Memory throttle margin", DEGREES),
    ("accounting_on", "Accounting of finished tasks", lambda is_on: "on" if is_on else "off"))
SHORT_PATHS = {"board": "IN", "one switch": "PIX", "switches": "PXB", "host bridge": "PHB",
               "numa node": "NODE", "system": "SYS"}
PATHS = {"board": "on the same board", "one switch": "through one PCIe switch",
         "switches": "through several PCIe switches",
         "host bridge": "through the CPU's PCIe root",
         "numa node": "between PCIe roots of one NUMA node", "system": "between NUMA nodes"}


def facts_list(facts: Facts) -> Component:
    return make("dl.facts", fact_lines(facts))


def board_facts(gpu: Item) -> Facts:
    # What was set since is read beside the facts.
    limit = gpu["values"].get("power_limit_w", gpu["facts"]["power_limit_w"])
    facts = {"uuid": gpu["uuid"], **gpu["facts"], "power_limit_w": limit}
    return [(label, words(facts[key])) for key, label, words in BOARD_FACTS
            if facts[key] is not None]


def peer_facts(uuid: str, links: Iterable[Item], places: Mapping[str, str]) -> Facts:
    """Return the links of a GPU to the others of its node. `places`: by UUID."""
    peers = {link["b"] if link["a"] == uuid else link["a"]: link
             for link in links if uuid in (link["a"], link["b"])}
    names = {other: f"GPU {places[other]}" if other in places else other for other in peers}
    lines = [(f"To {names[other]}", _path(peers[other]))
             for other in sorted(peers, key=lambda other: _in_order(names[other]))]
    more = len(lines) - MOST_PEERS
    return [*lines[:MOST_PEERS], *([("And", f"{more} more")] if more > 0 else [])]


def _in_order(name: str) -> list[tuple[bool, int, str]]:
    """Return a key by which 2 comes before 10."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part)
            for part in re.split(r"(\d+)", name)]


def _path(link: Item) -> str:
    count = link["nvlinks"] or 0
    return f"{link['path']}, {plural(count, NVLINK)}" if count else str(link["path"])


def node_facts(node: Item) -> Facts:
    """Return facts of a node's agent: what it can do now, and what it costs."""
    return [(label, words) for label, words in (
        ("Driver", node["driver_version"]), ("Reader", reader_words(node)),
        ("Agent", agent_words(node)), ("System", node["platform"]),
        ("Actions stopped", "; ".join(node["holds"]))) if words]


# -- the load of a node's host


def host_facts(load: Item | None) -> Facts:
    """Return a line for each resource, its parts below each other: a number that grows longer does
    not wrap, which would move all below. `load` None: the agent does not report it."""
    if load is None:
        return [("Load", "not reported by this agent, or too long ago")]
    return [(label, [make("span.fact-part", part) for part in (
        words(load["numbers"]) if all(key in load["numbers"] for key in keys)
        else [_why_not(load["missing"], keys)])]) for label, keys, words in HOST_LINES]


def _why_not(missing: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((missing[key] for key in keys if missing.get(key)), UNKNOWN)


def _percent(value: float) -> str:
    return f"{amount(value)} %"


def _ram(of: Mapping[str, float]) -> list[str]:
    swap = of.get("swap_used_bytes", 0.0)
    return [f"{bytes_words(of['mem_used_bytes'])} of {bytes_words(of['mem_total_bytes'])}",
            *([f"swap {bytes_words(swap)}"] if swap > 0 else [])]


def _rdma(of: Mapping[str, float]) -> list[str]:
    downs = of.get("rdma_link_downs", 0.0)
    return [f"received {per_second(of['rdma_rx_bytes_per_s'])}",
            f"sent {per_second(of['rdma_tx_bytes_per_s'])}",
            *([plural(downs, "link failure")] if downs > 0 else [])]


HostWords = Callable[[Mapping[str, float]], list[str]]
HOST_LINES: tuple[tuple[str, tuple[str, ...], HostWords], ...] = (
    ("CPU", ("cpu_pct", "cpus", "load_1m"), lambda of: [
        f"{_percent(of['cpu_pct'])} of {plural(of['cpus'], 'processor')}",
        f"load {amount(of['load_1m'], 1)}"]),
    ("RAM", ("mem_used_bytes", "mem_total_bytes"), _ram),
    ("Pressure", ("cpu_pressure_pct", "mem_pressure_pct", "io_pressure_pct"), lambda of: [
        f"CPU {_percent(of['cpu_pressure_pct'])}", f"memory {_percent(of['mem_pressure_pct'])}",
        f"disk {_percent(of['io_pressure_pct'])}"]),
    ("Disks", ("disk_read_bytes_per_s", "disk_write_bytes_per_s", "disk_busy_pct"), lambda of: [
        f"read {per_second(of['disk_read_bytes_per_s'])}",
        f"written {per_second(of['disk_write_bytes_per_s'])}",
        f"busiest {_percent(of['disk_busy_pct'])}"]),
    ("File systems", ("disk_full_pct",), lambda of: [f"fullest {_percent(of['disk_full_pct'])}"]),
    ("Network", ("net_rx_bytes_per_s", "net_tx_bytes_per_s"), lambda of: [
        f"received {per_second(of['net_rx_bytes_per_s'])}",
        f"sent {per_second(of['net_tx_bytes_per_s'])}"]),
    ("InfiniBand", ("rdma_rx_bytes_per_s", "rdma_tx_bytes_per_s"), _rdma),
    ("Blocked", ("threads_blocked",), lambda of: [
        f"{plural(of['threads_blocked'], 'process', 'processes')} waiting for a disk"]))


# -- all boards of a node together


def limit_facts(gpus: Sequence[Item]) -> Facts:
    words = agreed(gpus, _power_limit)
    return [] if words is None else [("Power limit", words)]


def _power_limit(gpu: Item) -> str | None:
    facts = gpu["facts"]
    watts = gpu["values"].get("power_limit_w", facts["power_limit_w"])
    if watts is None:
        return None
    return f"{WATTS(watts)}{', default' if watts == facts['power_limit_default_w'] else ''}"


def health_facts(gpus: Sequence[Item]) -> Facts:
    errors = [gpu["values"]["ecc_uncorrected"] for gpu in gpus
              if "ecc_uncorrected" in gpu["values"]]
    return [
        ("ECC, all GPUs", f"{amount(sum(errors))} uncorrected" if errors
         else _absence(gpus, "ecc_uncorrected")),
        ("NVLink", agreed(gpus, lambda gpu: f"{amount(gpu['values']['nvlinks_up'])} up"
                          if "nvlinks_up" in gpu["values"] else None)
         or _absence(gpus, "nvlinks_up"))]


def agreed(gpus: Sequence[Item], words_of: Callable[[Item], str | None]) -> str | None:
    """Return the words of all; who differs from most, first. None: none of them says."""
    places: dict[str, list[str]] = defaultdict(list)
    for gpu in gpus:
        if (words := words_of(gpu)) is not None:
            places[words].append(gpu["place"])
    if not places:
        return None
    most, *odd = sorted(places, key=lambda words: -len(places[words]))
    return "; ".join([*(f"GPU {', '.join(places[words])}: {words}" for words in odd),
                      f"the others {most}" if odd else most])


def _absence(gpus: Sequence[Item], key: str) -> str:
    return next((gpu["missing"][key] for gpu in gpus if gpu["missing"].get(key)), UNKNOWN)


def topology(links: Sequence[Item], gpus: Sequence[Item]) -> Component:
    """Return the links between the boards of a node, as in nvidia-smi's table; in words on
    hover."""
    boards = [gpu for gpu in gpus if gpu["facts"]["parent_uuid"] is None]
    if not links:
        return make("p.events-none", "Only one board." if len(boards) < 2
                    else "Not reported by the driver.")
    between = {pair: link for link in links
               for pair in ((link["a"], link["b"]), (link["b"], link["a"]))}
    head = make("tr", [make("td"), *(make("th", gpu["place"], scope="col") for gpu in boards),
                       make("th", "NUMA", scope="col")])
    rows = [make("tr", [
        make("th", one["place"], scope="row"),
        *(_link_cell(one, other, between.get((one["uuid"], other["uuid"]))) for other in boards),
        make("td", NONE if one["facts"]["numa_node"] is None else str(one["facts"]["numa_node"]))])
        for one in boards]
    return region("div.topology", "Table of links", make("table", [
        make("thead", head), make("tbody", rows)]))


def _link_cell(one: Item, other: Item, link: Item | None) -> Component:
    if one is other:
        return make("td.self", "·")
    if link is None:
        return make("td", NONE)
    count, path = link["nvlinks"] or 0, link["path"]
    title = (f"GPU {one['place']} to GPU {other['place']}: {PATHS.get(path, path)}"
             f"{f', {plural(count, NVLINK)}' if count else ''}")
    return make(f"td{'.nv' if count else ''}", f"NV{count}" if count
                else SHORT_PATHS.get(path, path), title=title)

