"""The openb trace: see tests/captures/openb/README.md."""

from pathlib import Path

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.trace import read_claims, read_nodes

FOLDER = Path(__file__).parents[3] / "captures/openb"


def nodes() -> list[Node]:
    with (FOLDER / "nodes.csv").open(newline="") as file:
        return read_nodes(file).rows


def claims() -> list[Claim]:
    with (FOLDER / "pods.csv").open(newline="") as file:
        return [row.claim for row in read_claims(file).rows]
