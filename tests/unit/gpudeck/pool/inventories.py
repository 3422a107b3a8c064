"""Random nodes and claims, small enough to try every way to place them."""

from collections.abc import Collection, Mapping

from hypothesis import strategies as st

from gpudeck.pool.core.claims import Booking, Claim
from gpudeck.pool.core.inventory import FreeGpu, Node, node_of
from gpudeck.pool.core.placement import Placement

GIB = 2**30
MODELS = (("NVIDIA H100 80GB HBM3", 80), ("NVIDIA A100-SXM4-40GB", 40), ("Tesla T4", 16))


class AllMayHave:
    """Limits that hold no owner back."""

    def why_not(self, claim: Claim) -> str:
        return ""

    def closed(self, claim: Claim) -> Collection[str]:
        return ()

    def take(self, placement: Placement) -> None:
        pass


class NoBookings:
    """Bookings of a fleet where nothing is reserved."""

    never: Mapping[str, str] = {}

    reserved: Mapping[tuple[str, str], float] = {}
    reservations: Collection[Booking] = ()

    def kept_gpus(self, claim_id: str) -> Collection[str]:
        return ()


@st.composite
def nodes(draw: st.DrawFn, most: int = 5) -> list[Node]:
    return [_node(draw, number) for number in range(draw(st.integers(1, most)))]


def _node(draw: st.DrawFn, number: int) -> Node:
    count = draw(st.sampled_from((1, 2, 4, 8)))
    model, gib = draw(st.sampled_from(MODELS))
    cliques = draw(st.sampled_from((None, 1, 2)))
    return node_of(f"id{number}", f"n{number}", [
        (f"GPU-{number}-{index}", FreeGpu(
            model, False, None if cliques is None else index % cliques, index // 4, gib * GIB))
        for index in range(count)], draw(st.sampled_from((None, 64_000))))


@st.composite
def claims(draw: st.DrawFn, most: int = 30) -> list[Claim]:
    return [_claim(draw, number) for number in range(draw(st.integers(1, most)))]


def _claim(draw: st.DrawFn, number: int) -> Claim:
    share = draw(st.sampled_from((1_000, 1_000, 1_000, 100, 300, 600)))
    return Claim(
        id=f"c{number}", owner=draw(st.sampled_from(("ann", "bob", "cid"))),
        gpus=1 if share < 1_000 else draw(st.sampled_from((1, 1, 2, 4, 8))),
        submitted_at=float(draw(st.integers(0, 1_000))), share_milli=share,
        mem_bytes=draw(st.sampled_from((None, 8 * GIB, 30 * GIB))),
        cpu_milli=draw(st.sampled_from((None, 4_000, 40_000))),
        models=draw(st.sampled_from(((), (), ("h100",), ("a100", "t4")))),
        term_s=float(draw(st.sampled_from((600, 3_600, 28_800)))),
        priority=draw(st.sampled_from((1, 2, 2, 3))))


def claim(number: int = 0, **fields: object) -> Claim:
    values: dict[str, object] = {"id": f"c{number}", "owner": "ann", "gpus": 1,
                                 "submitted_at": 0.0, **fields}
    return Claim(**values)  # type: ignore[arg-type]


def node(number: int = 0, gpus: int = 8, model: str = "NVIDIA H100 80GB HBM3", gib: int = 80
         ) -> Node:
    return node_of(f"id{number}", f"n{number}", [
        (f"GPU-{number}-{index}", FreeGpu(model, False, 0, index // 4, gib * GIB))
        for index in range(gpus)])
