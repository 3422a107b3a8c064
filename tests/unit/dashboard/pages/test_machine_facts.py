"""Facts of a GPU and of a node in words."""

import random
from typing import Any

import pytest

from dashboard.pages.element_tree import trees
from dashboard.pages.machine_facts import (
    agreed,
    board_facts,
    facts_list,
    health_facts,
    host_facts,
    limit_facts,
    node_facts,
    peer_facts,
    topology,
)
from dashboard.pages.words import NONE

from .machine_views import Item, a_gpu, a_node
from .read_parts import elements, words

LOAD = {"cpu_pct": 12.4, "cpus": 64.0, "load_1m": 3.25, "mem_used_bytes": 2.0**33,
        "mem_total_bytes": 2.0**38, "swap_used_bytes": 2.0**30, "cpu_pressure_pct": 1.0,
        "mem_pressure_pct": 0.0, "io_pressure_pct": 7.6, "disk_read_bytes_per_s": 999.0,
        "disk_write_bytes_per_s": 1_500.0, "disk_busy_pct": 55.0, "disk_full_pct": 91.0,
        "net_rx_bytes_per_s": 2.5e9, "net_tx_bytes_per_s": 0.4, "rdma_rx_bytes_per_s": 1e6,
        "rdma_tx_bytes_per_s": 123_456_789.0, "rdma_link_downs": 1.0, "threads_blocked": 1.0}


def link(a: int, b: int, path: str = "system", nvlinks: int | None = None) -> Item:
    return {"a": f"GPU-{a}", "b": f"GPU-{b}", "path": path, "nvlinks": nvlinks}


def lines(load: Item | None) -> dict[str, str]:
    return {label: words(trees(inside)) for label, inside in host_facts(load)}


def test_the_load_of_a_host() -> None:
    assert lines({"numbers": LOAD, "missing": {}}) == {
        "CPU": "12 % of 64 processorsload 3.3", "RAM": "8.0 GiB of 256 GiBswap 1.0 GiB",
        "Pressure": "CPU 1 %memory 0 %disk 8 %",
        "Disks": "read 999 B/swritten 1.5 kB/sbusiest 55 %", "File systems": "fullest 91 %",
        "Network": "received 2.5 GB/ssent 0 B/s",
        "InfiniBand": "received 1.0 MB/ssent 123 MB/s1 link failure",
        "Blocked": "1 process waiting for a disk"}
    assert lines(None) == {"Load": "not reported by this agent, or too long ago"}


def test_a_number_that_is_not_there_is_never_a_zero() -> None:
    key = random.choice(["cpu_pct", "cpus", "load_1m"])
    numbers = {name: value for name, value in LOAD.items() if name != key}
    assert lines({"numbers": numbers, "missing": {key: "denied"}})["CPU"] == "denied"
    assert lines({"numbers": numbers, "missing": {}})["CPU"] == "unknown"


def test_facts_of_a_board_leave_out_what_is_not_known() -> None:
    gpu = a_gpu(values={"power_limit_w": 333.4}, facts={"minor": 3, "accounting_on": False})
    facts = dict(board_facts(gpu))
    assert facts["Power limit"] == "333 W"  # as it is now, not as it was at the start
    assert facts["Device file"] == "/dev/nvidia3"
    assert facts["Accounting of finished tasks"] == "off"
    assert "Serial" not in facts
    assert "Power limit" not in dict(board_facts(a_gpu(facts={"power_limit_w": None})))


def test_facts_of_an_agent() -> None:
    facts = dict(node_facts(a_node(holds=["ann: test", "/etc/hold"])))
    assert facts == {"Driver": "550.54", "Agent": "0.1.0", "System": "Linux",
                     "Actions stopped": "ann: test; /etc/hold"}
    assert dict(node_facts(a_node(platform="", driver_version=None))) == {"Agent": "0.1.0"}


def test_links_of_a_gpu_in_the_order_of_the_others() -> None:
    places = {f"GPU-{at}": str(at) for at in range(20)}
    links = [link(1, at, nvlinks=18) if at > 1 else link(at, 1)
             for at in random.sample([0, *range(2, 20)], 19)] + [link(0, 2)]
    facts = [*peer_facts("GPU-1", links, places)]
    assert facts[:3] == [("To GPU 0", "system"), ("To GPU 2", "system, 18 NVLinks"),
                         ("To GPU 3", "system, 18 NVLinks")]
    assert facts[-1] == ("And", "4 more")
    assert peer_facts("GPU-1", [link(1, 99)], places) == [("To GPU-99", "system")]
    assert peer_facts("GPU-9", links[:0], places) == []


def test_what_all_boards_have_in_common() -> None:
    gpus = [a_gpu(at, values={"nvlinks_up": 18.0, "ecc_uncorrected": 1.0}) for at in range(4)]
    gpus[2]["values"] |= {"nvlinks_up": 17.0, "power_limit_w": 300.0}
    assert dict(limit_facts(gpus)) == {"Power limit": "GPU 2: 300 W; the others 700 W, default"}
    assert dict(health_facts(gpus)) == {
        "ECC, all GPUs": "4 uncorrected", "NVLink": "GPU 2: 17 up; the others 18 up"}
    assert limit_facts([a_gpu(facts={"power_limit_w": None})]) == []
    assert agreed([], lambda gpu: "x") is None


def test_why_a_number_of_all_boards_is_not_there() -> None:
    gpus = [a_gpu(0), a_gpu(1, missing={"ecc_uncorrected": "unsupported", "nvlinks_up": "denied"})]
    assert dict(health_facts(gpus)) == {"ECC, all GPUs": "unsupported", "NVLink": "denied"}
    assert dict(health_facts([])) == {"ECC, all GPUs": "unknown", "NVLink": "unknown"}


def test_the_table_of_links() -> None:
    gpus = [a_gpu(0, facts={"numa_node": 0}), a_gpu(1),
            a_gpu(2, facts={"parent_uuid": "GPU-0"})]
    part = trees(topology([link(0, 1, "one switch", 4)], gpus))
    assert words(part) == f"01NUMA0·NV401NV4·{NONE}"
    titles = [traits["title"] for _, traits, _ in elements(part) if "title" in traits]
    assert titles == ["GPU 0 to GPU 1: through one PCIe switch, 4 NVLinks",
                      "GPU 1 to GPU 0: through one PCIe switch, 4 NVLinks"]


@pytest.mark.parametrize(("count", "says"), [
    (0, "Only one board."), (1, "Only one board."), (2, "Not reported by the driver.")])
def test_without_links(count: int, says: str) -> None:
    assert words(trees(topology([], [a_gpu(at) for at in range(count)]))) == says


def test_a_path_that_this_hub_does_not_know() -> None:
    part: Any = trees(topology([link(0, 1, "by letter")], [a_gpu(0), a_gpu(1)]))
    assert "by letter" in words(part)
    assert words(trees(facts_list([("a", "b")]))) == "ab"
