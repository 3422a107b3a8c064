"""Parts of a node's view."""

import pytest
from msgspec import UNSET

from dashboard.fleet.node_parts import driver_words
from gpudeck.contract.gpu_facts import GpuFacts

NVIDIA, AMD = "GPU-5d0a1c7e-0000-4000-8000-000000000001", "GPU-946d7e1ef9b172dd"


@pytest.mark.parametrize(("node", "boards", "words"), [
    ("575.57", ((NVIDIA, None),), "575.57"), (None, (), None), ("575.57", (), "575.57"),
    ("575.57", ((NVIDIA, "575.57"), (NVIDIA, "575.57"), (AMD, "Linux 6.8")),
     "575.57 (NVIDIA), Linux 6.8 (AMD)"),
    ("575.57", ((NVIDIA, None), (AMD, "Linux 6.8")), "Linux 6.8 (AMD)")])
def test_a_node_names_each_of_its_drivers(
        node: str | None, boards: tuple[tuple[str, str | None], ...], words: str | None) -> None:
    gpus = [GpuFacts(uuid, at, "a board", driver_version=version or UNSET)
            for at, (uuid, version) in enumerate(boards)]
    assert driver_words(node, gpus) == words
